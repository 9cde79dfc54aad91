"""No GPU computes more than its peak."""

from __future__ import annotations

import pytest

from shakedown.common.data import kept_toml
from shakedown.gates import Gate, NodeLog, judge_log, read_log
from shakedown.gates.offline import Request, judge_logs
from shakedown.logs.job_shape import JobShape
from shakedown.logs.metrics import PRECISIONS, peak
from shakedown.state.findings import Verdict

OK, FAIL = Verdict.OK, Verdict.FAIL
NAME = "possible_throughput"


def log(tflops: float | str, *head: str, field: str = "throughput per GPU (TFLOP/s/GPU)") -> NodeLog:
    lines = [
        f" iteration {at:8d}/      20 | elapsed time per iteration (ms): 650.0 | {field}: {tflops} |"
        f" global batch size:    16 | lm loss: {9 - at / 10:.6E} | number of skipped iterations:   0 |"
        " number of nan iterations:   0 |\n"
        for at in range(1, 21)
    ]
    return read_log([*(line + "\n" for line in head), *lines])


def judged(given: NodeLog, **asked: object) -> Gate | None:
    gates = judge_logs({"log": given}, Request(**asked))[0].gates  # type: ignore[arg-type]
    return next((gate for gate in gates if gate.name == NAME), None)


@pytest.mark.parametrize(
    ("tflops", "head", "asked", "verdict"),
    [
        (11_000, [], {}, FAIL),  # above every GPU's peak in any precision
        (10_000, [], {}, OK),
        (2700, [], {"gpu": "mi300x"}, FAIL),
        (1443, [], {"gpu": "mi300x"}, OK),  # FP8, perhaps
        (1443, ["  bf16 ............................ True"], {"gpu": "mi300x"}, FAIL),
        (1443, ["  bf16 ............................ True", "  fp8 .................. hybrid"], {"gpu": "mi300x"}, OK),
        (1443, ["  bf16 ............................ True", "  fp8 .................. None"], {"gpu": "mi325x"}, FAIL),
        (1443, ["0: GPU: AMD Instinct MI300X OAM", "  bf16 .............. True"], {}, FAIL),
        (2600, ["0: GPU: AMD Instinct MI355X", "  bf16 .............. True"], {}, FAIL),
        (2500, ["0: GPU: AMD Instinct MI355X", "  bf16 .............. True"], {}, OK),
        (5100, ["0: GPU: AMD Instinct MI355X", "  fp8 ............... e4m3"], {}, FAIL),
        ("inf", [], {}, FAIL),
    ],
)
def test_a_throughput_is_held_against_the_peak(
    tflops: float | str, head: list[str], asked: dict[str, str], verdict: Verdict
) -> None:
    gate = judged(log(tflops, *head), expect={"throughput_per_gpu": 100}, **asked)
    assert gate is not None and gate.verdict is verdict, gate
    assert "data sheet" in gate.evidence and "dense peak" in gate.evidence


def test_one_line_that_no_gpu_can_do_is_enough() -> None:
    one = log(400)
    lines = list(one.iterations)
    lines[9] = lines[9].__class__(10, 20, elapsed_ms=1.0, lm_loss=8.0, tflops_per_gpu=40_000)
    gate = judged(one.model_copy(update={"iterations": tuple(lines)}))
    assert gate is not None and gate.verdict is FAIL and "iteration 10;" in gate.evidence


MODEL = [
    "  num_layers ...................................... 32",
    "  hidden_size ..................................... 4096",
    "  ffn_hidden_size ................................. 14336",
    "  padded_vocab_size ............................... 128256",
    "  bf16 ............................................ True",
]


@pytest.mark.parametrize(("tokens", "verdict"), [(12_000, OK), (200_000, FAIL)])
def test_tokens_are_converted_where_the_log_states_the_model(tokens: float, verdict: Verdict) -> None:
    given = log(tokens, *MODEL, field="tokens/sec/GPU")
    gate = judged(given, gpu="mi300x")
    assert gate is not None and gate.verdict is verdict, gate
    derived = judged(log(0.0, *MODEL, field="x"), seq_length=8192 * (1 if verdict is OK else 200), world_size=8)
    assert derived is not None and derived.verdict is verdict


@pytest.mark.parametrize(("field", "value", "verdict"), [("tokens/s", 96_000, OK), ("tokens/s", 1_600_000, FAIL)])
def test_what_lines_tell_of_all_gpus_is_converted(field: str, value: float, verdict: Verdict) -> None:
    size = [
        "  world_size ...................................... 8",
        "  seq_length ...................................... 8192",
    ]
    for name, told in ((field, value), ("samples per second", value / 8192)):
        gate = judged(log(told, *MODEL, *size, field=name), gpu="mi300x", iterations=20)
        assert gate is not None and gate.verdict is verdict, gate
        assert (f"{value / 8:.6g} tokens/s/GPU" in gate.evidence) is (verdict is FAIL)


@pytest.mark.parametrize("time", ["0.0", "-650.0", "nan", "inf"])
def test_an_iteration_takes_time(time: str) -> None:
    lines = [
        f" iteration {at:8d}/      20 | elapsed time per iteration (ms): {time if at == 7 else 650.0} |"
        f" lm loss: {9 - at / 10:.6E} | number of skipped iterations:   0 | number of nan iterations:   0 |\n"
        for at in range(1, 21)
    ]
    gate = judged(read_log(lines))
    assert gate is not None and gate.verdict is FAIL and "ms at iteration 7" in gate.evidence


@pytest.mark.parametrize("tflops", ["nan", "-5.0"])
def test_a_throughput_is_a_number_above_0(tflops: str) -> None:
    gate = judged(log(tflops))
    assert gate is not None and gate.verdict is FAIL and "TFLOP/s/GPU at iteration 3" in gate.evidence


def test_a_token_costs_less_than_any_formula_says() -> None:
    llama_8b = JobShape(layers=32, hidden_size=4096, ffn_hidden_size=14336, vocabulary=128256)
    assert 0.3 * 6 * 8.03e9 < (llama_8b.token_flops or 0) < 6 * 8.03e9
    assert JobShape(layers=32).token_flops is None


def test_a_log_without_a_throughput_is_not_asked() -> None:
    assert NAME not in [gate.name for gate in judge_log(log(0.0, field="x"), {})]


def test_every_peak_has_its_source_and_the_fastest_precision_is_the_fastest() -> None:
    for gpu, entry in kept_toml("shakedown.logs", "peaks.toml").items():
        assert entry["source"] and set(entry) <= {*PRECISIONS, "source"}
        speeds = [float(entry[each]) for each in PRECISIONS if each in entry]
        assert speeds == sorted(speeds, reverse=True), gpu
    assert peak().gpu == "mi355x" and peak(["mi300x", "nobody's"]).gpu == "mi355x"
    assert peak(["mi300x", "mi355x"]).gpu == "mi355x", "of several the fastest"
