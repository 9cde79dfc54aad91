"""What a job died of and where that began: the rule at its edges, over recorded failures, and in a run directory."""

from __future__ import annotations

import functools
import hashlib
import itertools
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from shakedown.catalogue import entries
from shakedown.common.data import read_toml
from shakedown.evidence.diagnosis import words
from shakedown.evidence.diagnosis.model import Diagnosis
from shakedown.evidence.diagnosis.origin import WINDOW_S, _near, decide, first, may_be_echo, parts_of, with_culprit
from shakedown.evidence.diagnosis.signs import known_names, names_in, not_running, of_failure, of_match
from shakedown.evidence.diagnosis.signs import named as names_of_line
from shakedown.evidence.results import Failure, JobResult, NodeClock, NodeResult, Timing
from shakedown.evidence.telemetry import KERNEL_LOG
from shakedown.evidence.telemetry.kernel import kernel_log
from shakedown.gates import Gate, NodeLog, read_log
from shakedown.logs.kept_logs import LEADER, KeptLog, LogFile, LogQuota
from shakedown.logs.signatures import Match
from shakedown.runs.diagnosis import diagnose, of_logs, ranks_left, signs_of
from shakedown.runs.directory import Evidence, JobRecord, RunDirectory, RunRecord
from shakedown.state.findings import Verdict
from tests.nodes import launch_plan

BEGIN = datetime(2026, 9, 24, tzinfo=UTC)
ADDRESSES = {f"10.0.0.{number}": f"node{number}" for number in range(1, 10)}
KILLED = "E torch api.py:874] failed (exitcode: -9) local_rank: 3 (pid: 904) of binary: python"
CLOSED = "RuntimeError: [gloo/transport/tcp/pair.cc:553] Connection closed by peer [10.0.0.{}]:61583"

NAMES = read_toml("shakedown.catalogue", "names.toml")
KNOWN = {**ADDRESSES, **{name: name for name in ADDRESSES.values()}}


def failure(kind: str = "out_of_memory", after_s: float = 0, within_s: float | None = 0.5, **more: Any) -> Failure:
    """A failure that was there by `after_s`, and at most `within_s` earlier (None: nobody knows)."""
    at = BEGIN + timedelta(seconds=after_s)
    since = None if within_s is None else at - timedelta(seconds=within_s)
    return Failure(**{"node": "node1", "kind": kind, "text": "it failed", "at": at, "since": since, **more})


def lost(node: int, peer: int, after_s: float = 0) -> Failure:
    """One that lost the connection to another."""
    return failure("peer_lost", after_s, node=f"node{node}", line=CLOSED.format(peer), line_number=7)


def killed(node: int, after_s: float = 0) -> Failure:
    return failure("killed", after_s, node=f"node{node}", line=KILLED, line_number=9)


def diagnosed(*failures: Failure, running: dict[str, list[str]] | None = None) -> Diagnosis:
    signs = [of_failure(each, f"logs/{each.node}/leader.log", ADDRESSES) for each in failures]
    found = decide([*signs, *not_running(running or {})], "together")
    assert found is not None
    return found


def test_what_begins_within_the_window_may_be_the_cause_and_nothing_later() -> None:
    signs = [
        of_failure(failure(after_s=after, within_s=None, node=f"node{number}"), "x", ADDRESSES)
        for number, after in enumerate((0, WINDOW_S, WINDOW_S + 1))
    ]
    assert [sign.node for sign in _near(signs)] == ["node0", "node1"]


def named(*failures: Failure, running: dict[str, list[str]] | None = None) -> tuple[str, ...]:
    """confidence, name of the cause, and the nodes: those where it began, or that come into question."""
    found = diagnosed(*failures, running=running)
    shared = (f"{len(found.common)} of {found.nodes}",) if found.common else ()
    return found.confidence, found.name, *found.origin, *(f"{node}?" for node in found.among), *shared


@pytest.mark.parametrize(
    "kind",
    ["rank_failed", "collective_timeout", "nccl_remote_error", "peer_lost", "rendezvous", "traceback", "aborted",
     "early exit", "stall", "no start", "timeout", "exit"],
)  # fmt: skip
def test_what_may_follow_from_another_failure(kind: str) -> None:
    assert may_be_echo(failure(kind))


@pytest.mark.parametrize("kind", ["out_of_memory", "killed", "rebooted", "unreachable", "watchdog", "not ready"])
def test_what_is_a_cause(kind: str) -> None:
    assert not may_be_echo(failure(kind))


def test_a_signal_is_a_cause_and_a_plain_exit_may_be_an_echo() -> None:
    assert not may_be_echo(failure("exit", text="the job ended with signal 9"))
    assert may_be_echo(failure("exit", text="the job ended with exit code 1"))


