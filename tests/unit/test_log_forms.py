"""The forms of iteration lines that are in the field, each as its program prints it, and what is read of them.

The lines are those of public logs and issues (November 2026), or follow the format strings of the programs.
"""

from __future__ import annotations

import math
from dataclasses import asdict

import pytest

from shakedown.gates import Gate, judge_log, read_log
from shakedown.gates.offline import Request, judge_logs
from shakedown.logs.figures import measure
from shakedown.logs.iterations import Iteration, fields, has_preview
from shakedown.state.findings import Verdict
from tests.training_logs import parse, parse_line

OK, FAIL, UNKNOWN = Verdict.OK, Verdict.FAIL, Verdict.UNKNOWN

# Megatron-DeepSpeed, in a reader of its lines.
DEEPSPEED = (
    "7:  iteration        4/   30517 | consumed samples:           64 | elapsed time per iteration (ms): 15232.8 |"
    " learning rate: 6.000E-07 | global batch size:    16 | lm loss: 1.183278E+01 | loss scale: 1.0 |"
    " grad norm: 36.543 | number of skipped iterations:   0 | number of nan iterations:   0 |"
    " samples per second: 1.050 | tokens per gpu per second (tgs): 537.788 | TFLOPs: 25.55 |\n"
)
# Megatron-LM before 2021: a log of GPT-2 with fp16, every 100 iterations.
BEFORE_2021 = (
    " iteration      200/     600 | elapsed time per iteration (ms): 844.2 | learning rate 1.210E-04 |"
    " lm loss 1.112287E-01 | loss scale 8192.0 |\n"
)
# Megatron-LM's pretrain_bert.py, in a public log.
BERT = (
    " iteration      100/  100000 | consumed samples:         3200 | elapsed time per iteration (ms): 2275.1 |"
    " learning rate: 5.880E-05 | global batch size:    32 | lm loss: 9.648865E+00 | sop loss: 6.989935E-01 |"
    " loss scale: 131072.0 | grad norm: 4.622 | number of skipped iterations:  16 | number of nan iterations:   0 |\n"
)
# Megatron-LM's pretrain_ict.py: stats_dict = loss, and top-k accuracies in percent.
ICT = (
    " iteration        7/      20 | consumed samples:          224 | elapsed time per iteration (ms): 512.4 |"
    " learning rate: 9.000E-05 | global batch size:    32 | loss: 3.412345E+00 | top1_acc: 6.250000E+00 |"
    " top5_acc: 2.187500E+01 | loss scale: 65536.0 | grad norm: 2.110 | number of skipped iterations:   0 |"
    " number of nan iterations:   0 |\n"
)
# Mixture of experts with multi-token prediction, in Megatron-LM's documentation.
MTP = (
    "iteration      100/  300000 | consumed samples:         3200 | elapsed time per iteration (ms): 3738.6 |"
    " learning rate: 6.000000E-05 | global batch size:    32 | lm loss: 7.968678E+00 |"
    " load_balancing_loss: 1.329517E+00 | mtp_1 loss: 7.925096E+00 | loss scale: 1.0 |"
    " grad norm: 1.040 | number of skipped iterations:   0 | number of nan iterations:   0 |\n"
)
# GPT-NeoX, in a reader of its lines: what comes before the header is somebody else's to us.
NEOX = (
    " samples/sec: 51.234 | iteration       10/      50 | elapsed time per iteration (ms): 9876.5 |"
    " learning rate: 1.234E-04 | approx flops per GPU: 150.3TFLOPS | lm_loss: 7.123456E+00 | loss scale: 4096.0 |"
    " number of skipped iterations:   0 | number of nan iterations:   0 |\n"
)
# NeMo 2 counts from 0, closes no field, and leaves out what it does not know yet.
NEMO = (
    "0: Training epoch 0, iteration 28/99 | lr: 5.6e-06 | global_batch_size: 32 | global_step: 28 |"
    " reduced_train_loss: 2.778 | train_step_timing in s: 0.189 | consumed_samples: 928 |"
    " val_loss: 2.861 | val_ppl: 17.57\n"
)
NEMO_TFLOPS = (
    "Training epoch 0, iteration 45/99 | lr: 6.897e-06 | global_batch_size: 128 | global_step: 45 |"
    " max_memory_reserved: 127785762816 | max_memory_allocated: 115792977920 | reduced_train_loss: 11.96 |"
    " train_step_timing in s: 6.08 | TFLOPS_per_GPU: 1.249e+03 | consumed_samples: 5888\n"
)
# Megatron-Bridge: the throughput stands on a line of its own, before the iteration's; launchers put a prefix to both.
BRIDGE_STEP = "ain_fp8_mx/0 Step Time : 9.09s GPU utilization: 663.5MODEL_TFLOP/s/GPU\n"
BRIDGE = (
    "ain_fp8_mx/0  [2025-12-22 15:18:33] iteration       50/      50 | consumed samples:        25600 |"
    " elapsed time per iteration (ms): 9089.0 | learning rate: 3.000000E-05 | global batch size:   512 |"
    " lm loss: 8.114214E+00 | load_balancing_loss: 1.000000E+00 | loss scale: 1.0 | grad norm: 0.042 |"
    " number of skipped iterations:   0 | number of nan iterations:   0 |\n"
)
FORMS = {
    "deepspeed": DEEPSPEED,
    "before_2021": BEFORE_2021,
    "bert": BERT,
    "ict": ICT,
    "mtp": MTP,
    "neox": NEOX,
    "nemo": NEMO,
    "nemo_tflops": NEMO_TFLOPS,
    "bridge": BRIDGE,
}


