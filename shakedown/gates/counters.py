"""Whether an error counter rose while the job ran."""

from typing import Any, TypeGuard

from shakedown.catalogue import advice
from shakedown.gates.model import Outcome, some
from shakedown.gates.observed import Counters
from shakedown.gates.registry import gate
from shakedown.state.findings import Verdict


@gate
def counters(counters: Counters) -> Outcome:
    """No error counter of any node is higher after the run than before.

    A value that is no count, and a counter or node that is missing on one side, is unknown. So is a counter that is
    lower afterwards: it was reset, and what it had counted is lost.
    """
    before, after = counters.before, counters.after
    risen, unseen, reset, compared = {}, [], [], 0
    for node in dict.fromkeys([*before, *after]):
        if node not in before or node not in after:
            unseen.append(f"{node} ({'before' if node not in before else 'after'} the run)")
            continue
        for name in dict.fromkeys([*before[node], *after[node]]):
            was, is_now = before[node].get(name), after[node].get(name)
            label = f"{node}: {name}"
            if not _is_count(was) or not _is_count(is_now):
                unseen.append(f"{label} ({'after' if _is_count(was) else 'before'} the run)")
                continue
            compared += 1
            if is_now > was:
                risen[label] = f"{was} -> {is_now}"
            elif is_now < was:
                reset.append(f"{label} {was} -> {is_now}")
    verdict = Verdict.FAIL if risen else Verdict.UNKNOWN if unseen or reset or not compared else Verdict.OK
    texts = [f"risen: {some([f'{label} {change}' for label, change in risen.items()])}"] if risen else []
    texts += [f"reset during the run: {some(reset)}"] if reset else []
    texts += [f"not read: {some(unseen)}"] if unseen else []
    texts += ["no counter was read"] if not compared and not unseen else []
    return Outcome(
        verdict=verdict,
        wanted="none higher than before",
        actual=risen,
        evidence="; ".join(texts) or f"{compared} counters, none higher than before",
        remedy=advice("counters"),
    )


def _is_count(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)
