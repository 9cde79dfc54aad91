"""What a gate says beside its verdict: the evidence is what an operator acts on, so it must not be the wrong one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shakedown.catalogue import advice
from shakedown.common.text import QUOTED, some
from shakedown.gates import Gate, NodeLog, judge_log, read_log
from shakedown.gates.job_end import exit_codes, logs_complete
from shakedown.gates.nodes import nothing_left
from shakedown.gates.observed import JobEnd, LogCopies
from shakedown.logs.iterations import Iteration
from shakedown.state.findings import Verdict
from tests.gates import judged


def lines(count: int, step: int = 1, **fields: object) -> list[Iteration]:
    whole = {"elapsed_ms": 650.0, "skipped_iterations": 0, "nan_iterations": 0, **fields}
    return [
        Iteration(**{"iteration": i, "total_iterations": count, "lm_loss": 12.0 - 0.1 * i, **whole})
        for i in range(step, count + 1, step)
    ]


def gate(name: str, iterations: list[Iteration], incomplete: str | None = None) -> Gate:
    log = NodeLog.model_validate({"lines": 100, "iterations": iterations, "incomplete": incomplete or ""})
    return next(found for found in judge_log(log, {}) if found.name == name)


def test_of_many_the_rest_is_counted() -> None:
    assert some(range(QUOTED)) == ", ".join(map(str, range(QUOTED)))
    assert some(range(QUOTED + 3)).endswith(" and 3 more")


def test_the_log_interval_is_said_where_there_is_one() -> None:
    assert gate("iterations_complete", lines(20)).evidence == "20 lines, 1 to 20 of 20"
    assert gate("iterations_complete", lines(20, 5)).evidence == "4 lines, one for 5 iterations, 5 to 20 of 20"


def test_the_first_line_that_is_missing_is_named_at_the_end_too() -> None:
    assert "1 of 20 lines are missing, the first is 20" in gate("iterations_complete", lines(20)[:-1]).evidence
    assert (
        "1 of 20 lines are missing, the first is 2"
        in gate("iterations_complete", [lines(20)[0], *lines(20)[2:]]).evidence
    )


def test_a_line_that_does_not_tell_of_skips_is_named_and_no_other() -> None:
    assert gate("no_skipped_or_nan", lines(20)).evidence == "0 skipped and 0 NaN on 20 lines"
    silent = lines(20)
    silent[6] = replace(silent[6], skipped_iterations=None)
    found = gate("no_skipped_or_nan", silent)
    assert found.verdict is Verdict.UNKNOWN and found.evidence.endswith("the line of iteration 7 does not say")


def test_no_logs_are_said_to_be_none_and_whole_ones_to_be_whole() -> None:
    assert logs_complete(LogCopies({})).evidence == "there are no logs"
    assert logs_complete(LogCopies({"node01": NodeLog(lines=7)})).evidence == "7 lines, as long as on the nodes"


def test_a_remedy_fits_what_was_found() -> None:
    whole = lines(20)
    assert gate("no_failure_signature", whole).evidence == "none in 100 lines"
    assert {found.remedy for found in (gate(name, whole) for name in ("loss_finite", "no_skipped_or_nan"))} == {None}
    assert gate("no_failure_signature", whole).remedy is None
    assert gate("no_failure_signature", whole, "node01: 3 of 9 bytes").remedy == advice("unfinished")
    skipped = [*whole[:9], replace(whole[9], skipped_iterations=1, lm_loss=None), *whole[10:]]
    assert gate("no_skipped_or_nan", skipped).remedy == advice("loss")
    assert gate("loss_finite", skipped).remedy == advice("loss")
    unknown_form = [replace(line, lm_loss=None) for line in whole]
    assert gate("loss_finite", unknown_form).remedy == advice("log_form")
    infinite = [replace(line, lm_loss=float("inf")) for line in whole]
    assert gate("loss_finite", infinite).remedy == advice("loss")
    searching = lines(4, loss_scale=1.0)
    for number, line in enumerate(searching):
        searching[number] = replace(line, loss_scale=2.0 ** (32 - number), skipped_iterations=1, lm_loss=None)
    assert gate("no_skipped_or_nan", searching).remedy == advice("loss_scale")


@pytest.mark.parametrize(
    ("codes", "participants", "said"),
    [
        ({"a": 0, "b": 0}, ["a", "b"], "all 2 ended with 0"),
        ({}, [], "no exit codes"),
        ({}, ["a"], "no exit code of a"),
        ({"a": None, "b": 0}, [], "no exit code of a"),
        ({"a": 1, "b": None}, ["a", "c"], "a ended with 1; no exit code of b, c"),
        ({"a": -9}, [], "a ended with -9 (SIGKILL)"),
        ({"a": 137}, [], "a ended with 137 (SIGKILL)"),
        ({"a": 139, "b": 9}, [], "a ended with 139 (SIGSEGV); b ended with 9"),
    ],
)
def test_an_exit_code_is_said_with_its_signal_and_one_that_is_missing_too(codes, participants, said) -> None:
    assert judged(exit_codes(JobEnd(exit_codes=codes, participants=participants))).evidence == said


def test_what_is_left_on_a_node_is_named_and_to_be_looked_for() -> None:
    clean = judged(nothing_left(JobEnd(left={"node01": [], "node02": []})))
    assert (clean.verdict, clean.actual, clean.remedy) == (Verdict.OK, 0, None)
    assert clean.evidence == "all processes and containers of 2 nodes were seen to be gone"
    left = judged(nothing_left(JobEnd(left={"node01": [], "node02": ["container abc"]})))
    assert (left.verdict, left.actual, left.evidence) == (Verdict.UNKNOWN, 1, "node02: container abc")
    assert left.remedy is not None and "end them" in left.remedy


def test_lines_of_a_failure_are_counted_only_where_the_logs_were_seen() -> None:
    hang = "HW Exception by GPU node-1\n"

    def counted(*lines: str, missing: bool = False) -> object:
        logs = {"node01": read_log(lines)} | ({"node02": None} if missing else {})
        return next(found for found in judge_log(logs, {}) if found.name == "no_failure_signature").actual

    assert (counted("fine\n"), counted(hang)) == (0, 1)
    assert (counted("fine\n", missing=True), counted(hang, missing=True)) == (None, 1)


def test_the_level_that_rccl_spoke_at_is_said() -> None:
    log = NodeLog.model_validate({"lines": 100})
    for level, said in (("WARN", "NCCL_DEBUG=WARN"), (None, "NCCL_DEBUG of the run is not known")):
        found = next(each for each in judge_log(log, {}, nccl_debug=level) if each.name == "rccl_tuning")
        assert found.evidence == f"no such line in 100 lines; {said}"


def test_a_figure_says_what_it_rests_on_and_what_to_do() -> None:
    def figure(count: int, name: str = "elapsed_time_per_iteration", bound: float = 1.0, **fields: object) -> Gate:
        log = NodeLog.model_validate({"lines": 100, "iterations": lines(count, **fields)})
        return next(found for found in judge_log(log, {name: bound}) if found.name == name)

    assert figure(20).evidence.endswith("mean 650 of 17 steady iterations, median 650, quartiles 0 apart")
    assert figure(4).evidence.endswith("mean 650 of 1 steady iteration, median 650"), "one value has no quartiles"
    assert figure(20, bound=700.0).remedy is None
    assert figure(20).remedy == advice("slow")
    assert figure(20, "mem_usage", 0.5, memory_fraction=0.9).remedy == advice("memory")
    assert figure(20, "mem_usage").remedy == advice("no_figure")


def test_an_infinite_loss_in_the_part_of_a_log_that_is_there_stays_a_failure() -> None:
    infinite = lines(20)
    infinite[6] = replace(infinite[6], lm_loss=float("inf"))
    assert gate("loss_finite", infinite, "node01: 3 of 9 bytes").verdict is Verdict.FAIL
    assert gate("loss_finite", lines(20), "node01: 3 of 9 bytes").verdict is Verdict.UNKNOWN


@pytest.mark.parametrize(
    ("told", "verdict"),
    [
        ({}, Verdict.UNKNOWN),
        ({"grad_norm": 1.0}, Verdict.UNKNOWN),
        ({"grad_norm": float("nan")}, Verdict.FAIL),
        ({"nan_iterations": 1}, Verdict.FAIL),
        ({"skipped_iterations": 1}, Verdict.FAIL),
    ],
)
def test_lines_without_any_loss_fail_only_where_they_tell_of_nan(told: dict[str, float], verdict: Verdict) -> None:
    found = gate("loss_finite", lines(20, lm_loss=None, **told))
    assert found.verdict is verdict
    known = "no loss on the line" if verdict is Verdict.FAIL else "no line has a loss by a name that is known"
    assert found.evidence.startswith(known)


def test_a_part_of_a_log_has_its_own_remedy_and_a_gate_that_fails_keeps_its_own() -> None:
    assert gate("loss_finite", lines(20), "3 of 9 bytes").remedy == advice("incomplete")
    assert gate("iterations_complete", lines(20)[:-1], "3 of 9 bytes").remedy == advice("unfinished")


@pytest.mark.parametrize(
    ("chunks", "hole"),
    [
        ([b"x" * 20 + b"\0" * 16 + b"\n"], True),
        ([b"x" * 20 + b"\0" * 8, b"\0" * 8 + b"y" * 20 + b"\n"], True),
        ([b"x" * 20 + b"\0" * 8, b"y" + b"\0" * 8 + b"\n"], False),
        ([b"x" * 20 + b"\0" * 15 + b"\n"], False),
    ],
)
def test_a_stretch_of_nul_bytes_is_a_part_that_was_lost(chunks: list[bytes], hole: bool) -> None:
    assert ("NUL bytes" in read_log(chunks).incomplete) == hole
