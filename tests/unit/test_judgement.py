"""All gates over one job: what its plan says of the transport, and logs that are not there or not whole."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from shakedown.gates import Gate, NodeLog, judgement, read_log
from shakedown.gates.job_end import logs_complete
from shakedown.gates.judge import wants_rdma
from shakedown.gates.judgement import judge
from shakedown.gates.observed import JobEnd, LogCopies
from shakedown.jobs.launch import LaunchPlan
from shakedown.logs.nccl_debug import quietest
from shakedown.state.findings import Verdict
from tests.plans import rack

LOGS = Path(__file__).parents[1] / "data/logs"
OK, FAIL, UNKNOWN = Verdict.OK, Verdict.FAIL, Verdict.UNKNOWN
TCP = NodeLog(lines=1, rccl=read_log(["x NCCL INFO NET/Socket : Using [0]eth0\n"]).rccl)


def plan(nodes: int = 2, hca: list[bool] | None = None, **environment: str) -> LaunchPlan:
    """Of nodes with RDMA devices, but where `hca` is False; `environment` goes to the first."""
    made = rack("llama3.1-8b-fp8", nodes, iterations=20)
    changed = []
    for rank, node in enumerate(made.nodes):
        more: dict[str, Any] = {"environment": node.environment | environment} if rank == 0 else {}
        if hca is not None and not hca[rank]:
            more["hca"] = []
        changed.append(node.model_copy(update=more))
    return made.model_copy(update={"nodes": changed, "expect": {}})


@pytest.mark.parametrize(
    ("given", "rdma"),
    [
        ({}, True),
        ({"nodes": 1}, False),
        ({"hca": [True, False]}, True),
        ({"hca": [False, True]}, True),
        ({"hca": [False, False]}, False),
        ({"NCCL_IB_DISABLE": "1"}, False),
        ({"NCCL_IB_DISABLE": "0"}, True),
        ({"NCCL_IB_DISABLE": ""}, True),
        ({"NCCL_NET": "Socket"}, False),
        ({"NCCL_NET": "IB"}, True),
    ],
)
def test_whether_a_plan_wants_rdma_and_what_tcp_then_means(given: dict[str, Any], rdma: bool) -> None:
    made = plan(**given)
    assert wants_rdma(made) is rdma
    logs = {made.nodes[-1].name: read_log(LOGS / "rocm.log")}
    logs = {node.name: logs.get(node.name, TCP) for node in made.nodes} | ({} if made.nodes[1:] else {"node01": TCP})
    gates = {gate.name: gate for gate in judge(made, LogCopies(logs), JobEnd(exit_codes={})).gates}
    assert gates["rccl_tuning"].verdict is (FAIL if rdma else OK)


def test_one_node_that_keeps_rccl_s_warnings_back_is_enough_not_to_know() -> None:
    logs: dict[str, NodeLog | None] = {"node01": NodeLog(lines=1), "node02": read_log(LOGS / "rocm.log")}

    def tuning(first: str = "x\n", **environment: str) -> Gate:
        copies = LogCopies(logs | {"node01": read_log([first])})
        judged = judge(plan(**environment), copies, JobEnd(exit_codes={}))
        return next(gate for gate in judged.gates if gate.name == "rccl_tuning")

    assert tuning(NCCL_DEBUG="WARN").verdict is OK, "RCCL's version stands there, and nothing else is expected"
    assert tuning(NCCL_DEBUG="INFO").verdict is UNKNOWN
    assert tuning("n:1:1 [0] NCCL INFO Using network IB\n", NCCL_DEBUG="INFO").verdict is OK
    assert tuning(NCCL_DEBUG="ERROR").verdict is UNKNOWN
    assert tuning(NCCL_DEBUG="ERROR").evidence == "RCCL was silent: NCCL_DEBUG was ERROR"


@pytest.mark.parametrize(
    ("levels", "quiet"),
    [
        (["WARN", "INFO"], "WARN"),
        (["warn", "ERROR"], "ERROR"),
        (["", "WARN"], ""),
        (["WARN", "VERSION", "x"], "VERSION"),
        ([], ""),
    ],
)
def test_the_quietest_level_counts(levels: list[str], quiet: str) -> None:
    assert quietest(levels) == quiet


def test_logs_complete_counts_and_names() -> None:
    good, cut = NodeLog(lines=3), NodeLog(lines=1, incomplete="1 of 2 bytes")
    gate = logs_complete(LogCopies({"a": good, "b": good}))
    assert (gate.verdict, gate.wanted, gate.actual, gate.remedy) == (OK, 2, 2, None)
    assert "6 lines" in gate.evidence
    gate = logs_complete(LogCopies({"a": good, "b": cut, "c": None}))
    assert (gate.verdict, gate.wanted, gate.actual) == (UNKNOWN, 3, 1)
    assert gate.evidence == "b: 1 of 2 bytes; no log of c"
    assert gate.remedy
    assert logs_complete(LogCopies({})).verdict is UNKNOWN
    assert logs_complete(LogCopies({"a": good}, ["setup.log is gone"])).evidence == "setup.log is gone"


def test_a_cut_log_without_lines_leaves_the_gates_on_lines_unknown() -> None:
    made = plan()
    cut = NodeLog(incomplete="cut")
    gates = {
        gate.name: gate for gate in judge(made, LogCopies({"node01": TCP, "node02": cut}), JobEnd(exit_codes={})).gates
    }
    names = ("iterations_complete", "loss_finite", "no_skipped_or_nan", "loss_falling", "no_failure_signature")
    assert {gates[name].verdict for name in names} == {UNKNOWN}
    assert gates["rccl_tuning"].verdict is FAIL, "seen all the same"
    assert gates["no_failure_signature"].evidence == "not in the part that is there: node02: cut"
    gone = {gate.name: gate for gate in judge(made, LogCopies({"node01": TCP}), JobEnd(exit_codes={})).gates}
    assert gone["no_failure_signature"].evidence == "no log of node02"
    empty = {
        gate.name: gate
        for gate in judge(made, LogCopies(dict.fromkeys(("node01", "node02"), NodeLog())), JobEnd(exit_codes={})).gates
    }
    assert empty["no_failure_signature"].evidence == "the logs are empty"


def test_a_cut_log_beside_the_one_with_the_lines_spoils_only_what_rests_on_it() -> None:
    made = plan(hca=[False, False])
    logs = {"node01": NodeLog(lines=1, incomplete="cut"), "node02": read_log(LOGS / "rocm.log")}
    gates = {
        gate.name: gate.verdict
        for gate in judge(made, LogCopies(logs), JobEnd(exit_codes={"node01": 0, "node02": 0})).gates
    }
    unknown = {name for name, verdict in gates.items() if verdict is UNKNOWN}
    assert unknown == {"logs_complete", "no_failure_signature", "ended_well", "rccl_tuning", "no_kernel_fault"}
    assert gates["iterations_complete"] is OK


def test_copies_that_are_cut_contradict_nobody_by_what_they_lack() -> None:
    whole = read_log(LOGS / "rocm.log")
    part = whole.model_copy(update={"iterations": whole.iterations[5:12], "incomplete": "cut"})
    first = whole.model_copy(update={"iterations": whole.iterations[:10], "incomplete": "cut"})
    gates = {
        gate.name: gate
        for gate in judge(plan(), LogCopies({"node01": part, "node02": first}), JobEnd(exit_codes={})).gates
    }
    assert gates["iterations_complete"].verdict is UNKNOWN
    whole_first = first.model_copy(update={"incomplete": ""})
    gates = {
        gate.name: gate
        for gate in judge(plan(), LogCopies({"node01": part, "node02": whole_first}), JobEnd(exit_codes={})).gates
    }
    assert "not of one run" in gates["iterations_complete"].evidence


def test_a_log_that_was_cut_in_the_search_for_a_loss_scale_shows_no_failure() -> None:
    def line(number: int, skipped: int, nan: int = 0) -> str:
        scale = 2.0 ** (32 - number)
        return (
            f"iteration {number}/20 | elapsed time per iteration (ms): 1.0 | loss scale: {scale} | number of skipped "
            f"iterations: {skipped} | number of nan iterations: {nan} |\n"
        )

    def verdicts(*lines: str) -> dict[str, Verdict]:
        log = read_log(list(lines)).model_copy(update={"incomplete": "cut"})
        return {
            gate.name: gate.verdict for gate in judge(plan(1), LogCopies({"node01": log}), JobEnd(exit_codes={})).gates
        }

    searching = [line(number, 1) for number in range(1, 6)]
    assert verdicts(*searching)["no_skipped_or_nan"] is verdicts(*searching)["loss_finite"] is UNKNOWN
    assert verdicts(*searching, line(6, 0, 1))["no_skipped_or_nan"] is FAIL


@pytest.mark.parametrize(
    ("stopped", "started", "lines", "nothing"),
    [
        ("node02: exit code 1", False, [], True),
        ("node02: exit code 1", True, [], True),
        ("node02: exit code 1", False, ["line"], True),
        ("node02: exit code 1", True, ["line"], False),
        (None, True, ["line"], False),
        (None, False, [], False),
    ],
)
def test_a_job_that_was_stopped_before_it_printed_a_line_has_no_log_to_judge(
    stopped: str | None, started: bool, lines: list[str], nothing: bool
) -> None:
    end = JobEnd(stopped=stopped, started=started)
    assert judgement._nothing_ran(end, {"node01": lines}) is nothing