TWO_DIE = [
    failure("rebooted", 1, 1, node="node2"),
    failure("segmentation_fault", 8, node="node1", line_number=3),
]
CASES: dict[str, tuple[list[Failure], tuple[str, ...]]] = {
    "a rank is killed, and the others lose it before torchrun says so": (
        [lost(1, 2), lost(3, 2, 0.1), killed(2, 0.4), failure("rank_failed", 0.5, node="node2"),
         failure("exit", 1, node="node1", text="the job ended with exit code 1")],
        ("certain", "killed", "node2"),
    ),
    "the killed rank's neighbours on its own node say an echo first": (
        [lost(2, 2), lost(1, 2, 0.1), killed(2, 0.4)],
        ("certain", "killed", "node2"),
    ),
    "memory of a GPU is used up on one node": (
        [failure("out_of_memory", node="node2", line_number=3), lost(1, 2, 0.2), lost(3, 2, 0.2)],
        ("certain", "out_of_memory", "node2"),
    ),
    "and on all of them: a common fault": (
        [failure("out_of_memory", at, node=f"node{at + 1}", line_number=3) for at in range(3)],
        ("certain", "out_of_memory", "3 of 3"),
    ),
    "on two of three, and the third lost them": (
        [failure("out_of_memory", at, node=f"node{at + 1}", line_number=3) for at in range(2)] + [lost(3, 1, 1.5)],
        ("certain", "out_of_memory", "2 of 3"),
    ),
    "a node is rebooted, which is noticed late": (
        [lost(1, 2), lost(3, 2, 0.3), failure("rebooted", 9, 10, node="node2")],
        ("certain", "rebooted", "node2"),
    ),
    "a node is cut off, and the others lost it": (
        [lost(1, 2), failure("unreachable", 10, 11, node="node2")],
        ("certain", "unreachable", "node2"),
    ),
    "a node is silent, and nobody else says anything of it": (
        [failure("unreachable", 20, 21, node="node2")],
        ("likely", "unreachable", "node2"),
    ),
    "a library is missing on one node": (
        [failure("library_missing", node="node3", line_number=2), failure("rendezvous", 5, node="node1")],
        ("certain", "library_missing", "node3"),
    ),
    "two nodes die within the clocks' uncertainty of each other": (
        [killed(1), killed(2, 0.3), lost(3, 1, 0.1), lost(3, 2, 0.2)],
        ("undecided", "killed", "node1?", "node2?"),
    ),
    "two nodes die, one for certain after the other": (
        TWO_DIE,
        ("likely", "rebooted", "node2"),
    ),
    "and a third ends with an exit code that nothing explains: the one named may have waited for it": (
        [*TWO_DIE, failure("exit", 9, node="node3", text="the job ended with exit code 1")],
        ("undecided", "rebooted", "node2?", "node3?"),
    ),
    "and a third ends with an exit code after a failure of its own, which explains it": (
        [*TWO_DIE, failure("out_of_memory", 8.5, node="node3", line_number=3),
         failure("exit", 9, node="node3", text="the job ended with exit code 1")],
        ("likely", "rebooted", "node2"),
    ),
    "and a third ends with an exit code after it lost another": (
        [*TWO_DIE, lost(3, 2, 8.5), failure("exit", 9, node="node3", text="the job ended with exit code 1")],
        ("likely", "rebooted", "node2"),
    ),
    "and a third is aborted, of which the process has no exit code": (
        [*TWO_DIE, failure("aborted", 9, node="node3", line_number=3)],
        ("likely", "rebooted", "node2"),
    ),
    "and a third names a failed rank, and no exit code": (
        [*TWO_DIE, failure("rank_failed", 9, node="node3")],
        ("likely", "rebooted", "node2"),
    ),
    "a link between two nodes is cut: each lost the other": (
        [lost(1, 2), lost(2, 1, 0.1)],
        ("undecided", "peer_lost", "node1?", "node2?"),
    ),
    "nothing but echoes, all of one node, which lost none": (
        [lost(1, 2), lost(3, 2, 0.1), failure("rank_failed", 0.3, node="node2")],
        ("likely", "peer_lost", "node2"),
    ),
    "an exception without a signature, which the others follow": (
        [failure("traceback", node="node2", line="ValueError: x", line_number=4), lost(1, 2, 0.2)],
        ("likely", "traceback", "node2"),
    ),
    "one that comes on the same node after an echo is an echo": (
        [lost(1, 2), lost(3, 2), failure("traceback", 0.2, node="node1", line="KeyError: 7", line_number=12)],
        ("likely", "peer_lost", "node2"),
    ),
    "the word of one node names nobody": ([lost(1, 2)], ("undecided", "peer_lost", "node1?", "node2?")),
    "whom others lost says that it lost another": (
        [lost(2, 1), lost(3, 1), lost(1, 4)],
        ("undecided", "peer_lost", "node1?", "node4?"),
    ),
    "different exceptions on all nodes within the uncertainty": (
        [failure("traceback", 0.1 * n, node=f"node{n}", line=f"ValueError: {'abc'[n - 1]}", line_number=4)
         for n in (1, 2, 3)],
        ("undecided", "traceback", "node1?", "node2?", "node3?"),
    ),
    "the same exception on all nodes, whoever was first": (
        [failure("traceback", 3 * n, node=f"node{n}", line=f"[rank{n}]: ValueError: no {n}", line_number=4)
         for n in (1, 2, 3)],
        ("certain", "traceback", "3 of 3"),
    ),
    "all only wait": (
        [failure("collective_timeout", n, node=f"node{n}") for n in (1, 2)],
        ("undecided", "collective_timeout"),
    ),
    "nobody trains on, and nobody shows why": ([failure("stall")], ("undecided", "stall")),
    "a rank came with other sizes, and the one that met it ended": (
        [failure("collective_mismatch", node="node1", line_number=2), lost(2, 1, 0.1),
         failure("aborted", 0.4, node="node1", line_number=5)],
        ("undecided", "collective_mismatch"),
    ),
    "somebody presses Ctrl-C": ([killed(1), failure("interrupted", 1, node=None)], ("certain", "interrupted")),
    "a cause that comes long after the first sign is none": (
        [failure("stall", 0, node="node1"), killed(2, 40)],
        ("undecided", "stall"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_where_it_began(case: str) -> None:
    failures, wanted = CASES[case]
    assert named(*failures) == wanted
    for turned in itertools.islice(itertools.permutations(failures), 0, 120, 7):
        assert named(*turned) == wanted, "the order in which they were told has no part in it"


def test_a_warning_that_a_node_may_have_outlived_names_no_node() -> None:
    names = [entry.name for entry in entries("job") if entry.warns]
    assert len(names) > 5
    for name in names:
        before, behind = (failure(name, at, node="node2") for at in (-5, 8))
        assert named(failure("exit", node="node1"), behind) == ("likely", "exit", "node1"), name
        for warned in (before, behind):
            assert named(warned, lost(1, 4), lost(3, 4)) == ("likely", "peer_lost", "node4"), name


def test_the_better_cause_of_the_node_is_told() -> None:
    signs = [of_failure(killed(2), "logs/node2/leader.log", ADDRESSES), of_failure(lost(1, 2, 0.1))]
    (oom,) = kernel_log(["[ 12.0] Out of memory: Killed process 904 (python) total-vm:1kB\n"])
    found = decide([*signs, of_match(oom, "node2", "logs/node2/kernel.log")])
    assert found is not None and (found.name, found.origin) == ("kernel_out_of_memory", ("node2",))
    assert {sign.name for sign in found.evidence} == {"kernel_out_of_memory", "killed", "peer_lost"}


def test_a_line_of_the_kernel_has_no_time_here_so_it_makes_nobody_certain() -> None:
    (fault,) = kernel_log(["[ 12.0] amdgpu 0000:c1:00.0: amdgpu: GPU reset begin!\n"])
    reset = of_match(fault, "node3", "logs/node3/kernel.log")
    found = decide([of_failure(failure("collective_timeout")), reset])
    assert found is not None and (found.confidence, found.name, found.origin) == ("likely", "gpu_reset", ("node3",))
    both = decide([of_failure(killed(2)), reset])
    assert both is not None and (both.confidence, both.origin, both.among) == ("undecided", (), ("node2", "node3"))


@pytest.mark.parametrize("state", ["T", "t", "D"])
def test_a_process_that_did_not_run_names_its_node(state: str) -> None:
    running = {"node1": ["1 python3 (S)"], "node2": ["3 python3 (S)", f"4 python3 ({state})"], "c": ["5 (T) x (S)"]}
    assert named(failure("stall"), running=running) == ("likely", "not running", "node2")
    found = with_culprit(failure("stall"), running.items())
    assert (found.node, found.text) == ("node2", f"it failed; on node2 this process did not run: 4 python3 ({state})")
    running["c"] = ["6 y (T)"]
    assert named(failure("stall"), running=running) == ("undecided", "not running", "c?", "node2?")
    assert with_culprit(failure("no start"), running.items()).node is None
    assert with_culprit(failure("timeout"), running.items()) == failure("timeout")


def test_the_failure_that_a_job_is_stopped_for_is_the_diagnosis() -> None:
    echo, cause = lost(1, 2), killed(2, 0.4)
    assert first([echo, cause], ADDRESSES) is cause
    assert first([echo, failure("exit", 1)], ADDRESSES) is echo
    same = [failure("stall"), failure("stall")]
    assert first(same) is same[0]


@pytest.mark.parametrize("nodes", [2, 64, 512])
def test_the_ranks_that_died_of_one_node_are_one_finding(nodes: int) -> None:
    echoes = [
        failure("peer_lost", 0.001 * n, node=f"n{n}", line=CLOSED.format(9), line_number=n) for n in range(nodes - 1)
    ]
    signs = [of_failure(each, None, {"10.0.0.9": "bad"}) for each in [*echoes, failure("killed", 1, node="bad")]]
    found = decide(signs)
    assert found is not None and (found.confidence, found.origin) == ("certain", ("bad",))
    assert (found.echoes, len(found.echoed_by)) == (nodes - 1, nodes - 1)
    assert len(list(words.lines(found))) <= 6


def test_words_say_where_how_sure_and_what_to_do() -> None:
    found = diagnosed(lost(1, 2), killed(2, 0.4))
    head, cause, echo, more, remedy = words.lines(found)
    assert head.startswith("diagnosis: node2 (certain: no other node shows a failure of its own): a rank was killed")
    assert cause == f"  logs/node2/leader.log:9 at 00:00:00: {KILLED}"
    assert "logs/node1/leader.log:7" in echo and more.startswith("  1 further sign on 1 node")
    assert remedy.startswith("  remedy: look for 'Out of memory")
    both = next(words.lines(diagnosed(killed(1), killed(2), lost(3, 1))))
    assert both.startswith("diagnosis: undecided between node1, node2 (the nodes failed too close")
    shared = next(words.lines(diagnosed(*(failure("module_missing", node=f"node{n}", line=TORCH) for n in (1, 2, 3)))))
    assert shared.startswith("diagnosis: 3 of 3 nodes: a Python package") and TORCH in shared
    assert shared.endswith("check the inventory or the image") and "node1" not in shared
    assert next(words.lines(diagnosed(failure("stall")))).startswith("diagnosis: the origin is undecided")
    assert list(words.lines(None)) == []


def test_what_a_line_says_reaches_no_terminal_as_it_stands() -> None:
    line = "\x1b[2Jexitcode: -9 \u202e"
    found = decide([of_match(Match(name="killed", line_number=1, line=line, cause="c", remedy="r"), "n\x07", "f")])
    assert found is not None
    assert not any("\x1b" in each or "\u202e" in each or "\x07" in each for each in words.lines(found))


TORCH = "ModuleNotFoundError: No module named 'torch'"
NODES = ("node1", "node2")
LOGS = {
    "node1": "fine\n[rank0]: Traceback (most recent call last):\n[rank0]: " + CLOSED.format(2) + "\n",
    "node2": f"fine\n{KILLED}\n",
}


@pytest.fixture
def run(tmp_path: Path) -> tuple[RunDirectory, RunRecord]:
    """A run directory of a job over two nodes that has failed, with its logs."""
    directory = RunDirectory(tmp_path)
    for node, text in LOGS.items():
        (tmp_path / "logs" / node).mkdir(parents=True)
        (tmp_path / "logs" / node / "leader.log").write_text(text)
    plan = launch_plan({node: ["true"] for node in NODES})
    gate = Gate(name="ran_to_its_end", verdict=Verdict.FAIL, wanted=0)
    job = JobRecord(plan=plan, logs={node: [f"logs/{node}/leader.log"] for node in NODES})
    record = RunRecord(run_id="r", started_at="", inventory="", desired_digest="", gates=[gate], jobs=[job])
    return directory, record


def test_a_fault_that_each_node_has_alone_names_none_of_them(tmp_path: Path) -> None:
    names = ("node1", "node2", "node3")
    gates = [Gate(name="exit_codes", verdict=Verdict.FAIL, wanted=0, job=f"each/{node}", node=node) for node in names]
    plans = {node: launch_plan({node: ["true"]}) for node in names}
    jobs = [JobRecord(node=node, plan=plans[node]) for node in names]
    record = RunRecord(run_id="r", started_at="", inventory="", desired_digest="", gates=gates, jobs=jobs)
    torch = {f"each/{node}": Evidence(failures=[failure("module_missing", node=node, line=TORCH)]) for node in names}
    found = diagnose(record, torch, RunDirectory(tmp_path))
    assert found is not None and (found.common, found.nodes, found.origin, found.among) == (names, 3, (), ())
    other = Evidence(failures=[failure("killed", node="node1", line=KILLED)])
    found = diagnose(record, {**torch, "each/node1": other}, RunDirectory(tmp_path))
    assert found is not None and (found.common, found.nodes) == (names[1:], 3)
    found = diagnose(record, {"each/node1": other}, RunDirectory(tmp_path))
    assert found is not None and (found.origin, found.common) == (("node1",), ())


def evidence_of(directory: RunDirectory, *failures: Failure) -> dict[str, Evidence]:
    logs = {}
    for node, text in LOGS.items():
        kept = LogFile(LEADER, directory.path / f"{node}.copy", LogQuota())
        kept.write(text.encode())
        kept.size = len(text)
        logs[node] = [kept.close().model_copy(update={"path": f"logs/{node}/leader.log"})]
    return {"together": Evidence(logs=logs, failures=list(failures))}


def test_a_run_has_its_diagnosis_from_what_was_seen_while_it_ran(run: tuple[RunDirectory, RunRecord]) -> None:
    directory, record = run
    evidence = evidence_of(directory, lost(1, 2), killed(2, 0.2))
    found = diagnose(record, evidence, directory)
    assert found is not None and (found.confidence, found.name, found.origin) == ("certain", "killed", ("node2",))
    assert found.evidence[0].place == "logs/node2/leader.log:9" and found.job == "together"
    passed = [record.gates[0].model_copy(update={"verdict": Verdict.OK})]
    assert diagnose(record, evidence, directory, passed) is None


def test_a_run_from_before_that_was_kept_is_read_from_its_logs(run: tuple[RunDirectory, RunRecord]) -> None:
    directory, record = run
    evidence = evidence_of(directory)
    found = diagnose(record, evidence, directory)
    assert found is not None and (found.name, found.origin) == ("killed", ("node2",))
    assert (found.evidence[0].place, found.echoes) == ("logs/node2/leader.log:2", 1)


def test_the_kernel_log_of_a_node_counts_and_a_link_in_its_place_does_not(
    run: tuple[RunDirectory, RunRecord], tmp_path: Path
) -> None:
    directory, record = run
    evidence = evidence_of(directory, killed(2))
    file = tmp_path / "logs/node2/kernel.log"
    file.write_text("[ 9.0] Out of memory: Killed process 904 (python)\n")
    (its,) = evidence.values()
    its.logs["node2"] = [*its.logs.get("node2", []), of_kernel(tmp_path, "node2")]
    found = diagnose(record, evidence, directory)
    assert found is not None and found.name == "kernel_out_of_memory"
    assert found.evidence[0].place == "logs/node2/kernel.log:1"
    file.rename(tmp_path / "elsewhere")
    file.symlink_to(tmp_path / "elsewhere")
    found = diagnose(record, evidence, directory)
    assert found is not None and found.name == "killed"
    file.unlink()
    file.write_text("[ 9.0] Out of memory: Killed process 905 (python)\n")
    found = diagnose(record, evidence, directory)
    assert found is not None and found.name == "killed"
    assert any("kernel.log was changed since" in sign.text for sign in found.evidence), "it is told"


def of_kernel(folder: Path, node: str) -> KeptLog:
    """The kernel's log of a node as the evidence has it."""
    path = f"logs/{node}/kernel.log"
    data = (folder / path).read_bytes()
    digest = hashlib.sha256(data).hexdigest()
    return KeptLog(name=KERNEL_LOG, path=path, size=len(data), kept=len(data), sha256=digest)


@pytest.mark.parametrize(
    ("before_s", "wanted"),
    [
        (1.0, ("certain", "gpu_reset", ("node3",), ())),
        (300.0, ("certain", "gpu_reset", ("node3",), ())),  # the others noticed when their own time limit had passed
        (-30.0, ("undecided", "collective_timeout", (), ())),  # it came long afterwards
    ],
)
def test_a_line_of_the_kernel_has_its_time_by_the_clock_of_the_node(
    tmp_path: Path, before_s: float, wanted: tuple[Any, ...]
) -> None:
    (tmp_path / "logs/node3").mkdir(parents=True)
    line = f"[{5000 - before_s:.6f}] amdgpu 0000:c1:00.0: amdgpu: GPU reset begin!"
    (tmp_path / "logs/node3/kernel.log").write_text(f"# begin monotonic=1.0 wall=1.0 source=kmsg\n{line}\n# end\n")
    clocks = {"node3": NodeClock(offset_s=BEGIN.timestamp() - 5000, uncertainty_s=0.1)}
    kept = {"node3": [of_kernel(tmp_path, "node3")]}
    evidence = Evidence(failures=[failure("collective_timeout")], timing=Timing(clocks=clocks), logs=kept)
    job, logs = JobRecord(logs={"node3": ["logs/node3/leader.log"]}), RunDirectory(tmp_path)
    found = decide(signs_of(job, evidence, logs))
    assert found is not None and (found.confidence, found.name, found.origin, found.among) == wanted
    killed_too = evidence.model_copy(update={"failures": [killed(2)]})
    found = decide(signs_of(job, killed_too, logs))
    assert found is not None
    if before_s == 1.0:
        assert (found.confidence, found.among) == ("undecided", ("node2", "node3")), "torchrun may notice 5 s later"
    else:
        assert found.origin == ("node2",), "what is far from the failure has no part in it"


def test_a_line_of_the_kernel_from_no_day_of_the_calendar_has_no_time(tmp_path: Path) -> None:
    (tmp_path / "logs/node3").mkdir(parents=True)
    (tmp_path / "logs/node3/kernel.log").write_text("[999999999999.0] Out of memory: Killed process 904 (python)\n")
    job, logs = JobRecord(logs={"node3": ["logs/node3/leader.log"]}), RunDirectory(tmp_path)
    clocks = {"node3": NodeClock(offset_s=0, uncertainty_s=0.1)}
    kept = {"node3": [of_kernel(tmp_path, "node3")]}
    (sign,) = signs_of(job, Evidence(timing=Timing(clocks=clocks), logs=kept), logs)
    assert (sign.name, sign.at, sign.since) == ("kernel_out_of_memory", None, None)


@pytest.mark.parametrize("at", ["2026-11-23T04:00:00", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z"])
def test_a_failure_of_no_comparable_time_is_refused_by_whoever_reads_it(at: str) -> None:
    with pytest.raises(ValueError):
        Failure.model_validate({"node": "a", "kind": "stall", "text": "", "at": at})


def test_what_a_node_left_of_a_standstill_is_read_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    names: list[str] = []

    def whole(folder: Path, kept: KeptLog, limit: int) -> bytes:
        names.append(kept.name)
        return b""

    monkeypatch.setattr("shakedown.runs.copies.whole", whole)
    sizes = {"process-1.json": 100, **{f"nccl_{number}": 8 << 20 for number in range(200)}}
    kept = [KeptLog(name=f"hang/{name}", path="x", size=n, kept=n, sha256="") for name, n in sizes.items()]
    assert ranks_left(Evidence(logs={"node1": kept}), RunDirectory(Path("nowhere")), []) == []
    assert names[0] == "hang/process-1.json" and len(names) == 8


@pytest.mark.parametrize(
    ("failures", "origin", "why"),
    [
        ([failure("kfd_no_access", node="node1")], ("node1",), "no other node shows a failure of its own"),
        ([failure("kfd_no_access", node=f"node{at}") for at in (1, 2)], ("node1", "node2"), "all of these nodes show"),
        ([failure("kfd_no_access", node="node1"), failure("rebooted", 9, node="node2")], ("node1",), "failed first"),
    ],
)
def test_a_diagnosis_says_what_decided(failures: list[Failure], origin: tuple[str, ...], why: str) -> None:
    found = decide([of_failure(one, addresses=ADDRESSES) for one in failures], nodes=list(ADDRESSES.values()))
    assert found is not None and found.origin == origin and why in found.why


def test_of_logs_from_anywhere_nobody_knows_whose_was_first() -> None:
    logs = {name: read_log([text]) for name, text in LOGS.items()}
    found = of_logs(logs)
    assert found is not None and (found.name, found.origin) == ("killed", ("node2",))
    twice = of_logs({"a": logs["node2"], "b": logs["node2"]})
    assert twice is not None and (twice.common, twice.nodes, twice.origin) == (("a", "b"), 2, ())
    assert of_logs({"a": read_log(["fine\n"])}) is None


TRACE = 'Traceback (most recent call last):\n  File "train.py", line 40, in step\n'
WAITING = [
    "[rank1]:[E ProcessGroupNCCL.cpp:632] [Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7)",
    TRACE + "torch.distributed.DistStoreError: Socket Timeout",
    TRACE + "RuntimeError: ncclUniqueId from [0] via key '0', but store->get('0') got error: Socket Timeout",
    TRACE + "BrokenPipeError: [Errno 32] Broken pipe",
    TRACE + "ConnectionResetError: [Errno 104] Connection reset by peer",
    TRACE + "ConnectionRefusedError: [Errno 111] Connection refused",
    TRACE + "TimeoutError: [Errno 110] Connection timed out",
    TRACE + "socket.timeout: timed out",
    TRACE + "EOFError",
    TRACE + "RuntimeError: Connection lost to rank 0",
    TRACE + "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:2251, unhandled system error\n"
    "Last error:\nsocketStartConnect: Connect to 10.0.0.7<50055> failed : Connection refused",
    TRACE + "torch.distributed.DistNetworkError: The client socket has timed out after 600000ms while trying to connect"
    " to (10.0.0.7, 29500).",
    TRACE + CLOSED.format(7),
    TRACE + "RuntimeError: the peer is gone",
    "E torch api.py:869] failed (exitcode: -6) local_rank: 0 (pid: 904) of binary: python",
    "srun: error: node2: task 1: Killed",
    "srun: Job step aborted: Waiting up to 32 seconds for job step to finish.\nKilled",
    "slurmstepd: error: *** STEP 4242.0 ON node0 CANCELLED AT 2026-11-24T09:43:55 ***",
    "mpirun noticed that process rank 2 with PID 811 on node node2 exited on signal 9 (Killed).",
    "MPI_ABORT was invoked on rank 2 in communicator MPI_COMM_WORLD",
    "[1700000000.123456] [node9:811  :0]  ucp_ep.c:1500 UCX  ERROR ep 0x7f: error 'Connection reset by remote peer'",
    "ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.",
    TRACE
    + "RuntimeError: Gloo connectFullMesh failed with [../third_party/gloo/gloo/transport/tcp/pair.cc:144] no error",
    TRACE + "OSError: [Errno 107] Transport endpoint is not connected",
    TRACE + "EOFError: Ran out of input",
    TRACE + "RuntimeError: cannot go on without rank 2",
    TRACE + "KeyError: 'rank2'",
    TRACE
    + "ConnectionResetError: [Errno 104] Connection reset by peer\n\nThe above exception was the direct cause of the"
    " following exception:\n\n" + TRACE + "RuntimeError: cannot save metrics",
    "free(): invalid pointer",
]
CULPRITS = {
    "unknown": "xpu core 7 went out for lunch\n",
    "unknown, with an exit code": "xpu core 7 went out for lunch\n"
    "E torch api.py:869] failed (exitcode: 1) local_rank: 0 (pid: 904) of binary: python\n",
    "unknown, and the launcher's end": "xpu core 7 went out\nsrun: error: node2: task 2: Exited with exit code 1\n",
    "unknown, behind the last iteration": " [2026-09-24 09:43:42] iteration 5/ 5 | elapsed time per iteration (ms):"
    " 9.5 | lm loss: 1.2E+01 |\nERROR: xpu core 7 went out for lunch\n",
    "empty": "",
    "cut": "fine",
    "missing": None,
    "like an echo": TRACE + "RuntimeError: Socket Timeout\n",
}


@pytest.mark.parametrize("waiting", WAITING, ids=lambda text: text.splitlines()[-1][:40])
def test_who_waits_for_a_node_with_an_unknown_failure_is_not_named(waiting: str) -> None:
    culprit = read_log(["fine\n", "xpu core 7 went out for lunch\n"])
    found = of_logs({"culprit.log": culprit, "waits.log": read_log([f"fine\n{waiting}\n"])})
    assert found is not None and (found.confidence, found.origin, found.common) == ("undecided", (), ())


@functools.cache
def log_of(text: str) -> NodeLog:
    """What is read once for all cases that have it."""
    return read_log([text])


@pytest.mark.parametrize("waiting", WAITING, ids=lambda text: text.splitlines()[-1][:40])
def test_no_node_of_several_that_wait_is_named(waiting: str) -> None:
    """Whatever the log of the culprit, the third of four, shows."""
    for what, text in CULPRITS.items():
        for others in ([waiting] * 3, [waiting, WAITING[0], WAITING[1]]):
            logs = {f"{n}.log": log_of(f"fine\n{each}\n") for n, each in zip((0, 1, 3), others, strict=True)}
            logs |= {} if text is None else {"2.log": log_of(text)}
            found = of_logs(logs, 4)
            assert found is not None
            if what == "like an echo" and found.name == "killed":
                continue  # of all that is shown, it says the most
            assert found.confidence == "undecided" or found.common or found.origin == ("2.log",), (what, found)
            assert not set(found.common) or len(found.common) == 4, (what, found)


OPENED = "n1:8:9 [0] misc/ibvwrap.cc:212 NCCL WARN Call to ibv_open_device failed\n"


@pytest.mark.parametrize("survived", [OPENED, TRACE + "ModuleNotFoundError: No module named 'apex'\n"])
def test_a_node_that_survived_a_fault_before_the_training_is_not_named_for_it(survived: str) -> None:
    trains = " [2026-09-24 09:43:42] iteration 1/ 5 | elapsed time per iteration (ms): 9.5 | lm loss: 1.2E+01 |\n"
    logs = {"0.log": f"{survived}{WAITING[0]}\n", "1.log": "xpu core 7 went out\n", "2.log": f"{trains}{WAITING[0]}\n"}
    found = of_logs({name: read_log([text]) for name, text in logs.items()}, 3)
    assert found is not None and (found.confidence, found.origin) == ("undecided", ())
    never = of_logs({name: read_log([text.replace(trains, "")]) for name, text in logs.items()}, 3)
    assert never is not None and never.origin == ("0.log",)


def test_what_only_the_node_itself_can_have_is_named_beside_a_log_that_explains_nothing() -> None:
    found = of_logs({"a.log": read_log(["fine\n"]), "b.log": read_log([TRACE, TORCH, "\n"])})
    assert found is not None and (found.confidence, found.origin) == ("certain", ("b.log",))


def test_a_log_with_the_last_iteration_of_the_job_leaves_nothing_open() -> None:
    line = " [2026-09-24 09:43:42] iteration {}/ 5 | elapsed time per iteration (ms): 9.5 | lm loss: 1.2E+01 |\n"
    trained = [line.format(number) for number in range(1, 6)]
    killed = read_log(["fine\n", KILLED + "\n"])
    found = of_logs({"a.log": read_log(trained), "b.log": killed})
    assert found is not None and (found.confidence, found.origin) == ("likely", ("b.log",))
    found = of_logs({"a.log": read_log(trained[:4]), "b.log": killed})
    assert found is not None and (found.confidence, found.among) == ("undecided", ("a.log", "b.log"))


@pytest.mark.parametrize(
    ("line", "accused"),
    [
        (CLOSED.format(2), ("node2",)),
        (CLOSED.format(1), ()),
        ("socketStartConnect: Connect to 10.0.0.2<50055> failed : Connection refused", ("node2",)),
        ("socketProgress: Connection closed by remote peer node2<45678>", ("node2",)),
        ("The client socket has timed out after 600000ms while trying to connect to (node2, 29500).", ("node2",)),
        ("recvValue failed on SocketImpl(fd=7, addr=[node1]:40012, remote=[node2]:29500)", ("node2",)),
        ("remote=[::ffff:10.0.0.2]:29500): Connection reset by peer", ("node2",)),
        ("node1:811:911 [0] NCCL WARN Call to recv from 10.0.0.2<4242> failed : Broken pipe", ("node2",)),
        ("the version is 10.0.0.25, of node22:1 and my-node2", ()),
        ("connect [fd00::2]:29500: Connection refused", ("node2",)),
        ("Connect to fd00::2<50055> failed : Connection refused", ("node2",)),
        ("status=12 (Recv) localGid ::ffff:10.0.0.1 remoteGids::ffff:10.0.0.2 hca bnxt_re0", ("node2",)),
        ("rgid 0000:0000:0000:0000:0000:ffff:0a00:0002", ("node2",)),
        ("Connect to node2.rack.example<4567> failed", ("node2",)),
        ("trying to connect to (NODE2, 29500)", ("node2",)),
        ("Connect to node10:29500 failed", ("node10",)),
        ("Connect to node10.rack.example:29500 failed", ("node10",)),
        ("Connect to 10.9.9.9<4567> failed", ()),
        ("Connect to 192.168.0.1<4567> failed", ()),  # two nodes have it
        ("Connect to shared:4567 failed", ()),
        ("Connect to 127.0.0.1<4567> failed", ()),
        ("connect [::1]:35719: Connection refused", ()),
        ("at 09:43:42, c10::Error of 0000:c1:00.0 aa:bb:cc:dd:ee:ff", ()),
        ("[1700000000.123456] [node3:811  :0] tcp_ep.c:1201 UCX  ERROR recv failed: reset by 10.0.0.2", ("node2",)),
        ("[node3:00811] *** Process received signal ***", ()),
        *((line, ("node2",)) for form in NAMES["launcher"] for line in form["shows"]),
        *((line, ()) for form in NAMES["speaker"] for line in form["shows"]),
    ],
)
def test_a_line_accuses_whom_it_names_and_never_the_speaker(line: str, accused: tuple[str, ...]) -> None:
    pairs = [*ADDRESSES.items(), *((node, node) for node in ADDRESSES.values()), ("fd00::2", "node2")]
    pairs = [pair for pair in pairs if pair[0] != "10.0.0.7"] + [("node10.rack.example", "node10")]
    twice = [(name, node) for name in ("192.168.0.1", "shared", "127.0.0.1", "::1") for node in ("node2", "node3")]
    assert names_of_line(line, known_names([*pairs, *twice, ("127.0.0.1", "node4")]), "node1") == accused


def test_a_job_knows_its_nodes_by_all_their_names() -> None:
    plan = launch_plan({"a": ["true"], "b": ["true"]})
    nodes = [node.model_copy(update={"names": [f"gpu-{node.name}", "172.17.0.1", f"fd00::{n}"]})
             for n, node in enumerate(plan.nodes, 1)]  # fmt: skip
    names = names_in(nodes)
    assert names == {"a": "a", "b": "b", "gpu-a": "a", "gpu-b": "b", "fd00::1": "a", "fd00::2": "b"}


def test_an_exception_that_names_another_node_is_no_fault_of_the_one_that_has_it() -> None:
    line = "RuntimeError: nothing came from 10.0.0.2:4242"
    one = failure("traceback", node="node1", line=line, line_number=4)
    assert named(one) == ("undecided", "traceback", "node1?", "node2?")
    assert named(one, failure("traceback", 0.1, node="node3", line=line, line_number=4)) == (
        "likely", "traceback", "node2",
    )  # fmt: skip


def test_an_exception_beside_an_echo_that_may_be_older_is_undecided() -> None:
    mine = failure("traceback", 5, node="node1", line="ValueError: x", line_number=4)
    lost = failure("peer_lost", 5.2, node="node2", line="RuntimeError: Connection reset by peer", line_number=4)
    assert named(mine, lost) == ("undecided", "traceback", "node1?", "node2?")
    assert named(mine, lost.model_copy(update={"since": mine.at})) == ("likely", "traceback", "node1")


def test_who_lost_another_after_its_own_failure_is_where_it_began() -> None:
    left = failure("exit", 1, node="node2", text="the job ended with exit code 1")
    assert named(left, lost(2, 1, 6)) == ("likely", "exit", "node2")
    assert named(left, lost(2, 1, 0))[0] == "undecided", "it had lost the other before"


def test_who_only_ended_early_has_lost_no_node() -> None:
    mine = failure("traceback", 5, node="node1", line="ValueError: x", line_number=4)
    assert named(mine, failure("early exit", 5.2, node="node2")) == ("likely", "traceback", "node1")


KILLED_ON_NODE1 = {"name": "killed", "cause": "a rank was killed", "remedy": "", "why": "", "job": "together"}


@pytest.mark.parametrize(
    ("found", "node", "verdict", "text"),
    [
        ({"origin": ("node1",)}, {}, Verdict.FAIL, "failed: a rank was killed"),
        ({"common": ("node1", "node2")}, {}, Verdict.FAIL, "failed: a rank was killed"),
        ({"origin": ("node1",), "confidence": "likely"}, {}, Verdict.UNKNOWN, "failed: a rank was killed"),
        ({"origin": ("node2",)}, {}, Verdict.OK, "ended with 1 after the failure began on node2"),
        ({"origin": ("node1",), "job": "each/node2"}, {}, Verdict.UNKNOWN, "ended with 1"),
        ({"among": ("node1", "node2"), "confidence": "undecided"}, {}, Verdict.UNKNOWN, "ended with 1"),
        (None, {}, Verdict.UNKNOWN, "ended with 1"),
        ({"origin": ("node2",)}, {"exit_code": 0}, Verdict.OK, "ended with 0"),
        ({"origin": ("node2",)}, {"exit_code": None}, Verdict.UNKNOWN, "its end is not known"),
        ({"origin": ("node2",)}, {"stopped": True}, Verdict.OK, "stopped by the controller"),
        ({"confidence": "undecided"}, {"stopped": True}, Verdict.UNKNOWN, "stopped by the controller"),
        (None, {"stopped": True}, Verdict.UNKNOWN, "stopped by the controller"),
        (None, {"started_at": None, "exit_code": None}, Verdict.OK, "not started"),
    ],
)
def test_the_part_of_a_node_in_a_job_that_failed(
    found: dict[str, Any] | None, node: dict[str, Any], verdict: Verdict, text: str
) -> None:
    part: dict[str, Any] = {"exit_code": 1, "started_at": BEGIN, "ended_at": BEGIN, "kept": [], "notes": [], **node}
    whole: dict[str, Any] = {"run_id": "r", "reason": "", "first_failure": None, "failures": [], "last_iteration": None}
    whole |= {"started_at": BEGIN, "finished_at": BEGIN, "nodes": [NodeResult(name="node1", **part)]}
    diagnosis = None if found is None else Diagnosis(**{"confidence": "certain", **KILLED_ON_NODE1, **found})
    failed = JobResult(outcome="failed", **whole)
    assert parts_of([("together", failed)], diagnosis) == {"node1": (verdict, text)}
    assert parts_of([("together", JobResult(outcome="completed", **whole))], diagnosis) == {}


def test_the_worst_part_of_a_node_in_several_jobs_is_its_part_and_of_equals_the_first() -> None:
    def failed(**node: Any) -> tuple[str, JobResult]:
        part = {"exit_code": 1, "started_at": BEGIN, "ended_at": BEGIN, "kept": [], "notes": [], **node}
        whole: dict[str, Any] = {"run_id": "r", "reason": "", "first_failure": None, "failures": []}
        whole |= {"last_iteration": None, "started_at": BEGIN, "finished_at": BEGIN}
        return "job", JobResult(outcome="failed", nodes=[NodeResult(name="node1", **part)], **whole)

    unknown, ok = failed(), failed(exit_code=0)
    for jobs in ([unknown, ok], [ok, unknown], [unknown, failed(exit_code=7)]):
        assert parts_of(jobs, None) == {"node1": (Verdict.UNKNOWN, "ended with 1")}


def test_a_node_that_lost_an_unnamed_one_is_not_named_by_the_others() -> None:
    waits = failure("store_timeout", 0.3, node="node2", line="RuntimeError: Socket Timeout", line_number=3)
    assert named(lost(1, 2), lost(3, 2, 0.1), waits)[0] == "undecided"


def test_a_start_that_was_refused_is_reported_without_a_diagnosis() -> None:
    busy = failure("busy", node="node2")
    for shown in ([busy], [busy, failure("not ready", 1)], [failure("not ready"), busy]):
        signs = [of_failure(each, f"logs/{each.node}/leader.log", ADDRESSES) for each in shown]
        assert decide(signs, "together", ["node1", "node2"]) is None
        assert first(shown, ADDRESSES, ["node1", "node2"]) is busy, "the job is stopped for it all the same"


@pytest.mark.parametrize(
    "line",
    [
        "(RayTrainWorker pid=41, ip=10.0.0.1) torch.OutOfMemoryError: HIP out of memory. Tried to allocate 1.00 GiB",
        "slurmstepd: error: Detected 1 oom_kill event in StepId=7.0 on node01.",
        "node01: torch.OutOfMemoryError: HIP out of memory. Tried to allocate 2.00 GiB. GPU 0 has 192 GiB",
        "node01:41:77 [0] NCCL WARN Call to ibv_reg_mr failed with error Cannot allocate memory",
    ],
)
def test_a_line_that_a_node_repeats_of_another_one_is_no_failure_of_its_own(line: str) -> None:
    """A driver's log holds what its workers print: one of them must not have the driver's node drained."""
    addresses = {"node01": "node01", "10.0.0.1": "node01", "node02": "node02", "10.0.0.2": "node02"}

    def decided(node: str) -> Diagnosis:
        signs = [of_match(match, node, "leader.log", addresses) for match in read_log([line.encode()]).failures]
        found = decide(signs, nodes=["node01", "node02", "node03"])
        assert found is not None
        return found

    by_another, by_itself = decided("node02"), decided("node01")
    assert (by_another.confidence, by_another.origin) == ("undecided", ())
    if "ip=" in line:
        of_logs_alone = of_logs({"node02": read_log([line]), "node03": read_log(["fine"])})
        assert of_logs_alone is not None and of_logs_alone.origin == (), "nobody says whose address that is"
    assert (by_itself.confidence, by_itself.origin) == ("certain", ("node01",))


MERGED = [f"node{number:02d}: fine\n" for number in range(1, 5)]
OWN_FAULT = "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 2.00 GiB\n"


def test_in_a_log_with_the_lines_of_several_hosts_a_host_is_named_and_not_the_log() -> None:
    lost = ["node01: Traceback (most recent call last):\n", f"node01: {CLOSED.format(2)}\n"]
    for logs in (
        {"train.log": [*MERGED, f"node02: {OWN_FAULT}", *lost]},
        {"train.log": [*MERGED, f"node02: {OWN_FAULT}"], "other.log": ["fine\n"]},
    ):
        found = of_logs({name: read_log(lines) for name, lines in logs.items()})
        assert found is not None and (found.confidence, found.origin) == ("certain", ("node02",))
    missing = ["Traceback (most recent call last):\n", "ModuleNotFoundError: No module named 'torch'\n"]
    everywhere = [f"node{number:02d}: {line}" for number in range(1, 5) for line in missing]
    shared = of_logs({"train.log": read_log([*MERGED, *everywhere])})
    assert shared is not None and (shared.origin, len(shared.common)) == ((), 4), "a common fault is no node's"
    for form in ("10.0.0.{}", "gpu-node{}.site", "trainer-{}", "tp-rack{}"):
        lines = [*(f"{form.format(n)}: fine\n" for n in "123"), f"{form.format(2)}: {OWN_FAULT}"]
        hosts = of_logs({"train.log": read_log(lines)})
        assert hosts is not None and hosts.origin == (form.format(2),)
    numbered = ("{}", "rank{}", "GPU-{}", "mlx5_{}", "module.layers.{}", "env{}", "device-{}", "v1.{}.3", "2026-11-{}")
    for labels in (["loading", "model", "trainer"], *([form.format(n) for n in "013"] for form in numbered)):
        lines = [*(f"{word}: fine\n" for word in labels), f"{labels[-1]}: {OWN_FAULT}"]
        plain = of_logs({"train.log": read_log(lines)})
        assert plain is not None and plain.origin == ("train.log",), "what only looks like hosts is none"


def test_the_evidence_is_the_cause_then_what_its_nodes_show_of_their_own_and_then_the_echoes() -> None:
    found = diagnosed(
        failure("out_of_memory", node="node2", line_number=3), lost(2, 3, 0.1), lost(1, 2, 0.2),
        failure("segmentation_fault", 0.3, node="node2", line_number=9),
    )  # fmt: skip
    assert [(sign.node, sign.name) for sign in found.evidence] == [
        ("node2", "out_of_memory"), ("node2", "segmentation_fault"), ("node2", "peer_lost"), ("node1", "peer_lost"),
    ]  # fmt: skip
    assert (found.echoes, found.echoed_by) == (2, ("node1", "node2"))


@pytest.mark.parametrize(
    ("line", "node", "role", "blames"),
    [
        ("node2: torch.OutOfMemoryError: HIP out of memory.", "node1", "echo", ("node2",)),
        ("node1: torch.OutOfMemoryError: HIP out of memory.", "node1", "origin", ()),
        ("torch.OutOfMemoryError: HIP out of memory.", "node1", "origin", ()),
        ("node2: torch.OutOfMemoryError: HIP out of memory.", None, "origin", ()),
        (CLOSED.format(2), "node1", "echo", ("node2",)),
    ],
)
def test_a_line_that_another_node_wrote_accuses_that_node(
    line: str, node: str | None, role: str, blames: tuple[str, ...]
) -> None:
    name = "peer_lost" if "gloo" in line else "out_of_memory"
    sign = of_match(Match(name=name, line_number=1, line=line, cause="c", remedy="r"), node, "f", KNOWN)  # type: ignore[arg-type]
    assert (sign.role, sign.blames) == (role, blames)
