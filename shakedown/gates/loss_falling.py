"""Whether the loss falls, and stays where it has fallen to."""

from shakedown.catalogue import advice
from shakedown.common.text import counted
from shakedown.gates.iterations import is_loss
from shakedown.gates.loss_curve import BAD, Point, curve
from shakedown.gates.model import Outcome
from shakedown.gates.observed import Training
from shakedown.gates.registry import gate
from shakedown.logs.loss_scale import loss_scale
from shakedown.state.findings import Verdict


@gate
def loss_falling(training: Training) -> Outcome:
    """Loss falls by more than its scatter and stays down. Statistic: levels, each the median of an eighth of the
    losses (3 at least; of fewer than 8 losses each one), at the start, the best and at the end.

    A rise or a jump that does not come back, an oscillation, a plateau of random weights, the same value on every line
    and values that are no cross-entropy fail, each in its own words. Too few losses, lines too coarse to show a fall,
    a flat loss of a model that was trained before, and a spike or a rise on the last lines are unknown. So is a curve
    with a loss that is missing or not finite; the iterations that the search for a loss scale skipped are none of it.
    """
    iterations = training.iterations
    points = [
        Point(line.iteration, line.lm_loss, line.learning_rate)
        for line in iterations
        if line.lm_loss is not None and is_loss(line.lm_loss)
    ]
    holes = len(iterations) - len(points) - len(loss_scale(iterations).barren)
    if training.shape.reinforced:
        return Outcome(
            verdict=Verdict.UNKNOWN,
            wanted="a loss that falls",
            evidence="the job learns by reinforcement: its loss is no cross-entropy, and need not fall",
            remedy=advice("flat_loss"),
        )
    if len({point.iteration for point in points}) < len(points):
        return Outcome(
            verdict=Verdict.UNKNOWN,
            wanted="a loss that falls",
            evidence="iterations are in the log twice",
            remedy=advice("unfinished"),
        )
    seen = curve(points, training.shape.vocabulary)
    verdict = Verdict.FAIL if seen.word in BAD else Verdict.UNKNOWN if seen.word != "falls" or holes else Verdict.OK
    missing = f"; no finite loss in {counted(holes, 'iteration')}, so the curve proves nothing" if holes else ""
    return Outcome(
        verdict=verdict,
        wanted="a loss that falls",
        actual=f"{seen.word}: {-seen.share:+.1%}" if seen.share else seen.word,
        evidence=seen.text + missing,
        remedy=advice("loss" if verdict is Verdict.FAIL else "flat_loss"),
    )
