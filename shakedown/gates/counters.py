"""Whether an error counter rose while the job ran."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeGuard

from shakedown.catalogue import advice
from shakedown.gates.model import Outcome, some
from shakedown.gates.registry import gate
from shakedown.state.findings import Verdict


@gate
def counters(before: Mapping[str, Mapping[str, Any]], after: Mapping[str, Mapping[str, Any]]) -> Outcome:
    """No error counter of any node is higher after the run than before.

    Both are node -> counter -> count. Anything but a count (an `Unreadable`), and a counter or node that is missing on
    one side, is unknown; so is one that is lower afterwards: it was reset, and what it had counted is lost.
    """
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
    said = [f"risen: {some([f'{label} {change}' for label, change in risen.items()])}"] if risen else []
    said += [f"reset during the run: {some(reset)}"] if reset else []
    said += [f"not read: {some(unseen)}"] if unseen else []
    said += ["no counter was read"] if not compared and not unseen else []
    return Outcome(
        verdict=verdict,
        wanted="none higher than before",
        actual=risen,
        evidence="; ".join(said) or f"{compared} counters, none higher than before",
        remedy=None if verdict is Verdict.OK else advice("counters"),
    )


def _is_count(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)
