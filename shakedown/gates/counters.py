"""Whether an error counter rose while the job ran."""

from collections.abc import Mapping
from statistics import median
from typing import Any, TypeGuard

from shakedown.catalogue import advice
from shakedown.common.data import read_toml
from shakedown.gates.model import Outcome, some
from shakedown.gates.observed import Counters
from shakedown.gates.registry import gate
from shakedown.state.findings import Verdict


@gate
def counters(counters: Counters) -> Outcome:
    """No error counter of any node is higher after the run than before.

    Of counters that healthy ports raise too (counters.toml) a growth counts that is beyond that of the other ports.

    A value that is no count, and a counter or node that is missing on one side, is unknown. So is a counter that is
    lower afterwards: it was reset, and what it had counted is lost.
    """
    before, after = counters.before, counters.after
    growth: dict[str, dict[str, int]] = {}  # counter -> label -> growth
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
            growth.setdefault(name.rpartition("/")[2], {})[label] = is_now - was
            if is_now > was:
                risen[label] = f"{was} -> {is_now}"
            elif is_now < was:
                reset.append(f"{label} {was} -> {is_now}")
    usual = {label: change for label, change in risen.items() if _is_usual(label, growth)}
    risen = {label: change for label, change in risen.items() if label not in usual}
    verdict = Verdict.FAIL if risen else Verdict.UNKNOWN if unseen or reset or not compared else Verdict.OK
    texts = [f"risen: {some([f'{label} {change}' for label, change in risen.items()])}"] if risen else []
    texts += (
        [f"risen as on other ports: {some([f'{label} {change}' for label, change in usual.items()])}"] if usual else []
    )
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


def _is_usual(label: str, growth: Mapping[str, Mapping[str, int]]) -> bool:
    """Return whether a counter's growth is one that healthy ports show."""
    known = read_toml("shakedown.gates", "counters.toml")
    name = label.rpartition("/")[2]
    if name not in known["repaired"]:
        return False
    others = [count for other, count in growth[name].items() if other != label]
    most: float = known["factor"] * median(others) if others else 0
    return bool(growth[name][label] <= max(most, known["least"]))


def _is_count(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)
