"""Each node by itself: which jobs there are, what each is judged by, and what the record says of it."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import gevent
import pytest
from click.testing import CliRunner
from pyinfra.api import Config, Inventory, State
from pyinfra.api.exceptions import PyinfraError
from pyinfra.context import ctx_state

from shakedown.checks.examination import Examination, Reading
from shakedown.cli import main
from shakedown.desired.layers import HostLayers, Layer
from shakedown.desired.models import DesiredState
from shakedown.desired.problems import DesiredStateError
from shakedown.evidence.results import JobResult, NodeResult
from shakedown.gates import Gate
from shakedown.jobs.launch import Job, LaunchPlan, job_name
from shakedown.jobs.plan import PlanError
from shakedown.logs.iterations import Iteration
from shakedown.logs.kept_logs import KeptLog, LogFile, LogQuota
from shakedown.report import outcomes, terminal
from shakedown.report.failure import gate_lines
from shakedown.runner import stages, training
from shakedown.runner.features import resolve
from shakedown.runner.session import Session, enter, run_nodes
from shakedown.runner.training import jobs_of, plan_of, plans_of
from shakedown.runs.directory import Evidence, JobRecord, RunDirectory, RunRecord, new_run_id, now
from shakedown.runs.judging import judge_run
from shakedown.state.findings import Verdict
from shakedown.state.node import NodeState
from tests.cvs_files import DISTRIBUTED, FILLED, ONE, SINGLE, copy_of, imported_nodes
from tests.states import GIB, bare, desired, healthy, with_

LOGS = Path(__file__).parents[1] / "data/logs"
RUN = "20261121T060000-abcdef"


@pytest.fixture(autouse=True)
def token(monkeypatch: pytest.MonkeyPatch) -> None:
    """CVS' files name a token's file that this machine has not; an exported one is used instead."""
    monkeypatch.setenv("HF_TOKEN", "hf_exported")


def rack(nodes: int = 3, changes: dict[str, dict[str, Any]] | None = None, **smoke: Any) -> Examination:
    """Healthy machines without GPUs, examined; `changes` are to one node's own smoke section."""
    names = [f"node{number + 1:02d}" for number in range(nodes)]
    own = {
        name: desired("cpu", None, smoke={"recipe": "gpt-small", **smoke, **(changes or {}).get(name, {})})
        for name in names
    }
    return examined(
        own, {name: with_(bare(index + 1), {"memory.available_bytes": 8 * GIB}) for index, name in enumerate(names)}
    )


def examined(own: dict[str, DesiredState], states: dict[str, NodeState]) -> Examination:
    return Examination(own, readings={name: Reading(state) for name, state in states.items()})


def test_a_scope_is_one_or_both_in_the_order_in_which_they_are_of_use() -> None:
    def scope(**smoke: Any) -> list[str]:
        section = desired("cpu", None, smoke={"recipe": "gpt-small", **smoke}).smoke
        assert section is not None
        return list(section.scope)

    assert scope() == ["together"]
    assert scope(scope="each") == scope(scope=["each"]) == ["each"]
    assert scope(scope=["each", "together"]) == ["each", "together"]


def resolved(gpu: str = "cpu", nodes: int = 1, **smoke: Any) -> None:
    """Raises DesiredStateError for what is refused before the first connection."""
    layer = Layer("site", {"gpu": gpu, "images": {"megatron": "rocm/megatron-lm:v25.4"}, "smoke": smoke})
    resolve([HostLayers(f"n{number}", [layer], user="root") for number in range(nodes)], whole=True, to_train=True)


@pytest.mark.parametrize("wrong", ["all", [], ["together", "each"], ["each", "each"], ["each", "alone"], 1, {"a": 1}])
def test_any_other_scope_is_refused_by_its_name(wrong: Any) -> None:
    with pytest.raises(DesiredStateError) as error:
        resolved(recipe="gpt-small", ranks_per_node=1, scope=wrong)
    assert "smoke.scope" in str(error.value) and "each" in str(error.value)


def test_there_is_a_job_for_each_node_and_then_one_over_all() -> None:
    assert jobs_of(rack()) == [None]
    assert jobs_of(rack(scope="each")) == ["node01", "node02", "node03"]
    assert jobs_of(rack(scope=["each", "together"])) == ["node01", "node02", "node03", None]
    assert jobs_of(Examination({})) == [None], "a plan that says what is missing, and not no plan"