def known(iteration: Iteration) -> dict[str, float]:
    return {name: value for name, value in asdict(iteration).items() if value is not None}


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            DEEPSPEED,
            {
                "iteration": 4,
                "total_iterations": 30517,
                "consumed_samples": 64,
                "elapsed_ms": 15232.8,
                "tflops_per_gpu": 25.55,
                "tokens_per_gpu_per_s": 537.788,
                "samples_per_s": 1.05,
                "learning_rate": 6e-7,
                "global_batch_size": 16,
                "lm_loss": 11.83278,
                "loss_scale": 1.0,
                "grad_norm": 36.543,
                "skipped_iterations": 0,
                "nan_iterations": 0,
            },
        ),
        (
            BEFORE_2021,
            {
                "iteration": 200,
                "total_iterations": 600,
                "elapsed_ms": 844.2,
                "learning_rate": 1.21e-4,
                "lm_loss": 0.1112287,
                "loss_scale": 8192.0,
            },
        ),
        (
            NEMO,
            {
                "iteration": 29,
                "total_iterations": 100,
                "consumed_samples": 928,
                "elapsed_ms": 189.0,
                "learning_rate": 5.6e-6,
                "global_batch_size": 32,
                "lm_loss": 2.778,
            },
        ),
        (
            NEMO_TFLOPS,
            {
                "iteration": 46,
                "total_iterations": 100,
                "consumed_samples": 5888,
                "elapsed_ms": 6080.0,
                "tflops_per_gpu": 1249.0,
                "learning_rate": 6.897e-6,
                "global_batch_size": 128,
                "lm_loss": 11.96,
            },
        ),
        (
            NEOX,
            {
                "iteration": 10,
                "total_iterations": 50,
                "elapsed_ms": 9876.5,
                "tflops_per_gpu": 150.3,
                "learning_rate": 1.234e-4,
                "lm_loss": 7.123456,
                "loss_scale": 4096.0,
                "skipped_iterations": 0,
                "nan_iterations": 0,
            },
        ),
    ],
)
def test_each_field_of_a_form_is_read(line, expected) -> None:
    assert known(parse_line(line)) == expected
    assert read_log([line]).damaged == ()


@pytest.mark.parametrize(("line", "loss"), [(BERT, 9.648865), (ICT, 3.412345), (MTP, 7.968678), (BRIDGE, 8.114214)])
def test_of_several_losses_the_one_that_is_trained_on_is_read(line, loss) -> None:
    assert parse_line(line).lm_loss == loss
    assert read_log([line]).damaged == ()


def test_the_language_models_loss_counts_before_any_other_wherever_it_stands() -> None:
    for line in ("loss: 1.0 | lm loss: 2.0 |", "lm loss: 2.0 | loss: 1.0 |", "lm loss 2.0 | loss: 1.0 |"):
        assert parse_line(f"iteration 1/2 | {line}\n").lm_loss == 2.0


@pytest.mark.parametrize("name", fields())
def test_a_name_of_a_field_is_as_it_is_compared(name) -> None:
    assert name == " ".join(name.split()).lower()
    assert ":" not in name and "|" not in name


# ---------------------------------------------------------------------------------------------------- cut and mixed


