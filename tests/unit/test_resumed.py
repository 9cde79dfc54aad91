"""The gate on a checkpoint, and a training that really goes on from one."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from shakedown.gates import Gate, judge_log, read_log
from shakedown.gates.iterations import checkpoint_resumed, iterations_complete
from shakedown.gates.judge import _spec
from shakedown.logs.iterations import Iteration
from shakedown.state.findings import Verdict
from tests import torchrun
from tests.gates import training
from tests.plans import small

OK, FAIL, UNKNOWN = Verdict.OK, Verdict.FAIL, Verdict.UNKNOWN


def curve(*losses: float | None) -> list[Iteration]:
    return [Iteration(iteration=at, total_iterations=len(losses), lm_loss=loss) for at, loss in enumerate(losses, 1)]


def seen(losses: list[float | None], **fields: Any) -> Any:
    return checkpoint_resumed(training(curve(*losses), **({"saved": 2, "loaded": 2} | fields)))


@pytest.mark.parametrize(
    ("losses", "verdict"),
    [
        ([5.0, 4.0, 3.9, 3.8], OK),
        ([5.0, 4.0, 4.2, 3.8], OK),  # 4.0 x 1.05
        ([5.0, 4.0, 4.21, 3.8], FAIL),
        ([5.0, 4.0, 5.5, 3.8], FAIL),
        ([5.0, 4.0, None, 3.8], FAIL),
        ([5.0, float("inf"), 4.0, 3.8], FAIL),
        ([None, None, None, 4.0], UNKNOWN),  # the search for a loss scale went on
        ([5.0, 4.0], UNKNOWN),
        ([5.0], UNKNOWN),
    ],
)
def test_the_first_loss_after_the_checkpoint_is_judged_by_the_last_before_it(losses: Any, verdict: Verdict) -> None:
    assert seen(losses).verdict is verdict


@pytest.mark.parametrize("lacking", [{"saved": None}, {"loaded": None}, {"saved": 1}, {"loaded": 1}])
def test_a_checkpoint_that_was_asked_for_has_to_be_in_the_log(lacking: dict[str, int | None]) -> None:
    base = training(curve(5.0, 4.0, 3.9), **({"saved": 2, "loaded": 2} | lacking))
    found = checkpoint_resumed(replace(base, resume_at=2))
    assert found is not None and found.verdict is FAIL and "no line says" in found.evidence


def test_without_a_checkpoint_nothing_is_judged() -> None:
    assert seen([5.0, 4.0, 3.9], saved=None, loaded=None) is None
    assert seen([5.0, 4.0, 3.9], saved=3, loaded=2) is None, "it went on from an earlier run's"


def test_the_options_of_a_plan_reach_the_gate() -> None:
    smoke = {"options": {"resume_at": 7, "resume_rtol": 0.2}}
    assert _spec(small()).resume_at is None
    spec = _spec(small(**smoke))
    assert (spec.resume_at, spec.resume_rtol) == (7, 0.2)


def gates(output: str, **spec: Any) -> dict[str, Gate]:
    return {gate.name: gate for gate in judge_log(read_log(output.splitlines(keepends=True)), {}, **spec)}


@pytest.mark.parametrize("options", ["", pytest.param("--fp16 --initial-loss-scale 4096", marks=pytest.mark.long)])
def test_a_training_goes_on_from_its_checkpoint_as_if_it_had_not_stopped(options: str) -> None:
    code, output = torchrun.train_forked(f"{torchrun.TINY} --lr 5e-3 --train-iters 8 --resume-at 4 {options}")
    assert code == 0, output
    _, whole = torchrun.train_forked(f"{torchrun.TINY} --lr 5e-3 --train-iters 8 {options}")
    losses = [[line.lm_loss for line in torchrun.iterations(each)] for each in (output, whole)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)
    found = gates(output, iterations=8, resume_at=4)
    assert found["checkpoint_resumed"].verdict is OK and found["iterations_complete"].verdict is OK
    assert gates(whole, iterations=8, resume_at=4)["checkpoint_resumed"].verdict is FAIL
    assert all(later < earlier for earlier, later in pairwise(losses[0]))  # type: ignore[operator]


def test_a_checkpoint_beyond_the_end_is_refused() -> None:
    code, output = torchrun.train_forked(f"{torchrun.TINY} --train-iters 4 --resume-at 4", ranks=1)
    assert code != 0 and "--resume-at: 4 is not between" in output
    assert iterations_complete(training(curve(5.0, 4.0), loaded=2, saved=2)).verdict is OK


def test_another_nodes_words_about_the_checkpoint_count_for_nothing() -> None:
    base = replace(training(curve(5.0, 4.0, 3.9), saved=2, loaded=2), resume_at=2)
    own = base.shape.model_copy(update={"saved": None, "loaded": None})
    lied = checkpoint_resumed(replace(base, printed=own))
    assert lied is not None and lied.verdict is FAIL
    spoilt = base.shape.model_copy(update={"saved": 999})
    assert (told := checkpoint_resumed(replace(base, shape=spoilt, printed=base.shape))) and told.verdict is OK
