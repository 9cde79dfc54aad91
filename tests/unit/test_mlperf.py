"""MLPerf's own lines, and logs of programs whose iteration lines are not read."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from shakedown.gates import Gate, NodeLog, read_log, verdict
from shakedown.gates.benchmark import mlperf_run
from shakedown.gates.judge import judge_log
from shakedown.gates.offline import Request, judge_logs
from shakedown.logs import form as log_form
from shakedown.logs.form import forms
from shakedown.logs.mlperf import MlperfRun
from shakedown.state.findings import Verdict

OK, FAIL, UNKNOWN = Verdict.OK, Verdict.FAIL, Verdict.UNKNOWN


def event(key: str, value: object = None, **metadata: object) -> str:
    body = {"namespace": "", "time_ms": 1764000000000, "event_type": "POINT_IN_TIME", "key": key, "value": value}
    return f":::MLLOG {json.dumps(body | {'metadata': {'file': '/x.py', 'lineno': 7, **metadata}})}\n"


def result(status: str = "success", accuracy: object = 0.91, throughput: float = 2.5) -> list[str]:
    return [
        event("submission_benchmark", "llama2_70b_lora"),
        event("init_stop"),
        event("run_start"),
        event("tracked_stats", {"throughput": throughput}, step=384),
        event("eval_accuracy", accuracy, samples_count=384),
        event("run_stop", None, status=status),
    ]


def judged(lines: list[str], **asked: object) -> dict[str, Gate]:
    gates = judge_logs({"log": read_log(lines)}, Request(**asked))[0].gates  # type: ignore[arg-type]
    return {gate.name: gate for gate in gates}


@pytest.mark.parametrize("before", ["", "0: ", "node07: ", "[rank0]: ", "trainer-1  | "])
def test_a_result_that_reached_its_aim_passes(before: str) -> None:
    gates = judged([before + line for line in result()])
    assert verdict(gates.values()) is OK
    said = gates["mlperf_run"].evidence
    for part in ("llama2_70b_lora", "0.91", "2.5 samples/s"):
        assert part in said


@pytest.mark.parametrize(
    ("change", "outcome"),
    [
        (lambda _: result("aborted"), FAIL),
        (lambda _: [*result("aborted"), *result()], FAIL),
        (lambda _: result("succuss"), UNKNOWN),  # mlcommons/training_results_v0.7 and v1.0, Intel's minigo
        (lambda _: [*result("succuss"), *result("aborted")], FAIL),
        # Mask R-CNN: training_results_v2.1 to v3.1
        (lambda _: result(accuracy={"BBOX": 0.38, "SEGM": 0.34}), OK),
        (lambda _: result(accuracy={"BBOX": 0.38, "SEGM": float("nan")}), FAIL),
        (lambda _: result(accuracy=[0.38, 0.34]), OK),
        (lambda _: result(accuracy="none"), FAIL),
        (lambda lines: lines[:-1], FAIL),
        (lambda _: result(accuracy=float("nan")), FAIL),
        (lambda _: result(throughput=-1.0), FAIL),
        (lambda lines: lines[:2], UNKNOWN),
        (lambda lines: [*lines[:-1], lines[-1][:80]], UNKNOWN),
        (lambda lines: [":::MLLOG [1, 2]\n", ":::MLLOG {\n", *lines], OK),
    ],
)
def test_a_result_that_did_not_reach_it_does_not(change: Callable[[list[str]], list[str]], outcome: Verdict) -> None:
    gate = judged(change(result()))["mlperf_run"]
    assert gate.verdict is outcome, gate


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -0.25])
def test_the_value_that_fails_a_result_is_quoted_and_no_good_one(bad: float) -> None:
    gate = judged(result(accuracy=[0.38, bad]))["mlperf_run"]
    assert gate.verdict is FAIL and gate.evidence.startswith(f"eval_accuracy {bad} is not a number"), gate


@pytest.mark.parametrize("what", ["eval_accuracy", "throughput"])
def test_an_accuracy_and_a_throughput_of_zero_are_numbers(what: str) -> None:
    gate = judged(result(accuracy=0.0) if what == "eval_accuracy" else result(throughput=0.0))["mlperf_run"]
    assert gate.verdict is OK, gate


def test_what_is_said_behind_the_stop_counts() -> None:
    assert judged([*result(), "srun: error: node7: task 3: Exited with exit code 1\n"])["ended_well"].verdict is FAIL


CLOSED = "n1:811:911 [6] proxy.cc:1497 NCCL WARN [Service thread] Could not receive type from localRank 0, res=3\n"


def test_ranks_that_close_one_after_the_other_fail_no_result_and_one_that_crashes_does() -> None:
    ended = [*result(), CLOSED, "[rank3]: RuntimeError: [pair.cc:553] Connection closed by peer [192.0.2.4]:7\n"]
    gates = judged(ended)
    assert verdict(gates.values()) is OK and "behind a successful end" in gates["no_failure_signature"].evidence
    for crash in ("Memory access fault by GPU node-4 on address 0x7f00.\n", "Killed\n"):
        assert verdict(judged([*ended, crash]).values()) is FAIL
    for lines in ([*result("aborted"), CLOSED], [*result(), event("run_start"), CLOSED], [*result()[:-1], CLOSED]):
        assert judged(lines)["no_failure_signature"].verdict is FAIL


def test_an_optional_import_fails_no_result() -> None:
    import_error = [
        "Import of quick_gelu from x failed with: Traceback (most recent call last):\n",
        '  File "/opt/x.py", line 7, in safe_import\n',
        "ImportError: cannot import name 'quick_gelu'\n",
    ]
    assert verdict(judged([*import_error, *result()]).values()) is OK


def test_a_figure_that_is_expected_of_a_result_is_unknown() -> None:
    gates = judged(result(), expect={"throughput_per_gpu": 400.0})
    assert gates["throughput_per_gpu"].verdict is UNKNOWN


@pytest.mark.parametrize("name", ["ms-swift", "verl", "NeMo (progress bar)"])
def test_a_program_that_trains_with_megatron_and_prints_other_lines_is_unknown(name: str) -> None:
    shown = next(form.shows for form in forms() if form.name == name)
    megatron = ["using world size: 8, data-parallel size: 8\n", "  micro_batch_size .............. 1\n"]
    gate = judged([*megatron, *(line + "\n" for line in shown)])["iterations_complete"]
    assert gate.verdict is UNKNOWN and name in gate.evidence
    assert judged(megatron)["iterations_complete"].verdict is FAIL


def test_every_form_is_known_by_what_it_shows() -> None:
    for form in forms():
        for shown in form.shows:
            assert form.matches(shown), shown
            assert read_log([shown + "\n"]).form == form.name, shown


@pytest.mark.parametrize("form", [form for form in forms() if not form.read], ids=lambda form: form.name)
def test_a_form_that_is_not_read_is_unknown_and_named(form) -> None:
    gates = judged([*(line + "\n" for line in form.shows), "done\n"])
    wanted = gates["mlperf_run" if form.name == "MLPerf training" else "iterations_complete"]
    assert wanted.verdict is UNKNOWN and wanted.remedy
    assert form.name in wanted.evidence or form.name == "MLPerf training"
    assert FAIL not in [gate.verdict for gate in gates.values()]


LOGGED = [
    "[INFO:swift] Traceback (most recent call last):\n",
    '  File "/opt/x/template.py", line 9, in encode\n',
    "    text = self.tokenizer.decode(ids)\n",
    "TypeError: argument 'ids': 'str' object cannot be interpreted as an integer\n",
]
STEPS = [
    "{'loss': '1.53', 'grad_norm': '2.8', 'epoch': '0.04', 'global_step/max_steps': '12/40'}",
    "\rTrain:  30%|###  | 12/40 [08:57<20:11, 43.28s/it]\r{'loss': 2.1, 'grad_norm': 1.2, 'epoch': 0.1}",
    "[titan] 2026-11-24 07:00:00,000 - root - INFO - step: 10  loss:  7.1  grad_norm:  1.2  tps: 7,000",
    "completed step: 10, seconds: 5.1, TFLOP/s/device: 400.1, loss: 7.1",
    "[Rank 0] step=10, skipped=0, lr=[0.0001], mom=[(0.9, 0.999)]",
    "2026/11/24 07:00:00 - mmengine - INFO - Iter(train) [10/100]  lr: 1e-4  loss: 7.1",
]


@pytest.mark.parametrize("step", STEPS)
def test_an_exception_that_a_logger_wrote_is_handled_where_a_form_that_is_not_read_trains_on(step: str) -> None:
    assert read_log([*LOGGED, step + "\n", *LOGGED, step + "\n"]).failure is None
    last = read_log([step + "\n", *LOGGED]).failure
    assert last is not None and last.line_number == 5


@pytest.mark.parametrize("lines", [["hello\n"], ["epoch 3 loss 2.1 acc 77.1\n"] * 50, ["x: 1\n"] * 3])
def test_a_form_that_nobody_knows_is_unknown(lines: list[str]) -> None:
    gate = judged(lines)["iterations_complete"]
    assert gate.verdict is UNKNOWN and "no program that is known" in gate.evidence


def test_megatron_that_never_trained_fails() -> None:
    gate = judged(["using world size: 8, data-parallel size: 8\n", "building GPT model ...\n"])["iterations_complete"]
    assert gate.verdict is FAIL and gate.evidence == "no iteration line"


def test_hostile_lines_cost_little() -> None:
    lines = [":::MLLOG " + "[" * 100_000 + "\n", ':::MLLOG {"key": "eval_accuracy", "value": ' + "9" * 9999 + "}\n"]
    log: NodeLog = read_log([*lines, ":::MLLOG " + json.dumps({"key": 3, "metadata": []}) + "\n"])
    assert log.mlperf is not None and log.mlperf.lines == 3


@pytest.mark.parametrize(
    ("run", "damaged"),
    [
        (MlperfRun(lines=3, starts=1, damaged=2), True),
        (MlperfRun(lines=3, damaged=2, statuses=("success",)), True),
        (MlperfRun(lines=3, starts=1, damaged=2, statuses=("success",)), False),
        (MlperfRun(lines=3, starts=1), False),
    ],
)
def test_lines_that_cannot_be_read_count_where_they_may_be_the_ones_that_are_missing(
    run: MlperfRun, damaged: bool
) -> None:
    outcome = mlperf_run(NodeLog(mlperf=run))
    assert outcome is not None
    assert ("cannot be read" in outcome.evidence) is damaged


@pytest.mark.parametrize(("before", "name"), [(2, forms()[0].name), (3, "")])
def test_the_form_is_looked_for_in_so_many_lines_and_no_more(
    before: int, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_form, "_MOST", 3)
    reader = log_form.FormReader()
    for line in [*["a line without a mark"] * 9, *["no other word than openrlhf"] * before, forms()[0].shows[0]]:
        reader.line(line)
    assert reader.form() == name


def test_a_time_that_no_clock_has_is_no_time() -> None:
    lines = [line.replace("1764000000000", "9" * 400) if "run_stop" in line else line for line in result()]
    assert (
        judged(lines)["mlperf_run"].verdict == OK and "from begin to stop" not in judged(lines)["mlperf_run"].evidence
    )


def test_lines_of_mlperf_on_another_node_take_no_training_from_its_gates() -> None:
    """Any node can print them: the iterations of the job's own log are judged as well, and so is each such log."""
    fields = "lm loss: {loss:.4f} | number of skipped iterations: 0 | number of nan iterations: 0 |"
    rising = [f" iteration {at}/20 | {fields.format(loss=10 + at / 2)}\n" for at in range(1, 21)]
    trained, through = read_log(rising), read_log(result())
    verdicts = {gate.name: gate.verdict for gate in judge_log({"node1": through, "node2": trained}, {})}
    assert (verdicts["mlperf_run"], verdicts["loss_falling"]) == (OK, FAIL)
    aborted = read_log(result("aborted"))
    for logs in ((through, aborted), (aborted, through)):
        gates = judge_log(dict(zip(("node1", "node2"), logs, strict=True)), {})
        assert next(gate.verdict for gate in gates if gate.name == "mlperf_run") == FAIL