def plan(examination: Examination, alone: str | None = None, **excluded: str) -> LaunchPlan:
    return plan_of(examination, RUN, excluded, alone)


def test_a_node_by_itself_has_an_id_and_a_port_of_its_own_and_stays_on_the_node() -> None:
    examination = rack(scope=["each", "together"], min_nodes=2)
    alone = [plan(examination, name) for name in examination.desired]
    together = plan(examination)
    everyone = [*alone, together]
    assert len({each.run_id for each in everyone}) == 4 and all(each.run_id.startswith(RUN) for each in everyone)
    assert len({each.master_port for each in everyone}) == 4
    assert [[node.name for node in each.nodes] for each in alone] == [["node01"], ["node02"], ["node03"]]
    assert {each.master_address for each in alone} == {"127.0.0.1"}
    assert {each.world_size for each in alone} == {together.world_size // 3}
    assert not any(each.missing for each in alone)


def test_a_node_by_itself_waits_for_nobody() -> None:
    examination = rack(scope="each")
    alone = plan(examination, "node02", node01="down")
    assert [node.name for node in alone.nodes] == ["node02"] and alone.missing == {}
    with pytest.raises(PlanError, match=r"node01.*down"):
        plan(examination, "node01", node01="down")
    with pytest.raises(PlanError, match="min_nodes is not set"):
        plan(examination, node01="down")


def test_fewer_nodes_than_there_must_be_are_refused_for_each_of_them() -> None:
    with pytest.raises(PlanError, match="at least seen_nodes = 4"):
        plan(rack(scope="each", seen_nodes=4), "node01")


def test_nodes_by_themselves_may_differ_and_nodes_together_may_not() -> None:
    examination = rack(changes={"node02": {"scope": ["each", "together"], "iterations": 7}}, iterations=9)
    assert jobs_of(examination) == ["node02", None]
    assert plan(examination, "node02").iterations == 7
    with pytest.raises(PlanError) as error:
        plan(examination)
    assert "smoke.scope" in str(error.value) and "smoke.iterations" in str(error.value)


def test_one_job_that_cannot_be_planned_leaves_the_others() -> None:
    examination = rack(changes={"node02": {"ranks_per_node": 400}}, scope="each")
    plans, errors = plans_of(examination)
    assert (list(plans), list(errors.values())) == (["each/node01", "each/node03"], [["each/node02"]])


def test_what_stands_in_the_way_of_many_is_told_once() -> None:
    wrong = {"num_layers": 3, "pipeline_parallel": 2}
    plans, errors = plans_of(rack(scope="each", ranks_per_node=2, options=wrong))
    assert not plans and list(errors.values()) == [["each/node01", "each/node02", "each/node03"]]


def gpus(nodes: int, recipe: str, **smoke: Any) -> Examination:
    names = [f"node{number + 1:02d}" for number in range(nodes)]
    own = desired(
        "mi300x",
        "thor2",
        images={"megatron": "rocm/megatron-lm:v25.4"},
        smoke={"recipe": recipe, "image": "megatron", **smoke},
    )
    return examined(dict.fromkeys(names, own), {name: healthy(number + 1) for number, name in enumerate(names)})


def test_the_recipes_figures_are_those_for_one_node() -> None:
    examination = gpus(4, "llama3.1-8b-fp8", scope=["each", "together"])
    alone, together = plan(examination, "node03"), plan(examination)
    assert alone.world_size == 8 and together.world_size == 32
    assert alone.expect and alone.expect != together.expect


def test_a_recipe_for_several_nodes_is_refused_by_itself_in_words() -> None:
    examination = gpus(2, "llama3.1-8b-fp8-2nodes", scope=["each", "together"])
    assert len(plan(examination).nodes) == 2
    recipe = {"recipe": "llama3.1-8b-fp8-2nodes", "image": "megatron"}
    with pytest.raises(DesiredStateError, match=r"smoke\.scope = each: expected a recipe for one node"):
        resolved("mi300x", 2, scope=["each", "together"], **recipe)
    resolved("mi300x", 2, **recipe)


def test_the_sites_figures_for_one_node_are_not_used_for_four() -> None:
    examination = gpus(4, "llama3.1-8b-fp8", scope=["each", "together"], expect={"tokens_per_gpu": 1.0}, expect_nodes=1)
    assert plan(examination, "node01").expect["tokens_per_gpu"] == 1.0
    together = plan(examination)
    assert together.expect.get("tokens_per_gpu") != 1.0
    (told,) = [item for item in together.derived if "expect_nodes" in item.why]
    assert told.value == "tokens_per_gpu 1" and "not judged" in told.why


def test_an_index_that_nodes_by_themselves_would_write_together_is_told() -> None:
    nfs = {"mount": "/mnt", "device": "filer:/x", "fstype": "nfs4", "total_bytes": 1, "free_bytes": 1, "network": True}
    disks = [*with_(healthy(), {}).model_dump()["disks"], nfs]
    options = {"MOCK_DATA": 0, "DATA_PATH": "/data/bookcorpus_text_sentence", "DATA_CACHE_PATH": "/cache/index"}

    def warnings(host: str) -> list[str]:
        examination = gpus(2, "llama3.1-8b-fp8", scope="each", options=options, volumes={host: "/cache"})
        shared = {name: Reading(with_(state, {"disks": disks})) for name, state in examination.states.items()}
        found = plan(Examination(examination.desired, readings=shared), "node02").derived
        return [item.value for item in found if item.name == "node02: warning"]

    assert warnings("/mnt/cache") == ["/mnt/cache/index is on filer:/x"]
    assert warnings("/cache") == []


def test_a_cvs_file_for_one_node_is_as_many_jobs_as_there_are_nodes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_exported")
    file = copy_of(tmp_path, SINGLE, {"config.training_iterations": "30", "config.nnodes": "4"})
    own, states = imported_nodes(file, ONE, 4)
    examination = examined(own, states)
    assert jobs_of(examination) == list(own), "never one job over all of them"
    plans = [plan(examination, name) for name in own]
    assert [each.world_size for each in plans] == [8] * 4
    assert {json.dumps(each.expect) for each in plans} == {
        '{"throughput_per_gpu": 380.0, "tokens_per_gpu": 6500.0, "elapsed_time_per_iteration": 12000.0}'
    }


def test_a_cvs_file_for_several_nodes_is_one_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_exported")
    own, states = imported_nodes(copy_of(tmp_path, DISTRIBUTED, FILLED), ONE, 4)
    examination = examined(own, states)
    assert jobs_of(examination) == [None]
    assert plan(examination).world_size == 32


# -- the record -----------------------------------------------------------------------------------------------------


def recorded(folder: Path, logs: dict[str, str]) -> RunDirectory:
    """A run of nodes by themselves, each with one of the logs of tests/data/logs, judged and saved."""
    directory = RunDirectory.create(new_run_id(), folder)
    record = RunRecord(run_id=directory.path.name, started_at=now(), inventory="i.py", desired_digest="0")
    record.finished_at = now()
    evidence = {}
    examination = rack(len(logs), scope="each", iterations=20)
    for name, log in logs.items():
        room = LogFile("leader.log", directory.logs_of_each / name / "leader.log", LogQuota())
        room.write((LOGS / log).read_bytes())
        room.size = room.kept
        kept = room.close()
        path = f"each/{name}/leader.log"
        job = JobRecord(node=name, plan=plan(examination, name), logs={name: [path]})
        evidence[job.name] = Evidence(exit_codes={name: 0}, logs={name: [kept.model_copy(update={"path": path})]})
        record.jobs.append(job)
    record.gates = judge_run(directory, record, evidence)
    directory.save(record, evidence)
    return directory


GOOD = {"node01": "rocm.log", "node02": "rocm.log"}


def test_each_node_is_judged_by_its_own_log(tmp_path: Path) -> None:
    directory = recorded(tmp_path, {**GOOD, "node03": "nan_loss.log"})
    record = directory.load()
    bad = [(gate.job, gate.node, gate.name) for gate in record.gates if gate.verdict != Verdict.OK]
    assert ("each/node03", "node03", "loss_finite") in bad and {node for _, node, _ in bad} == {"node03"}
    assert record.plan is None and record.iterations == [], "there was no job over all nodes"
    assert judge_run(directory, record, directory.load_evidence()) == record.gates


@pytest.mark.parametrize(("third", "code"), [("rocm.log", 0), ("nan_loss.log", 1)])
def test_judge_and_report_show_every_job_offline(tmp_path: Path, third: str, code: int) -> None:
    directory = recorded(tmp_path, {**GOOD, "node03": third})
    result = CliRunner().invoke(main, ["judge", str(directory.path), "--format", "json"])
    assert result.exit_code == code, result.output
    gates = json.loads(result.stdout)["gates"]
    assert {gate["node"] for gate in gates} == {"node01", "node02", "node03"}
    assert {gate["job"] for gate in gates} == {"each/node01", "each/node02", "each/node03"}
    for command in ("report", "judge"):
        shown = CliRunner().invoke(main, [command, str(directory.path)]).output
        assert ("not loss_finite" in shown or "fail: gate loss_finite on node03: " in shown) == bool(code)
        shown = CliRunner().invoke(main, [command, str(directory.path), "--all"]).output
        assert all(name in shown for name in ("node01", "node02", "node03"))


def text(parts: Any) -> str:
    console = terminal.console()
    with console.capture() as capture:
        for part in parts:
            console.print(part)
    return capture.get()


def test_the_table_sets_each_node_beside_the_others_and_lists_no_gate_that_holds(tmp_path: Path) -> None:
    directory = recorded(tmp_path, {**GOOD, "node03": "nan_loss.log"})
    record = directory.load()
    for job, tokens in zip(record.jobs, (10.0, 20.0, 40.0), strict=True):
        job.figures = judged_figures(tokens)
    shown = text(outcomes.judgement(record.gates, record.jobs))
    assert "10 (others 30)" in shown and "20 (others 25)" in shown and "40 (others 15)" in shown
    assert shown.count("exit_codes") == 0 and shown.count("node03") > 1
    wrong = [part[0] for part in gate_lines(record.gates, None)]
    assert "  fail: gate loss_finite on node03: no loss" in wrong[0] and all("node0[12]" not in line for line in wrong)
    closing = list(outcomes.closing(record.gates))
    assert len(closing) == 1 and "2 of 3 passed, not node03" in closing[0]


@pytest.mark.parametrize(("node", "head"), [(None, "figure  "), ("node[01]", "figure of node[01] alone")])
def test_figures_say_whose_they_are(tmp_path: Path, node: str | None, head: str) -> None:
    record = recorded(tmp_path, {"node01": GOOD["node01"]}).load()
    own, figures = record.jobs[0].plan, judged_figures(10.0)
    job = JobRecord(node=node, plan=own, iterations=[Iteration(iteration=1, total_iterations=1)], figures=figures)
    shown = text(outcomes.judgement(record.gates, [job]))
    assert head in shown


def judged_figures(tokens: float) -> Any:
    from shakedown.logs.figures import measure

    lines = [Iteration(iteration=n, total_iterations=6, tokens_per_gpu_per_s=tokens) for n in range(1, 7)]
    return measure(lines)


# -- the deploy -----------------------------------------------------------------------------------------------------


def gate(name: str, verdict: Literal[Verdict.OK, Verdict.FAIL, Verdict.UNKNOWN], node: str | None = None) -> Gate:
    return Gate(name=name, verdict=verdict, job=job_name(node), node=node)


def shortfall(current: Any, node: str) -> str:
    return training.shortfall(current, node)[0]


@pytest.fixture
def current() -> Session:
    """A session over two nodes whose jobs, by themselves and together, have been judged."""
    state = State(Inventory((["node01", "node02"], {})), Config())
    opened = Session(state, rack(2, scope=["each", "together"]))
    opened.examination.judge()
    opened.record = RunRecord(run_id=RUN, started_at=now(), inventory="i.py", desired_digest="0")
    opened.jobs = [
        Job(make_plan=lambda: plan(rack()), log_dir=Path(), node=node) for node in ("node01", "node02", None)
    ]
    opened.record.gates = [gate("exit_codes", Verdict.OK, node) for node in ("node01", "node02", None)]
    return opened


def test_a_node_falls_short_by_its_own_gates_and_those_of_all(current: Session) -> None:
    assert current.record is not None
    assert shortfall(current, "node01") == shortfall(current, "node02") == ""
    current.record.gates.append(gate("loss_finite", Verdict.FAIL, "node02"))
    assert (shortfall(current, "node01"), shortfall(current, "node02")) == ("", "did not hold: loss_finite")
    current.record.gates.append(gate("no_straggler", Verdict.FAIL).model_copy(update={"actual": "node02, node03"}))
    assert training.shortfall(current, "node01") == ("", Verdict.OK), "it names other nodes"
    assert shortfall(current, "node02") == "did not hold: loss_finite, no_straggler"
    current.record.gates.append(gate("counters", Verdict.FAIL))
    assert shortfall(current, "node01") == "did not hold: counters"
    current.exclude("node01", "down", Verdict.FAIL)
    assert shortfall(current, "node01") == "down"
    current.record.gates = []
    assert shortfall(current, "node02"), "nothing was judged, so nothing has passed"


def test_what_is_not_known_is_unknown_wherever_it_is_told(current: Session) -> None:
    """pyinfra fails a host whose job has not passed; that makes no failure of what nobody could see."""
    assert current.record is not None
    current.record.gates.append(gate("counters", Verdict.UNKNOWN))
    current.done.add("judge the run")
    ctx_state.set(current.state)
    enter(current)
    try:
        for host in current.state.inventory:
            current.state.activate_host(host)
            assert stages._conclude(current.state, host) is False
            current.state.fail_hosts({host})
    except PyinfraError:
        pass  # none is left, says pyinfra
    finally:
        ctx_state.reset()
    assert (current.verdict(), current.verdict().exit_code) == (Verdict.UNKNOWN, 4)
    said = list(outcomes.closing(current.record.gates))
    assert "PASSED" in said[0] and "smoke run: [magenta]UNKNOWN[/], 1 of 2 gates passed" in said[1]
    current.record.gates.append(gate("exit_codes", Verdict.FAIL))
    assert "FAILED" in list(outcomes.closing(current.record.gates))[1]


def test_a_run_of_which_a_job_was_never_judged_has_failed(current: Session) -> None:
    assert current.record is not None
    assert current.verdict() == Verdict.OK
    del current.record.gates[1]
    assert current.verdict() == Verdict.FAIL
    current.exclude("node02", "was not reached", Verdict.UNKNOWN)
    assert current.verdict() == Verdict.UNKNOWN, "the job of a node that was left out is not asked for; the node is"
    del current.record.gates[-1]
    assert current.verdict() == Verdict.FAIL


def test_a_node_in_both_jobs_has_both_logs_and_the_last_exit_code(current: Session) -> None:
    assert current.record is not None
    current.directory = RunDirectory(Path("runs/x"))
    for job, code in zip(current.jobs, (0, 3, 1), strict=True):
        names = [job.node] if job.node else ["node01", "node02"]
        job.result = result_of(names, code, current.directory.path / ("each" if job.node else "logs"))
    nodes = {node.name: node for node in run_nodes(current)}
    assert nodes["node01"].exit_code == 1
    assert nodes["node02"].logs == ["each/node02/leader.log", "logs/node02/leader.log"]


def result_of(names: list[str], code: int, folder: Path) -> JobResult:
    at = datetime.now(UTC)
    nodes = [
        NodeResult(name=name, exit_code=code, started_at=at, ended_at=at, kept=[kept(name, folder)], notes=[])
        for name in names
    ]
    return JobResult(
        run_id=RUN, outcome="completed", reason="", first_failure=None, failures=[], nodes=nodes, last_iteration=1,
        started_at=at, finished_at=at,
    )  # fmt: skip


def kept(name: str, folder: Path) -> KeptLog:
    return KeptLog(name="leader.log", path=str(folder / name / "leader.log"), size=0, kept=0, sha256="")


def test_the_plans_of_all_nodes_are_rendered_once_each_and_saved_before_the_first_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHAKEDOWN_RUNS", str(tmp_path))
    names = [f"node{number:02d}" for number in range(1, 7)]
    state = State()
    state.init(Inventory((names, {})), Config())
    state.active_hosts = set(state.inventory)
    current = Session(state, rack(6, scope=["each", "together"]))
    current.examination.judge()
    training.start_run(current)
    rendered, written = [], []
    render, write = training.render, RunDirectory.write
    monkeypatch.setattr(training, "render", lambda plan, job: rendered.append(job) or render(plan, job))
    monkeypatch.setattr(RunDirectory, "write", lambda *to: written.append(to[1]) or write(*to))
    for job in current.jobs:
        job.plan = job.make_plan()
    assert rendered == [f"each/{name}" for name in names] + ["together"] and not written
    gevent.sleep(0)
    assert written.count("run.json") == written.count("plan.txt") == 1 and current.directory is not None
    text = (current.directory.path / "plan.txt").read_text()
    assert text == "\n".join(render(job.plan, job.name) for job in current.directory.load().jobs if job.plan) + "\n"
