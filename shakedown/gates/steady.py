"""Whether the iterations follow each other evenly."""

from shakedown.catalogue import advice
from shakedown.common.text import counted, decimal
from shakedown.gates.model import Outcome
from shakedown.gates.observed import Speed
from shakedown.gates.registry import gate
from shakedown.gates.steadiness import BAD, steadiness
from shakedown.gates.thresholds import threshold
from shakedown.state.findings import Verdict


@gate
def steady(speed: Speed) -> Outcome | None:
    """Steady iterations follow each other evenly. Statistic: the share of lines that take more than 1.33 times
    the median, the longest stretch of them in a row, and the median over the slowest of the fastest tenth.

    With fewer judged lines than `steady.least` the gate is skipped. Times that scatter on the fast side as well, as of
    sequences of unequal length, are unknown. So are times that the lines' own clock contradicts.
    """
    paces, clock = speed.paces, speed.clock
    if paces is None:
        return None
    seen = steadiness(paces)
    texts = [
        f"{seen.slow} of {counted(seen.lines, 'judged line')} took more than {threshold('steady.slow'):g} x the median"
        f" ({seen.share:.0%})"
    ]
    if seen.at is not None and seen.longest > paces.interval:
        texts.append(f"the longest slow stretch is {counted(seen.longest, 'iteration')} from {seen.at} on")
    texts.append(
        f"the mean is {decimal(seen.mean, 3)} x the median, the median {decimal(seen.usual, 3)} x the fastest tenth"
    )
    texts += [clock] if clock else []
    even = seen.word == "even" and not clock
    verdict = Verdict.FAIL if seen.word in BAD else Verdict.OK if even else Verdict.UNKNOWN
    return Outcome(
        verdict=verdict,
        wanted=f"at most {threshold('steady.share'):.0%} slow",
        actual=f"{seen.word}: {seen.share:.0%}" if seen.slow else seen.word,
        evidence="; ".join(texts),
        remedy=advice("slow" if verdict is Verdict.FAIL else "uneven"),
    )
