"""The end of a failed run over 64 nodes: one screen, the right sentence on top, and no wrong name."""

import re
import shlex
from collections.abc import Iterator, Sequence
from io import StringIO
from pathlib import Path

import pytest

from shakedown.checks.compare import NEW_LOGIN
from shakedown.cli.commands.report import report
from shakedown.common.text import printable
from shakedown.evidence.diagnosis.model import Diagnosis, Sign
from shakedown.gates import Gate
from shakedown.gates.consequences import split, with_origin
from shakedown.hosts import select
from shakedown.jobs.launch import job_name
from shakedown.report import terminal
from shakedown.report.failure import next_command, next_steps, of_run
from shakedown.report.outcomes import report as of_record
from shakedown.report.summary import LINES, WIDTH, fitted, summary_lines
from shakedown.runner.pyinfra.deploys import Deploy
from shakedown.runner.pyinfra.invocation import invocation
from shakedown.runs.directory import JobRecord, RunNode, RunRecord
from shakedown.runs.isolation import Isolation, Result, Suspect
from shakedown.state.findings import Finding, Verdict
from tests.plays import LINE, PHASES, TORCHRUN
from tests.turns import Script
from tests.unit.test_naming import Views

NAMES = [f"node{number:02d}" for number in range(1, 65)]
ALL = ["  failed: node[01-64]"]  # the job over all of them failed, and no node is named
STOPPED = "stopped by the controller; on which node the failure began is undecided"
STEPS = [(1.0, LINE.format(i=1)), (2.0, LINE.format(i=2))]
LOST = "RuntimeError: [../gloo/transport/tcp/pair.cc:553] Connection closed by peer [10.0.0.17]:41234\n"
OTHERS = Script(says=[*STEPS, (3.125, LOST)], exits=(3.5, 1))