@pytest.mark.parametrize("form", FORMS)
def test_a_line_of_any_form_that_is_cut_gives_no_wrong_number(form) -> None:
    line = FORMS[form]
    whole = known(parse_line(line))
    for end in range(len(line)):
        part = parse_line(line[:end])
        assert part is None or known(part).items() <= whole.items(), line[:end]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("intruder", ["[rank5]: UserWarning: x", "W0924 09:43 a | b |", "warning", " 7 "])
def test_output_of_another_rank_in_a_line_of_any_form_gives_no_wrong_number(form, intruder) -> None:
    line = FORMS[form]
    whole = known(parse_line(line))
    header = line.index("|", line.index("iteration"))
    for at in range(header + 1, len(line)):
        mixed = line[:at] + intruder + line[at:]
        part = known(parse_line(mixed))
        assert {name: part[name] for name in part if part[name] != whole.get(name)} == {}, mixed


@pytest.mark.parametrize("form", ["before_2021", "deepspeed", "ict"])
def test_a_loss_that_output_of_another_rank_hit_is_known_to_be_spoilt(form) -> None:
    line = FORMS[form]
    at = line.index("loss") + 8
    log = read_log([line[:at] + "[rank5]: x" + line[at:]])
    assert log.iterations[0].lm_loss is None
    assert log.damaged == (log.iterations[0].iteration,)


# ------------------------------------------------------------------------------------------------------------- NeMo


def nemo(count: int, loss: float = 5.0, first: int = 0) -> list[str]:
    lines = []
    for step in range(count):
        more = "" if step == 0 else f" | consumed_samples: {32 * (step + 1)}"
        lines.append(
            f"Training epoch 0, iteration {step + first}/{count - 1 + first} | lr: 1e-05 | global_batch_size: 32 |"
            f" global_step: {step} | reduced_train_loss: {loss - 0.1 * step:.4} |"
            f" train_step_timing in s: 1.{step}{more}\n"
        )
    return lines


def judged(lines: list[str], **how: object) -> dict[str, Gate]:
    return {gate.name: gate for gate in judge_log(read_log(lines), {}, **how)}


@pytest.mark.parametrize("first", [0, 1])
def test_a_run_of_nemo_is_complete_whether_it_counts_from_0_or_from_1(first) -> None:
    gates = judged(nemo(30, first=first), iterations=30)
    assert gates["iterations_complete"].verdict is OK
    assert gates["iterations_complete"].evidence == "30 lines, 1 to 30 of 30"
    assert {gates[name].verdict for name in ("loss_finite", "loss_falling")} == {OK}
    assert gates["no_skipped_or_nan"].verdict is UNKNOWN, "its lines do not say"
    assert measure(read_log(nemo(30, first=first)).iterations).elapsed_time_per_iteration.count == 27


@pytest.mark.parametrize("missing", [1, 14, 29])
def test_a_run_of_nemo_that_lacks_a_line_is_not_complete(missing) -> None:
    lines = nemo(30)
    gate = judged(lines[:missing] + lines[missing + 1 :])["iterations_complete"]
    assert gate.verdict is FAIL
    assert "1 of 30 lines are missing" in gate.evidence


def test_nemo_counts_on_over_its_epochs() -> None:
    lines = [
        f"Training epoch {step // 5}, iteration {step % 5}/9 | global_step: {step} | reduced_train_loss: {9 - step} |"
        f" consumed_samples: {step}\n"
        for step in range(10)
    ]
    assert [it.iteration for it in parse(lines)] == list(range(1, 11))


def test_a_loss_that_nemo_prints_as_nan_fails() -> None:
    lines = [*nemo(20)[:19], nemo(20)[19].replace("reduced_train_loss: 3.1", "reduced_train_loss: nan")]
    assert math.isnan(list(parse(lines))[-1].lm_loss)
    assert judged(lines)["loss_finite"].verdict is FAIL


def test_a_line_of_nemo_that_was_cut_is_damaged() -> None:
    line = nemo(20)[3]
    assert read_log([line]).damaged == ()
    assert read_log([line[:-1]]).damaged == (4,)
    assert read_log([line[: line.index("timing")] + "\n"]).damaged == (4,)


# -------------------------------------------------------------------------------------------------- Megatron-Bridge


