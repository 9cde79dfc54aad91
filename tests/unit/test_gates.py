"""The gates of a smoke run. The first part is what the suite of ROCm/cvs gets wrong (FIELD NOTES, section 5): a run
that passes there for the wrong reason must not pass here."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from shakedown.catalogue import advice
from shakedown.gates import Gate, NodeLog, judge_log, read_log, recorded, verdict
from shakedown.gates.job_end import exit_codes
from shakedown.gates.judge import fullest_log, unknown_metrics
from shakedown.gates.log_lines import ended_well
from shakedown.gates.nodes import counters
from shakedown.gates.observed import Counters, JobEnd, Logs
from shakedown.logs.figures import measure
from shakedown.logs.iterations import Iteration, Summary
from shakedown.logs.metrics import METRICS
from shakedown.state.findings import Verdict
from shakedown.state.node import Unreadable

LOGS = Path(__file__).parents[1] / "data" / "logs"
OK, FAIL, UNKNOWN = Verdict.OK, Verdict.FAIL, Verdict.UNKNOWN
EXPECT = {
    "throughput_per_gpu": 1400.0,
    "tokens_per_gpu": 6000.0,
    "elapsed_time_per_iteration": 700.0,
    "mem_usage": 0.9,
}


def falling(number: int) -> float:
    return 12.0 - 0.2 * number + 0.02 * (number % 3)


def run(count: int = 20, loss: Callable[[int], float | None] = falling, **fields: float | None) -> list[Iteration]:
    whole: dict[str, float | None] = {"elapsed_ms": 650.0, "skipped_iterations": 0, "nan_iterations": 0, **fields}
    return [Iteration(iteration=i, total_iterations=count, lm_loss=loss(i), **whole) for i in range(1, count + 1)]


def log(iterations: list[Iteration], **fields: object) -> NodeLog:
    return NodeLog.model_validate({"lines": 1000, "iterations": iterations, **fields})


def ended(codes, participants=(), stopped_nodes=()):
    return exit_codes(JobEnd(exit_codes=codes, participants=participants, stopped_nodes=stopped_nodes))


def judged(logs: NodeLog | dict[str, NodeLog | None], expect: dict[str, float] | None = None, **how) -> dict[str, Gate]:
    return {gate.name: gate for gate in judge_log(logs, expect or {}, **how)}


def text(name: str) -> list[str]:
    return (LOGS / f"{name}.log").read_text().splitlines(keepends=True)


# ------------------------------------------------------------------------------- what the existing suite gets wrong


def test_mistake_1_a_run_is_not_complete_at_its_first_throughput_line():
    lines = text("rocm")
    first = next(i for i, line in enumerate(lines) if "throughput per GPU" in line)
    gates = judged(read_log(lines[: first + 1]), iterations=20)
    assert gates["iterations_complete"].verdict is FAIL
    assert "19 of 20 lines are missing" in gates["iterations_complete"].evidence


def test_mistake_2_elapsed_time_is_better_when_lower():
    expect = {"elapsed_time_per_iteration": 12000.0}
    assert judged(log(run(elapsed_ms=380.0)), expect)["elapsed_time_per_iteration"].verdict is OK
    slow = judged(log(run(elapsed_ms=12000.1)), expect)["elapsed_time_per_iteration"]
    assert (slow.verdict, slow.wanted, slow.actual, slow.unit) == (FAIL, 12000.0, 12000.1, "ms")
    assert slow.remedy


@pytest.mark.parametrize("value", ["nan", "NaN", "NAN", "inf", "INF"])
def test_mistake_3_a_loss_that_is_printed_as_nan_or_inf_is_found(value):
    lines = [line.replace("lm loss: 1.055000E+01", f"lm loss: {value}") for line in text("rocm")]
    assert lines != text("rocm")
    assert judged(read_log(lines))["loss_finite"].verdict is FAIL


def test_mistake_4_a_nan_loss_that_megatron_leaves_out_does_not_pass():
    gates = judged(read_log(text("nan_loss")))
    assert gates["loss_finite"].verdict is FAIL
    assert (gates["loss_finite"].wanted, gates["loss_finite"].actual) == (20, 11)
    assert "iterations 12-20 (" in gates["loss_finite"].evidence
    assert gates["loss_falling"].verdict is not OK


def test_mistake_5_a_counter_without_a_before_is_not_compared_with_zero():
    gate = counters(Counters({"n1": {}}, {"n1": {"rdma/bnxt_re0/rx_err": 0}}))
    assert gate.verdict is UNKNOWN
    assert counters(Counters({}, {"n1": {"rdma/bnxt_re0/rx_err": 0}})).verdict is UNKNOWN


def test_mistake_9_every_nodes_log_and_exit_code_counts_not_only_the_last_ones():
    good, bad = read_log(text("rocm")), read_log(["[rank0]: HW Exception by GPU node-1\n"])
    gate = judged({"n1": bad, "n2": good})["no_failure_signature"]
    assert gate.verdict is FAIL
    assert "n1 line 1: gpu_hang" in gate.evidence
    assert judged({"n1": None, "n2": good})["no_failure_signature"].verdict is UNKNOWN
    assert ended({"n1": 1, "n2": 0}).verdict is FAIL
    assert ended({"n1": None, "n2": 0}).verdict is UNKNOWN  # a job that never ended


def test_mistake_14_a_gate_that_does_not_pass_says_what_to_do():
    logs = {"n1": read_log(text("out_of_memory")), "n2": read_log(text("rccl_untuned"))}
    risen = Counters({"n1": {"a": 1}}, {"n1": {"a": 2}})
    gates = [*judge_log(logs, EXPECT), ended({"n1": 1}), counters(risen)]
    bad = [gate for gate in gates if gate.verdict is not OK]
    assert len(bad) >= 5
    assert all(gate.remedy and gate.evidence for gate in bad)
    assert all(gate.remedy is None for gate in gates if gate.verdict is OK)


# ------------------------------------------------------------------------------------------------------- whole logs


@pytest.mark.parametrize("name", ["primus", "primus_v26_5_1", "primus_new", "fork_tok_s_gpu"])
def test_a_good_run_passes_every_gate(name):
    gates = judge_log(read_log(LOGS / f"{name}.log"), EXPECT, 20)
    assert [gate.name for gate in gates if gate.verdict is not OK] == []
    assert [gate.name for gate in gates] == [
        "iterations_complete",
        "loss_finite",
        "no_skipped_or_nan",
        "loss_falling",
        "gradient_norm",
        *EXPECT,
        "possible_throughput",
        "steady",
        "no_failure_signature",
        "ended_well",
        "rccl_tuning",
    ]
    assert verdict(gates) is OK
    fields = ["name", "verdict", "wanted", "actual", "unit", "evidence", "remedy"]
    assert list(Gate.model_fields)[: len(fields)] == fields


def test_a_figure_the_log_does_not_have_fails_and_one_that_can_be_derived_does_not():
    rocm = read_log(LOGS / "rocm.log").model_copy(update={"summary": Summary()})
    assert judged(rocm, EXPECT)["tokens_per_gpu"].verdict is FAIL
    assert judged(rocm, EXPECT)["tokens_per_gpu"].actual is None
    derived = judged(rocm, EXPECT, seq_length=2048, world_size=8)["tokens_per_gpu"]
    assert derived.verdict is OK
    assert "derived" in derived.evidence


def test_a_figure_nobody_expects_is_recorded_and_not_judged():
    figures = measure(run())
    assert "mem_usage" not in judged(log(run()))
    kept = {entry.name: entry.value for entry in recorded({"mem_usage": 0.9}, figures)}
    assert kept == {"throughput_per_gpu": None, "tokens_per_gpu": None, "elapsed_time_per_iteration": 650.0}


def test_each_figure_is_judged_in_its_own_direction():
    fields = {"tflops_per_gpu": 100.0, "tokens_per_gpu_per_s": 100.0, "elapsed_ms": 100.0, "memory_fraction": 100.0}
    low, high = dict.fromkeys(METRICS, 99.0), dict.fromkeys(METRICS, 101.0)
    for bounds, passes in ((low, "at least"), (high, "at most")):
        gates = judged(log(run(**fields)), bounds)
        assert {name for name in METRICS if gates[name].verdict is OK} == {
            name for name, metric in METRICS.items() if metric.direction == passes
        }


def test_expected_figures_that_make_no_sense_are_all_named_at_once():
    faults = unknown_metrics({"througput": 1.0, "mem_usage": math.nan, "tokens_per_gpu": 0.0, "throughput_per_gpu": 1})
    assert [fault.split(":")[0] for fault in faults] == [
        "expect.througput",
        "expect.mem_usage",
        "expect.tokens_per_gpu",
    ]
    with pytest.raises(ValueError, match="no such metric"):
        judge_log(log(run()), {"througput": 1.0})


# -------------------------------------------------------------------------------------------------- iterations, loss


def test_the_number_of_iterations_asked_for_counts_not_only_what_the_log_says():
    assert judged(log(run(10)), iterations=10)["iterations_complete"].verdict is OK
    assert judged(log(run(10)))["iterations_complete"].verdict is OK
    gate = judged(log(run(10)), iterations=20)["iterations_complete"]
    assert (gate.verdict, gate.wanted, gate.actual) == (FAIL, 20, 10)


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda its: [], "no iteration line"),
        (lambda its: its[:-1], "the last iteration seen is 19 of 20"),
        (lambda its: its[:5] + its[6:], "1 of 20 lines are missing, the first is 6"),
        (lambda its: its[:5] + its[4:], "more than once in the log: iteration 5"),
        (lambda its: [*its[:5], its[4], *its[6:]], "more than once in the log: iteration 5"),
        (lambda its: [its[1], its[0], *its[2:]], "out of order"),
        (lambda its: [*its[:5], replace(its[5], total_iterations=30), *its[6:]], "20, 30"),
    ],
)
def test_missing_repeated_and_misplaced_iterations_fail(spoil, said):
    gate = judged(log(spoil(run())), iterations=20)["iterations_complete"]
    assert gate.verdict is FAIL
    assert said in gate.evidence


VALIDATION = " validation loss at iteration 20 | lm loss value: {} | lm loss PPL: {} | \n"


@pytest.mark.parametrize(
    ("figure", "words"),
    [
        ("mtp_1 loss: nan |", "mtp_1 loss is nan at iteration 9"),
        ("params norm: NaN |", "params norm is NaN at iteration 9"),
        ("load_balancing_loss: -inf |", "load_balancing_loss is -inf"),
        ("learning rate: NAN |", "learning rate is NAN"),
        ("loss scale: inf |", "loss scale is inf"),
        (VALIDATION.format("NAN", "NAN"), "lm loss value is NAN in an evaluation"),
        ("n1: " + VALIDATION.format("8.1E+00", "inf"), "lm loss PPL is inf in an evaluation"),
    ],
)
def test_no_figure_of_a_line_is_anything_but_a_number(figure, words):
    def finite(figure, skipped=0):
        lines = text("upstream")
        at = next(n for n, line in enumerate(lines) if "iteration        9/" in line)
        line = lines[at].replace("skipped iterations:   0", f"skipped iterations:   {skipped}")
        added = [line, figure] if figure.endswith("\n") else [f"{line.rstrip()} {figure}\n"]
        return judged(read_log([*lines[:at], *added, *lines[at + 1 :]]))["loss_finite"]

    assert finite(figure).verdict is FAIL and words in finite(figure).evidence
    assert finite(re.sub("(?i)-?(nan|inf)", "1.0", figure)).verdict is OK
    if not figure.endswith("\n"):
        assert words not in finite(figure, skipped=1).evidence, "a skipped iteration's figures count nowhere"
    for rate in ("MFU: nan |", "samples per second: inf |", "tokens/s: inf |", "best val loss: inf |", "eta: inf |"):
        assert finite(rate).verdict is OK, "a rate, a time or the best may lack a measurement"
    assert finite("loss per token: nan |").verdict is FAIL


def test_a_line_that_two_handlers_print_counts_once():
    """Public logs of Primus have each line of its log twice, by one process and with one time."""
    lines = text("primus_new")
    once, doubled = (judged(read_log(log)) for log in (lines, [line for line in lines for _ in "12"]))
    assert {name: gate.verdict for name, gate in doubled.items()} == {name: gate.verdict for name, gate in once.items()}
    assert judged(read_log(lines * 2))["iterations_complete"].verdict is FAIL, "two runs in one file"
    slower = [line.replace("(ms): 6", "(ms): 9") for line in lines]
    both = judged(read_log([line for pair in zip(lines, slower, strict=True) for line in pair]))
    assert both["iterations_complete"].verdict is FAIL, "two runs that write one file"


def test_a_line_that_was_cut_is_unknown_never_ok():
    lines = text("rocm")[:-5]
    assert lines[-1].startswith(" [2026-09-24 09:43:20] iteration       20/")
    cut = read_log([*lines[:-1], lines[-1][:150]])
    gates = judged(cut, {"elapsed_time_per_iteration": 700.0})
    assert gates["iterations_complete"].verdict is UNKNOWN
    assert gates["loss_finite"].verdict is UNKNOWN
    assert gates["no_skipped_or_nan"].verdict is UNKNOWN
    assert gates["loss_falling"].verdict is UNKNOWN
    assert gates["elapsed_time_per_iteration"].verdict is OK  # the last iteration is not a steady one


def test_skipped_and_nan_iterations_fail():
    skipped = run(loss=lambda i: None if i == 3 else falling(i))
    skipped[2] = replace(skipped[2], skipped_iterations=1)
    gates = judged(log(skipped))
    assert gates["no_skipped_or_nan"].verdict is FAIL
    assert "at iteration 3" in gates["no_skipped_or_nan"].evidence
    assert gates["loss_finite"].verdict is FAIL
    assert judged(log(run(nan_iterations=1)))["no_skipped_or_nan"].verdict is FAIL
    assert judged(log(run(nan_iterations=None)))["no_skipped_or_nan"].verdict is UNKNOWN


# ---------------------------------------------------------------------------------------------------- several nodes


def test_only_one_node_has_the_iteration_lines_and_the_others_do_not_spoil_it():
    logs = {"n1": read_log(LOGS / "rocm_other_node.log"), "n2": read_log(LOGS / "rocm.log"), "n3": NodeLog()}
    assert verdict(judge_log(logs, {"mem_usage": 0.9}, 20)) is OK
    fullest = fullest_log(logs)
    assert (len(fullest.iterations), fullest.damaged) == (20, ())


def test_a_copy_of_the_same_lines_is_no_contradiction_and_other_lines_are():
    with_nan = run(grad_norm=math.nan)
    assert judged({"n1": log(with_nan), "n2": log(run(grad_norm=math.nan)[:7])})["iterations_complete"].verdict is OK
    gates = judged({"n1": log(run()), "n2": log(run(elapsed_ms=651.0))}, {"elapsed_time_per_iteration": 700.0})
    assert gates["iterations_complete"].verdict is FAIL
    assert "n1" in gates["iterations_complete"].evidence
    assert "n2" in gates["iterations_complete"].evidence
    assert gates["loss_finite"].verdict is UNKNOWN
    assert gates["elapsed_time_per_iteration"].verdict is UNKNOWN
    restarted = {"n1": log(run()[:12]), "n2": log(run()[12:])}
    assert judged(restarted)["iterations_complete"].verdict is FAIL


def test_without_the_log_that_has_the_lines_nothing_is_known():
    gates = judged({"n1": read_log(LOGS / "rocm_other_node.log"), "n2": None}, EXPECT)
    assert {gate.verdict for gate in gates.values()} == {UNKNOWN}


def test_no_logs_at_all_do_not_pass():
    assert verdict(judge_log({}, {})) is FAIL
    assert all(gate.verdict is not OK for gate in judge_log({}, EXPECT))
    assert all(gate.verdict is not OK for gate in judge_log(NodeLog(), EXPECT))
    assert verdict([]) is UNKNOWN


# -------------------------------------------------------------------------------------------------- other evidence


def test_torchruns_traceback_on_a_clean_sigterm_is_no_failure():
    gate = judged(read_log(LOGS / "sigterm.log"))["no_failure_signature"]
    assert gate.verdict is OK
    assert "line 52: SIGTERM ended torchrun: no failure: " in gate.evidence
    assert "signal: 15" in gate.evidence, "and what it is that was passed over"


def test_a_job_that_sigterm_ended_before_its_last_iteration_has_failed():
    lines = (LOGS / "sigterm.log").read_text().splitlines(keepends=True)
    (last,) = (line for line in lines if "iteration       20/" in line)
    gates = judged(read_log([line for line in lines if line != last]))
    assert gates["iterations_complete"].verdict is FAIL


def test_rccl_lines_fail_and_tcp_only_where_rdma_was_wanted():
    untuned = read_log(LOGS / "rccl_untuned.log")
    gate = judged(untuned)["rccl_tuning"]
    assert (gate.verdict, gate.actual) == (FAIL, 3)
    assert "numa_balancing" in gate.evidence
    tcp = read_log(["n1:812 [0] NCCL INFO NET/Socket : Using [0]eth0:10.7.0.1<0>\n"])
    assert judged(tcp)["rccl_tuning"].verdict is OK
    assert judged(tcp, rdma=True)["rccl_tuning"].verdict is FAIL


def test_the_silence_of_rccl_is_worth_nothing_when_it_was_told_to_be_silent():
    good = read_log(LOGS / "rocm.log")
    assert judged(good, nccl_debug="WARN")["rccl_tuning"].verdict is OK
    assert judged(good, nccl_debug="VERSION")["rccl_tuning"].verdict is UNKNOWN
    assert judged(good, nccl_debug="")["rccl_tuning"].verdict is UNKNOWN


def test_exit_codes_of_nodes_that_the_controller_stopped_accuse_none_of_them():
    codes = {"n1": -15, "n2": -9, "n3": -9}
    gate = ended(codes, codes, ["n1", "n3"])
    assert gate.verdict is FAIL
    assert gate.evidence == "n2 ended with -9 (SIGKILL); the controller stopped n1, n3"
    assert gate.actual == {"n2": -9}
    gate = ended(codes, codes, list(codes))
    assert (gate.verdict, gate.evidence) == (UNKNOWN, "the controller stopped n1, n2, n3")


@pytest.mark.parametrize(
    ("codes", "participants", "expected"),
    [
        ({"n1": 0, "n2": 0}, ("n1", "n2"), OK),
        ({"n1": 0, "n2": -9}, (), FAIL),
        ({"n1": 0, "n2": 137}, (), FAIL),
        ({"n1": None, "n2": 1}, (), FAIL),
        ({"n1": 0, "n2": None}, (), UNKNOWN),
        ({"n1": 0}, ("n1", "n2"), UNKNOWN),
        ({}, (), UNKNOWN),
    ],
)
def test_exit_codes(codes, participants, expected):
    gate = ended(codes, participants)
    assert gate.verdict is expected
    if gate.verdict is FAIL and -9 in codes.values():
        assert "n2 ended with -9 (SIGKILL)" in gate.evidence


@pytest.mark.parametrize(
    ("before", "after", "expected", "said"),
    [
        ({"n1": {"a": 3}}, {"n1": {"a": 3}}, OK, "1 counters"),
        ({"n1": {"a": 3, "b": 0}}, {"n1": {"a": 3, "b": 2}}, FAIL, "n1: b 0 -> 2"),
        ({"n1": {"a": 3}}, {"n1": {"a": 1}}, UNKNOWN, "reset during the run: n1: a 3 -> 1"),
        ({"n1": {"a": 3}}, {"n1": {}}, UNKNOWN, "n1: a (after the run)"),
        ({"n1": {"a": 3}}, {}, UNKNOWN, "n1 (after the run)"),
        ({"n1": {"a": Unreadable(unreadable="missing")}}, {"n1": {"a": 3}}, UNKNOWN, "n1: a (before the run)"),
        ({"n1": {"a": {"unreadable": "missing"}}}, {"n1": {"a": 3}}, UNKNOWN, "n1: a (before the run)"),
        ({"n1": {"a": 0}, "n2": {"a": 0}}, {"n1": {"a": 1}}, FAIL, "n2 (after the run)"),
        ({"n1": {}}, {"n1": {}}, UNKNOWN, "no counter was read"),
        ({}, {}, UNKNOWN, "no counter was read"),
    ],
)
def test_counters(before, after, expected, said):
    gate = counters(Counters(before, after))
    assert gate.verdict is expected
    assert said in gate.evidence


def test_a_gate_is_never_drift():
    with pytest.raises(ValueError, match="verdict"):
        Gate(name="x", verdict=Verdict.DRIFT)


def test_a_log_that_cannot_be_opened_is_an_error_of_the_caller(tmp_path):
    with pytest.raises(FileNotFoundError):
        read_log(tmp_path / "nothing.log")


def test_a_whole_log_without_a_line_of_rccl_does_not_show_that_rdma_was_used():
    lines = (LOGS / "rocm.log").read_text("utf-8").splitlines(keepends=True)
    others = ["oneCCL 2021.12 was found\n", "rank 0: RCCL is not there\n"]
    silent = read_log([*others, *(line for line in lines if "NCCL" not in line)])
    gate = judged(silent, rdma=True, nccl_debug="WARN")["rccl_tuning"]
    assert gate.verdict is UNKNOWN
    assert "nothing shows that RDMA was used" in gate.evidence


@pytest.mark.parametrize(("failed", "words"), [(None, "unlogged"), ("Killed", "unfinished")])
def test_a_failure_that_was_seen_is_the_advice_before_logs_that_are_missing(failed: str | None, words: str) -> None:
    log = read_log(LOGS / "rocm.log")
    log = log.model_copy(update={"end": log.end.model_copy(update={"failed": failed or ""})})
    gate = ended_well(Logs(by_node={"n1": log}, unlogged=3))
    assert gate.remedy == advice(words)
    assert ended_well(Logs(by_node={"n1": log})).remedy == (advice("unfinished") if failed else None)