@pytest.fixture
def views(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Views:
    monkeypatch.setattr(invocation, "inventory", "rack.py")
    return Views(tmp_path, monkeypatch, capsys, NAMES)


def on_one_screen(lines: list[str], *named: str) -> str:
    """Check the measures of the lines, and that the first sentence names these nodes alone; return that sentence."""
    words = [line for line in lines if not line.startswith(("report: ", "evidence: "))]  # a path is as long as it is
    assert len(lines) <= LINES and max(map(len, words)) <= WIDTH, lines
    whole = re.sub(r"\n {8}", " ", "\n".join(lines))
    first = whole.splitlines()[0]
    assert set(re.findall(r"node\d+", first)) == set(named)
    assert not [word for word in re.findall(r"node\S*", whole) if word.endswith(("[", "-"))], "a name is broken"
    assert whole.splitlines()[-1].startswith(("report: ", "evidence: "))
    return first


def played(views: Views, bad: Script, others: Script = OTHERS, *named: str) -> str:
    views.end(plan={"stall_timeout_s": 20}, **{name: bad if name == "node17" else others for name in NAMES})
    shown = views.shown(report)
    on_one_screen(shown.splitlines(), *named)
    failed = [line for line in views.closing if line.startswith("  failed: ")]
    one_by_one = [line.partition(": ")[2].partition(":")[0] for line in failed]
    open_ = [line for line in views.closing if line.startswith("  unknown: node")]
    if named:  # the first line names them; no other node has failed
        assert set(one_by_one) <= set(named) and not open_
    else:
        assert not failed or failed == ALL or open_ == [f"  unknown: node[01-64]: {STOPPED}"]
    return on_one_screen(views.end_lines, *named)


def test_a_killed_rank(views: Views) -> None:
    first = played(views, Script(says=[*STEPS, (3.0, TORCHRUN)], exits=(3.25, 1)), OTHERS, "node17")
    assert "a rank was killed from outside" in first and " UTC" in first and "(certain: " in first
    assert "  then: shakedown run rack.py --limit node17" in views.closing
    (gates,) = [line for line in views.closing if line.startswith("  gates: ")]
    for name in ("ran_to_its_end", "exit_codes", "iterations_complete", "loss_falling", "ended_well"):
        assert name in gates.partition("follow from the early end: ")[2]
    assert not [line for line in views.closing if line.startswith("  fail: gate ")]
    ended = views.gate("exit_codes")
    assert not re.search(r"node(?!17)[\d\[\],-]+ ended with 1(?! after the failure began on node17)", ended), ended


def test_out_of_memory(views: Views) -> None:
    assert "memory" in played(views, PHASES["first iteration"](3.0), OTHERS, "node17")


def test_a_hang_names_no_node(views: Views) -> None:
    first = played(views, Script(says=STEPS), Script(says=STEPS))
    assert "the job hangs" in first and "undecided" in first
    assert not [line for line in views.closing if line.startswith("  failed: ")]


def test_ctrl_c(views: Views) -> None:
    views.play.interrupted = lambda: "stopped by Ctrl-C" if views.play.turns.now > views.play.began + 5 else None
    assert "the run was stopped from outside" in played(views, Script(says=STEPS), Script(says=STEPS))


def ended(*gates: Gate, part: str = "trained", simulated: bool = False) -> list[str]:
    """Return the lines of a run with these gates and no diagnosis."""
    record = RunRecord(run_id="r", started_at="x", inventory="rack.py", desired_digest="0", verdict=Verdict.FAIL)
    record.nodes = [RunNode(name=name, verdict=Verdict.OK, part=part) for name in NAMES]  # type: ignore[arg-type]
    record.gates, record.jobs, record.simulated = [*gates, gate("exit_codes", Verdict.OK)], [JobRecord()], simulated
    return list(fitted(summary_lines(of_run(record, Path("runs/r")))))


@pytest.mark.parametrize(
    ("deploy", "failed", "command"),
    [
        ("", NAMES[:1], "shakedown run rack.py --limit node01"),
        ("megatron", NAMES, "shakedown run rack.py"),
        ("pytorch_training", NAMES[:2], "pyinfra rack.py deploy/pytorch_training.py --limit node01 --limit node02"),
        ("stanford_megatron", NAMES, "pyinfra rack.py deploy/stanford_megatron.py"),
        ("megatron_source", NAMES[:9], "pyinfra rack.py deploy/megatron_source.py"),
    ],
)
def test_the_next_step_is_the_deploy_that_was_run(deploy: str, failed: list[str], command: str) -> None:
    record = RunRecord(run_id="r", started_at="x", inventory="rack.py", desired_digest="0", deploy=deploy)
    bad = {name: Verdict.FAIL if name in failed else Verdict.OK for name in NAMES}
    record.nodes = [RunNode(name=name, verdict=bad[name], part="trained") for name in NAMES]
    record.gates, record.jobs = [gate("tokens", Verdict.FAIL, node=name) for name in failed], [JobRecord()]
    assert next_steps(record) == [f"  next: {command}"]


def test_a_command_to_copy_runs_nothing_else_whoever_wrote_the_record() -> None:
    foreign = "x; touch $(pwd)/y `z` \x1b[2J'"
    record = RunRecord(run_id=foreign, started_at="x", inventory=foreign, desired_digest="0", deploy=foreign)
    record.nodes = [RunNode(name=name, verdict=Verdict.FAIL, part="trained") for name in (foreign, "node02", "node03")]
    record.nodes[2].verdict = Verdict.OK
    record.jobs = [JobRecord()]
    for deploy, words in ((foreign, 7), ("", 5)):
        record.deploy = deploy
        command = shlex.split(next_command(record))
        assert len(command) == words and command[1 if deploy else 2] == printable(foreign)
    record.diagnosis = Diagnosis(
        name="n", cause="c", remedy="r", why="w", confidence="undecided", among=("node02", "node03")
    )
    assert shlex.split(next_command(record)) == ["shakedown", "isolate", printable(foreign)]


def test_a_command_has_every_node_where_a_sentence_would_shorten_them() -> None:
    """`--limit 'a, b and 9 more'` is no command."""
    names = [f"gpu-{number * 7:03d}.rack{number}.site.example" for number in range(1, 13)]
    record = RunRecord(run_id="r", started_at="x", inventory="rack.py", desired_digest="0", jobs=[JobRecord()])
    record.nodes = [RunNode(name=name, verdict=Verdict.FAIL, part="trained") for name in names[1:]]
    record.nodes.append(RunNode(name=names[0], verdict=Verdict.OK, part="trained"))
    record.gates = [gate("tokens", Verdict.FAIL, node=name) for name in names[1:]]
    (step,) = next_steps(record)
    assert shlex.split(step)[1:] == ["shakedown", "run", "rack.py", "--limit", ",".join(names[1:])]


def test_the_record_of_a_run_has_the_deploy_of_plain_pyinfra(views: Views, monkeypatch: pytest.MonkeyPatch) -> None:
    views.session.record = None
    monkeypatch.setattr(invocation, "deploys", [Deploy("pytorch_training", frozenset())])
    assert views.session.open_run().deploy == "pytorch_training"


def gate(name: str, verdict: Verdict, evidence: str = "", remedy: str | None = None, **fields: object) -> Gate:
    return Gate(name=name, verdict=verdict, evidence=evidence, remedy=remedy, **fields)  # type: ignore[arg-type]


def test_a_slow_node_a_bad_loss_and_a_refused_start_are_the_first_thing_said() -> None:
    why = "node17 needs 40 % longer than its peers"
    slow = gate("no_straggler", Verdict.FAIL, why, "compare the node with others", actual="node17")
    lines = ended(slow)
    assert lines[:4] == [
        "verdict: fail: no_straggler failed with node17",
        "  fail: gate no_straggler: node17 needs 40 % longer than its peers",
        "    Compare the node with others.",
        "  next: shakedown isolate r",
    ]
    lines = ended(gate("loss_finite", Verdict.FAIL, "the loss of iterations 12-20 is not finite", wanted=20, actual=11))
    assert lines[1].startswith("  fail: gate loss_finite: the loss of iterations 12-20")
    assert "  next: shakedown isolate r" in ended(gate("throughput_per_gpu", Verdict.FAIL, "wanted at least 380"))
    slow = gate("throughput_per_gpu", Verdict.FAIL, "wanted at least 380")
    assert "  next: shakedown isolate rack.py" in ended(slow, simulated=True), "no run of its id is in a site's folder"
    assert "  next: shakedown run rack.py" in ended(gate("rccl_tuning", Verdict.FAIL, "TCP"))
    assert "  next: shakedown run rack.py" in ended(gate("steady", Verdict.FAIL, "no"), part="examined")
    refused = "node[01-64]: run x of root@other holds this node since 04:00"
    lines = ended(gate("ran_to_its_end", Verdict.FAIL, refused), part="examined")
    assert lines[1] == f"  fail: gate ran_to_its_end: {refused}"
    unknown = ended(
        gate("counters", Verdict.UNKNOWN, "not read: node17"), gate("ended_well", Verdict.UNKNOWN, "no log")
    )
    assert unknown[1:3] == ["  unknown: gate counters: not read: node17", "  next: shakedown run rack.py"]
    assert "  unknown: gate ended_well: no log" in unknown and "  gates: 2 of 3 did not pass" in unknown
    for shown in (lines, unknown):
        on_one_screen(shown)


def test_what_waits_for_a_login_or_a_boot_is_not_run_again() -> None:
    record = RunRecord(run_id="r", started_at="x", inventory="rack.py", desired_digest="0", verdict=Verdict.DRIFT)
    record.nodes, record.jobs = [RunNode(name="n1", verdict=Verdict.DRIFT, part="trained")], [JobRecord()]
    login = Finding(name="memlock", node="n1", verdict=Verdict.DRIFT, remedy=NEW_LOGIN)
    boot = Finding(name="cmdline.iommu", node="n1", verdict=Verdict.DRIFT, reboot_pending=True)
    for found, words in (([login], "See UsePAM"), ([boot], "Reboot the nodes"), ([login, boot], "See UsePAM")):
        record.findings = found
        first, then = next_steps(record)
        assert first.startswith(f"  next: {words}") and then == "  then: shakedown drift rack.py"
    record.findings = [login, boot.model_copy(update={"reboot_pending": False})]
    assert next_steps(record) == ["  next: shakedown run rack.py"]


def test_a_remedy_of_several_gates_is_shown_once() -> None:
    names = ("loss_finite", "no_skipped_or_nan", "gradient_norm")
    lines = ended(*(gate(name, Verdict.FAIL, "not finite at 9", "compare the learning rate") for name in names))
    assert [line for line in lines if "learning rate" in line] == ["    Compare the learning rate."]


def test_many_gates_of_many_nodes_stay_on_one_screen() -> None:
    bad = [
        gate(f"gate_{n}", Verdict.FAIL, f"{name} {'word ' * 90}", "do " * 90, job=job_name(name), node=name)
        for n in range(9)
        for name in NAMES
    ]
    lines = ended(*bad)
    assert len(lines) <= LINES and max(map(len, lines)) <= WIDTH


def test_what_follows_from_an_early_end_is_told_from_what_does_not() -> None:
    early = [
        gate("ran_to_its_end", Verdict.FAIL, actual="stopped"),
        gate(
            "exit_codes", Verdict.FAIL, "node17 ended with -9; node18 ended with 1", actual={"node17": -9, "node18": 1}
        ),
        gate("loss_falling", Verdict.FAIL, actual="rises"),
        gate("throughput_per_gpu", Verdict.FAIL, wanted=380),
        gate("no_kernel_fault", Verdict.FAIL, actual=1),
        gate("no_failure_signature", Verdict.FAIL, actual=1),
    ]
    names = [[each.name for each in part] for part in split(early, None)]
    assert names[0] == ["ran_to_its_end", "no_kernel_fault", "no_failure_signature"], "a gate has to say why it ended"
    found = Diagnosis(name="x", cause="x", remedy="", confidence="certain", origin=("node17",), why="")
    assert [each.name for each in split(early, found)[0]] == ["no_kernel_fault"]
    sign = Sign(node="node17", name="gpu_reset", role="origin", text="amdgpu: GPU reset begin")
    quoted = early[4].model_copy(update={"evidence": f"node17: gpu_reset (line 2): {sign.text}"})
    seen = found.model_copy(update={"evidence": (sign,)})
    assert split([early[0], quoted], seen)[0] == [], "the diagnosis says it already"
    assert split([early[0], quoted.model_copy(update={"actual": 2})], seen)[0], "another line may be another fault"
    whole = early[2:]
    assert split(whole, None) == (whole, []), "the job went on to its end"
    once = with_origin(early, found)
    assert once[1].evidence == "node17 ended with -9; node18 ended with 1 after the failure began on node17"
    assert with_origin(once, found) == once and with_origin(early, None) == early
    assert once[1].actual == early[1].actual
    first = [
        gate("ran_to_its_end", Verdict.FAIL, actual="stopped", evidence=text) for text in ("node18: x", "node17: y")
    ]
    ends = [each.evidence for each in with_origin(first, found)]
    assert ends == ["the failure began on node17; the controller first saw: node18: x", "node17: y"]
    assert with_origin(with_origin(first, found), found)[0].evidence == ends[0]


@pytest.mark.parametrize(("lines", "follows"), [(0, True), (10, False)])
def test_a_loss_of_no_line_follows_from_an_early_end_and_a_loss_that_was_printed_does_not(
    lines: int, follows: bool
) -> None:
    ended = Gate(name="exit_codes", verdict=Verdict.FAIL, actual={"node02": -9}, evidence="node02 ended with -9")
    loss = Gate(name="loss_finite", verdict=Verdict.FAIL, wanted=lines, actual=0)
    own, following = split([ended, loss], None)
    assert (loss in following, ended in own) == (follows, True)


class Counted(list[Gate]):
    """Gates that count how often one of them is looked at."""

    looks = 0

    def __iter__(self) -> Iterator[Gate]:
        for gate in super().__iter__():
            self.looks += 1
            yield gate


def test_the_gates_of_many_jobs_are_gone_through_once() -> None:
    """Where each node has a job for itself there are as many jobs as nodes."""
    gates = Counted(
        Gate(name=name, verdict=Verdict.FAIL, job=f"each/node{number}", node=f"node{number}")
        for number in range(500)
        for name in ("exit_codes", "loss_finite")
    )
    own, following = split(gates, None)
    assert (len(own), len(following)) == (500, 500) and gates.looks <= 2 * len(gates)


def test_a_run_whose_controller_was_killed_passed_nothing() -> None:
    record = RunRecord(run_id="r", started_at="x", inventory="rack.py", desired_digest="0", verdict=Verdict.UNKNOWN)
    record.nodes = [RunNode(name="node1", verdict=Verdict.UNKNOWN, part="trained")]
    record.jobs = [JobRecord()]
    assert "verdict: unknown: the run is not finished" in map(str, of_record(record))


@pytest.mark.parametrize("size", [4, 64, 512])
@pytest.mark.parametrize("kinds", [3, 30])
def test_a_run_that_failed_before_its_job_ends_on_one_screen_with_its_reason(
    size: int, kinds: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    record = RunRecord(run_id="r", started_at="x", finished_at="y", inventory="rack.py", desired_digest="0")
    record.verdict = Verdict.FAIL
    why = "clock: Failed to connect to bus: No such file or directory"
    for number in range(1, size + 1):
        name = f"node{number:03}"
        record.nodes.append(RunNode(name=name, verdict=Verdict.FAIL, part="examined", why=why))
        record.findings += [
            Finding(name=f"check{kind}", node=name, verdict=Verdict.DRIFT, wanted="a", actual="b")
            for kind in range(kinds)
        ]
    record.findings.append(Finding(name="gpu_count", node="node002", verdict=Verdict.FAIL, wanted=8, actual=7))
    output = StringIO()
    out = terminal.console(file=output)
    for part in of_record(record, directory=tmp_path / f"{'long' * 30}"):
        out.print(part, soft_wrap=getattr(part, "no_wrap", False))
    lines = output.getvalue().splitlines()
    assert len(lines) <= LINES and all(len(line) <= WIDTH for line in lines if str(tmp_path) not in line)
    assert lines[1].split()[:3] == ["FAIL", "gpu_count", "node002"]
    text = " ".join(output.getvalue().split())
    assert why in text and f"{size} of {size} nodes" in text
    assert str(tmp_path / f"{'long' * 30}") in output.getvalue(), "the place of the report is one word"


@pytest.mark.parametrize(
    ("suspects", "words"),
    [
        ([5], "--limit '!node005'"),
        ([19, 37, 40, 49, 64], "--limit '!node[019,037,040,049,064]'"),
        (range(1, 80, 2), "--data smoke.exclude=suspects"),
    ],
)
def test_the_next_command_leaves_every_suspect_out(suspects: Sequence[int], words: str) -> None:
    names = [f"node{number:03}" for number in range(1, 513)]
    record = RunRecord(run_id="r", started_at="x", inventory="rack.py", desired_digest="0", verdict=Verdict.FAIL)
    record.nodes = [RunNode(name=name, verdict=Verdict.OK, part="trained") for name in names]
    found = [Suspect(kind="node", nodes=(names[n - 1],), trainings=(), probability=1.0) for n in suspects]
    record.isolation = Isolation.model_construct(result=Result.model_construct(suspects=found))
    assert next_command(record) == f"shakedown run rack.py {words}"
    if option := re.search(r"--limit '(\S+)'", words):
        assert set(names) - set(select([option[1]], names)) == {names[n - 1] for n in suspects}


def test_a_command_is_not_cut_on_a_screen() -> None:
    nodes = f"node[{','.join(f'{number:03}' for number in range(1, 80, 2))}]"
    steps = [f"  then: shakedown run rack.py --limit '{nodes}'", f"  next: pyinfra rack.py deploy/x.py --limit {nodes}"]
    shown = "\n".join(fitted(["verdict: fail", *steps, f"  excluded: {nodes}", "report: r"], 100))
    assert shown.count(nodes) == 2 and shown.count("...") == 1