@pytest.mark.parametrize(
    ("step", "tflops"),
    [
        (BRIDGE_STEP, 663.5),
        ("Step Time : 9.09s GPU utilization: 663.5TFLOP/s/GPU\n", 663.5),
        ("Step Time : 9.09s GPU utilization: 663.5 TFLOP/s/GPU\n", 663.5),
        ("Step Time: 9.09s , 32680.36 tok/s/gpu, GPU utilization: 663.5 MODEL_TFLOP/s/GPU , Peak Mem: 64.5GB\n", 663.5),
        (BRIDGE_STEP + "[Rank 0] something else\n\n", 663.5),
        ("Step Time : 9.07s GPU utilization: 663.5MODEL_TFLOP/s/GPU\n", None),  # of another step
        ("Step Time : 9.11s GPU utilization: 663.5MODEL_TFLOP/s/GPU\n", None),
        (BRIDGE_STEP.rstrip("\n"), None),
        ("", None),
    ],
)
def test_the_throughput_on_the_line_before_belongs_to_the_iteration(step, tflops) -> None:
    lines = [line + "\n" for line in step.split("\n")[:-1]] if step.endswith("\n") else [step]
    assert read_log([*lines, BRIDGE]).iterations[0].tflops_per_gpu == tflops


def test_the_throughput_of_one_step_is_not_given_to_the_next() -> None:
    log = read_log([BRIDGE_STEP, BRIDGE, BRIDGE])
    assert [it.tflops_per_gpu for it in log.iterations] == [663.5, None]
    own = BRIDGE.replace("| learning", "| throughput per GPU (TFLOP/s/GPU): 1.5 | learning")
    assert read_log([BRIDGE_STEP, own]).iterations[0].tflops_per_gpu == 1.5
    assert read_log([BRIDGE_STEP, "iteration 1/2 | lm loss: 1.0 |\n"]).iterations[0].tflops_per_gpu is None


# ----------------------------------------------------------------------------------------------- a form not known


def unknown_form(count: int = 20, more: str = "") -> list[str]:
    return [
        f" iteration {i}/{count} | elapsed time per iteration (ms): 650.0 | my objective: {12 - 0.1 * i} |{more}"
        " number of skipped iterations:   0 | number of nan iterations:   0 |\n"
        for i in range(1, count + 1)
    ]


def test_a_form_whose_loss_has_a_name_that_is_not_known_is_unknown_never_nan() -> None:
    gates = judged(unknown_form())
    assert gates["loss_finite"].verdict is UNKNOWN
    assert "the form of these lines is not known" in gates["loss_finite"].evidence
    assert "fields.toml" in gates["loss_finite"].remedy
    assert gates["loss_falling"].verdict is UNKNOWN
    assert gates["iterations_complete"].verdict is OK


@pytest.mark.parametrize("sign", [" grad norm: nan |", " grad norm: inf |"])
def test_where_the_lines_tell_of_nan_in_another_way_it_fails(sign) -> None:
    assert judged(unknown_form(more=sign))["loss_finite"].verdict is FAIL
    assert judged(unknown_form(more=" grad norm: 1.0 |"))["loss_finite"].verdict is UNKNOWN


@pytest.mark.parametrize("count", ["skipped", "nan"])
def test_a_counted_nan_or_skip_fails_in_any_form(count) -> None:
    lines = unknown_form()
    lines[7] = lines[7].replace(f"{count} iterations:   0", f"{count} iterations:   1")
    assert judged(lines)["loss_finite"].verdict is FAIL


def test_one_line_with_a_loss_makes_the_form_known() -> None:
    lines = unknown_form()
    lines[3] = lines[3].replace("my objective", "lm loss")
    gate = judged(lines)["loss_finite"]
    assert gate.verdict is FAIL
    assert "no loss on the line of iterations 1-3, 5-20" in gate.evidence


def test_a_search_for_a_loss_scale_is_no_sign_of_nan_in_a_form_that_is_not_known() -> None:
    lines = [
        f" iteration {i}/20 | loss scale: {2.0 ** (33 - min(i, 5)):.1f} | my objective: 1.0 |"
        f" number of skipped iterations: {int(i <= 5)} | number of nan iterations: 0 |\n"
        for i in range(1, 21)
    ]
    assert judged(lines)["loss_finite"].verdict is UNKNOWN


def test_a_throughput_counts_for_a_step_that_took_the_same_time_but_for_rounding() -> None:
    for elapsed, tflops in (("9090.0", 663.5), ("9090.1", None)):
        line = BRIDGE.replace("9089.0", elapsed)
        (found,) = parse([BRIDGE_STEP.replace("9.09s", "9.08s"), line])
        assert found.tflops_per_gpu == tflops


