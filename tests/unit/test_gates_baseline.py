"""The gates of earlier runs and of what nodes do alone: what they are given, what they say, and judging again."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any

import numpy as np
import pytest

from bench.baselines import FAMILIES, correlated
from shakedown import gates
from shakedown.gates import Gate, Observed
from shakedown.gates.baselines.judge import peers_of
from shakedown.gates.baselines.model import MOST, Earlier, Past
from shakedown.gates.observed import Alone, Expected, OneAlone, Speed
from shakedown.logs.figures import Figures, measure
from shakedown.logs.iterations import Iteration
from shakedown.state.findings import Verdict

BEGIN = datetime(2026, 9, 1, tzinfo=UTC)
HERE, THERE = "image sha256:aa, ROCm 6.4.1, amdgpu 6.12.12", "image sha256:bb, ROCm 6.3.0, amdgpu 6.10.5"
STEADY = (386.1, 384.9, 385.4, 383.8, 385.9, 386.4, 384.2, 385.0, 385.7, 384.6)


def earlier(*values: float, epoch: str = HERE, first: int = 0, **more: float) -> list[Earlier]:
    return [
        Earlier(
            run_id=f"r{first + number}",
            at=BEGIN + timedelta(days=first + number),
            figures={"throughput_per_gpu": value, **more},
            epoch=epoch,
        )
        for number, value in enumerate(values)
    ]


def figures(tflops: float, ms: float | None = None) -> Figures:
    lines = [
        Iteration(iteration=number, total_iterations=6, tflops_per_gpu=tflops, elapsed_ms=ms, lm_loss=1.0)
        for number in range(1, 7)
    ]
    return measure(lines)


def judged(past: Past, tflops: float) -> list[Gate]:
    return gates.judge(Observed(speed=Speed(figures(tflops)), expected=Expected(past=past)))


def test_a_figure_is_judged_by_earlier_runs_of_its_epoch() -> None:
    known = [*earlier(500.0, 501.0, epoch=THERE), *earlier(*STEADY, first=2)]
    past = Past.of(known, HERE, judge=True)
    (ok,) = judged(past, 385.0)
    assert (ok.name, ok.verdict, ok.remedy) == ("baseline.throughput_per_gpu", Verdict.OK, None)
    (bad,) = judged(past, 366.0)
    assert (bad.verdict, bad.actual) == (Verdict.FAIL, 366.0) and bad.remedy and "smoke.baseline_since" in bad.remedy
    assert 370 < bad.wanted < 384
    for said in ("10 runs before: 385.", HERE, "r11, r10, r9", f"earlier runs of another baseline: 2 with {THERE}"):
        assert said in bad.evidence
    assert "the last 1" not in bad.evidence


def test_runs_that_fade_together_are_named() -> None:
    past = Past.of(earlier(*STEADY, *STEADY, 376.0, 376.0, 376.0, 376.0), HERE, judge=True)
    (gate,) = judged(past, 376.0)
    assert gate.verdict is Verdict.FAIL and "runs (" in gate.evidence and "r23, this one) are at" in gate.evidence


@pytest.mark.parametrize(("count", "judge"), [(4, True), (10, False)])
def test_too_few_runs_and_runs_for_information_are_no_gate(count: int, judge: bool) -> None:
    past = Past.of(earlier(*STEADY[:count]), HERE, judge=judge)
    assert judged(past, 100.0) == []


def test_a_changed_driver_begins_a_new_baseline() -> None:
    past = Past.of([*earlier(*STEADY), *earlier(360.0, 361.0, epoch=THERE, first=10)], THERE, judge=True)
    assert [run.run_id for run in past.earlier] == ["r10", "r11"] and past.others == {HERE: 10}
    assert judged(past, 330.0) == []
    assert past.new_epoch == f"a new baseline begins with {THERE}; earlier runs of another baseline: 10 with {HERE}"


def test_a_day_begins_a_new_baseline() -> None:
    past = Past.of(earlier(*STEADY), HERE, judge=True, since=date(2026, 9, 4))
    assert past.earlier[0].run_id == "r3"
    (gate,) = judged(past, 385.0)
    assert "since 2026-09-04 (smoke.baseline_since)" in gate.evidence
    accepted = Past.of(earlier(*STEADY), HERE, judge=True, since=date(2026, 9, 4), by="A. Smith")
    assert "since 2026-09-04 (smoke.baseline_since, accepted by A. Smith)" in judged(accepted, 385.0)[0].evidence


def test_the_newest_runs_count_and_are_kept() -> None:
    past = Past.of(earlier(*[385.0] * (MOST + 30)), HERE, judge=True)
    assert len(past.earlier) == MOST and past.earlier[-1].run_id == f"r{MOST + 29}"
    assert Past.model_validate_json(past.model_dump_json()) == past


def test_a_figure_that_only_earlier_runs_have_is_unknown() -> None:
    past = Past.of(earlier(*STEADY, elapsed_time_per_iteration=900.0), HERE, judge=True)
    found = {gate.name: gate for gate in judged(past, 385.0)}
    assert found["baseline.throughput_per_gpu"].verdict is Verdict.OK
    assert found["baseline.elapsed_time_per_iteration"].verdict is Verdict.UNKNOWN


def test_earlier_runs_that_nobody_knows_are_unknown() -> None:
    (gate,) = gates.judge(
        Observed(expected=Expected(past=Past(judge=True, problem="ledger.sqlite: permission denied")))
    )
    assert (gate.verdict, gate.evidence) == (Verdict.UNKNOWN, "ledger.sqlite: permission denied") and gate.remedy


def rack_of(noise: float, nodes: int = 8, runs: int = 5) -> dict[str, Past]:
    random = np.random.default_rng(3)
    values = 400 * (1 + noise * random.standard_normal((nodes, runs)))
    return {f"n{number}": Past.of(earlier(*row), HERE, judge=True) for number, row in enumerate(values)}


def test_nodes_that_do_the_same_know_how_noisy_each_of_them_is() -> None:
    noisy, quiet = rack_of(0.04), rack_of(0.001)
    for pasts in (noisy, quiet):
        for node, peers in peers_of(pasts).items():
            pasts[node].peers = peers
    told = noisy["n0"].peers["throughput_per_gpu"]
    assert told.nodes == 7 and told.noise == pytest.approx(0.04, rel=0.35)
    past = Past(judge=True, epoch=HERE, earlier=Past.of(earlier(400.0, 400.1, 399.9, 400.0, 400.2), HERE, True).earlier)
    among_noisy = past.model_copy(update={"peers": noisy["n0"].peers})
    among_quiet = past.model_copy(update={"peers": quiet["n0"].peers})
    verdicts = [judged(each, 390.0)[0].verdict for each in (among_noisy, past, among_quiet)]
    assert verdicts == [Verdict.OK, Verdict.OK, Verdict.FAIL]
    assert "7 other nodes differ by 0." in judged(among_quiet, 390.0)[0].evidence


def test_two_nodes_know_nothing_of_each_other() -> None:
    assert peers_of(rack_of(0.04, nodes=3)) == {"n0": {}, "n1": {}, "n2": {}}


def alone(share: float = 0.9, **nodes: Any) -> Alone:
    return Alone(
        share=share,
        nodes={
            name: OneAlone(runs=["r1"], ranks=8, figures=each) if each is not None else None
            for name, each in nodes.items()
        },
    )


def scaling(given: Alone, tflops: float) -> Gate:
    (gate,) = gates.judge(Observed(speed=Speed(figures(tflops), ranks=16), expected=Expected(alone=given)))
    return gate


def test_nodes_together_are_held_against_their_sum_alone() -> None:
    given = alone(a={"throughput_per_gpu": 400.0}, b={"throughput_per_gpu": 390.0})
    good, bad = scaling(given, 380.0), scaling(given, 340.0)
    assert (good.verdict, good.wanted) == (Verdict.OK, 0.9) and good.actual == pytest.approx(380 / 395)
    assert bad.verdict is Verdict.FAIL and bad.remedy
    for said in ("5440 TFLOP/s together", "6320 alone", "a 3200, b 3120", "alone in r1"):
        assert said in bad.evidence


@pytest.mark.parametrize("missing", [None, {}, {"tokens_per_gpu": 9.0}])
def test_scaling_is_unknown_without_every_nodes_own_figure(missing: dict[str, float] | None) -> None:
    gate = scaling(alone(a={"throughput_per_gpu": 400.0}, b=missing), 380.0)
    assert gate.verdict is Verdict.UNKNOWN and "nothing of b alone" in gate.evidence


def test_scaling_fails_where_one_metric_falls_short_whatever_the_other_lacks() -> None:
    given = alone(
        a={"throughput_per_gpu": 400.0, "tokens_per_gpu": 9.0}, b={"throughput_per_gpu": 400.0, "tokens_per_gpu": 9.0}
    )
    assert scaling(given, 300.0).verdict is Verdict.FAIL
    assert scaling(given, 399.0).verdict is Verdict.UNKNOWN


def test_a_figure_that_is_rounded_to_nothing_is_not_compared() -> None:
    gate = scaling(alone(a={"throughput_per_gpu": 0.0}, b={"throughput_per_gpu": 400.0}), 380.0)
    assert gate.verdict is Verdict.UNKNOWN and "rounded" in gate.evidence


def worse(runs: list[Earlier], *places: int) -> list[Earlier]:
    """Runs of which some were worse than their baseline."""
    return [
        run.model_copy(update={"worse": ["throughput_per_gpu"]}) if at in places else run for at, run in enumerate(runs)
    ]


def test_a_new_level_fails_twice_is_reported_once_and_then_a_warning() -> None:
    verdicts, evidence, places = [], [], []
    runs = earlier(*STEADY)
    for _ in range(20):
        (gate,) = judged(Past.of(worse(runs, *places), HERE, judge=True), 366.0)
        verdicts.append(str(gate.verdict))
        evidence.append(gate.evidence)
        places.append(len(runs))
        runs = earlier(*STEADY, *[366.0] * len(places))
    assert verdicts == ["fail"] * 2 + ["warn"] * 18, "no lock-in"
    assert [at for at, text in enumerate(evidence) if "the level has changed, since run r10" in text] == [1]
    assert "again at the level that was reported, since run r10" in evidence[2]


def test_what_is_worse_than_a_reported_level_fails() -> None:
    runs = worse(earlier(*STEADY, 366.0, 366.4), 10, 11)
    (gate,) = judged(Past.of(runs, HERE, judge=True), 340.0)
    assert gate.verdict is Verdict.FAIL


def test_a_clock_that_comes_back_to_a_reported_level_does_not_fail_again() -> None:
    runs = worse(earlier(*STEADY, 366.0, 366.4, 385.1, 384.9), 10, 11)
    assert [str(gate.verdict) for gate in judged(Past.of(runs, HERE, judge=True), 366.2)] == ["warn"]
    once = worse(earlier(*STEADY, 366.0, 385.1, 384.9), 10)
    assert [str(gate.verdict) for gate in judged(Past.of(once, HERE, judge=True), 366.2)] == ["fail"], (
        "once is no level"
    )


def test_runs_that_were_worse_are_in_no_baseline() -> None:
    runs = worse(earlier(*STEADY, *[366.0] * 8), *range(10, 18))
    (gate,) = judged(Past.of(runs, HERE, judge=True), 385.0)
    assert gate.verdict is Verdict.OK and "10 runs before: 385." in gate.evidence


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.long] if at else []) for at, name in enumerate(FAMILIES)]
)
def test_correlated_noise_fails_few_runs_and_hides_no_loss(name: str) -> None:
    """docs/developers/accuracy.md has the figures of more series."""
    failed, found = correlated(name, series=12)
    assert failed <= 0.025, "2 %, and what 12 series differ by"
    assert found >= 0.7