def test_a_field_that_is_longer_than_any_program_s_is_somebody_else_s() -> None:
    for length, loss in ((200, 2.5), (201, None)):
        field = f" lm loss: {'2.5'.rjust(length - len(' lm loss: '))}"
        assert len(field) == length
        assert parse_line(f" iteration 1/2 |{field}|\n").lm_loss == loss


def test_nemo_s_later_epochs_are_counted_within_themselves_where_no_step_is_told() -> None:
    found = parse_line("Training epoch 1, iteration 3/9 | reduced_train_loss: 2.0\n")
    assert (found.iteration, found.total_iterations) == (4, 10)


@pytest.mark.parametrize(
    ("numbers", "preview"),
    [
        ([1, 10, 20], True),
        ([2, 10, 20], False),
        ([1, 2, 4], False),
        ([1, 10, 21], False),
        ([1, 10], False),
        ([1, 3, 6, 7], True),
    ],
)
def test_a_first_line_ahead_of_its_interval_is_known(numbers: list[int], preview: bool) -> None:
    assert has_preview([Iteration(iteration=number, total_iterations=99) for number in numbers]) is preview


@pytest.mark.parametrize("before", ["", "node07: ", "w-1  | ", "[1,0]<stdout>:", "ain_fp8_mx/0 "])
def test_the_throughput_on_the_line_before_is_read_behind_any_prefix(before: str) -> None:
    (found,) = parse([before + BRIDGE_STEP, "\n", before + BRIDGE])
    assert found.tflops_per_gpu == 663.5


@pytest.mark.parametrize("name", ["lm-loss", "lm_loss", "LM-loss", "lm loss"])
def test_a_loss_with_a_hyphen_is_the_same(name: str) -> None:
    found = parse_line(f" iteration 2/9 | elapsed time per iteration (ms): 42.6 | {name}: 1.1E+01 | grad-norm: 2.0 |\n")
    assert (found.lm_loss, found.grad_norm) == (11.0, 2.0)


_DEEPSPEED = (
    "[2026-11-24 07:00:00,000] [INFO] [logging.py:96:log_dist] [Rank 0] step={0}, skipped={1}, lr=[0.0001], mom=[0.9]\n"
    " iteration {0:8d}/     400 | elapsed time per iteration (ms): 1206.4 | lm loss: {2:.6E} | loss scale: 32768.0 |"
    " grad norm: 2.265 | number of skipped iterations:   0 | number of nan iterations:   0 |\n"
)


@pytest.mark.parametrize(
    ("skipped", "expected"),
    [
        (lambda at: max(0, at - 150), Verdict.FAIL),
        (lambda at: at // 5, Verdict.FAIL),
        (lambda at: min(at, 20), Verdict.OK),
        (lambda at: at // 10, Verdict.OK),
        (lambda at: at // 53, Verdict.OK),  # DeepSpeed-Chat: 139 of 7,360
    ],
)
def test_steps_that_deepspeed_counts_as_skipped_fail(skipped, expected) -> None:
    """Megatron-DeepSpeed says 0 skipped iterations on every line, with pipelines."""
    log = [_DEEPSPEED.format(at, skipped(at), 9 - at / 100) for at in range(1, 401)]
    gate = {gate.name: gate for gate in judge_log(read_log(log), {})}["no_skipped_or_nan"]
    assert gate.verdict is expected
    assert (f"DeepSpeed counts {skipped(400)} of 400 steps as skipped" in gate.evidence) is (expected is Verdict.FAIL)


@pytest.mark.parametrize(("interval", "expected"), [(100, Verdict.UNKNOWN), (10, Verdict.FAIL)])
def test_a_job_that_ends_before_its_log_interval_is_unknown(interval, expected) -> None:
    log = [
        f"  log_interval .................................... {interval}\n",
        "  tensorboard_log_interval ........................ 500\n",
        "  train_iters ..................................... 50\n",
        "[before the start of training step] datetime: 2026-11-24 07:00:00 \n",
        "[after training is done] datetime: 2026-11-24 07:01:00 \n",
    ]
    gates = judge_logs({"log": read_log(log)}, Request())[0].gates
    assert {gate.verdict for gate in gates if gate.name in ("iterations_complete", "loss_finite")} == {expected}
    assert ("one for 100 iterations, and has 50" in gates[0].evidence) is (interval == 100)
