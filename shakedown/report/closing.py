"""How a run ended, in a few lines that are the same for every command and every ending: the verdict, what became of
each node and why, what was changed, and where the evidence is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from shakedown.findings import Verdict
from shakedown.text import printable

if TYPE_CHECKING:
    from shakedown.smoke.gates import Gate

Became = Literal["failed", "interrupted", "unreached", "excluded", "fail", "unknown", "drift", "ok"]
ORDER: tuple[Became, ...] = ("failed", "interrupted", "unreached", "excluded", "fail", "unknown", "drift", "ok")
NAMED = 8  # of the nodes of which the same is to be said; the others are a number
WHY = 500  # characters of one reason


@dataclass(frozen=True)
class Fate:
    """What became of a node; `why` where there is something to be said of it."""

    node: str
    became: Became
    why: str = ""
    under_way: bool = False  # an operation was at work on it when the run ended


@dataclass(frozen=True)
class Ending:
    """All that is said at the end of a run."""

    verdict: Verdict
    fates: Sequence[Fate] = ()
    changed: Mapping[str, Sequence[str]] = field(default_factory=dict)  # node -> operations
    unfinished: Mapping[str, str] = field(default_factory=dict)  # node -> the operation that it did not get through
    gates: Sequence[str] = ()  # those that did not hold
    new_keys: Mapping[str, str] = field(default_factory=dict)  # node -> the key that was taken for the first time
    error: str = ""  # what ended the run before its end
    lacking: Sequence[str] = ()  # what was asked for besides, and is not there
    warnings: Mapping[str, Sequence[str]] = field(default_factory=dict)  # node -> the findings that are advice
    evidence: str = ""
    dry: bool = False
    interrupted: bool = False


def closing(ending: Ending) -> Iterator[str]:
    """The lines, as they may reach a terminal."""
    yield f"verdict: {ending.verdict}{' (interrupted)' if ending.interrupted else ''}"
    if ending.error:
        yield f"  ended by {printable(ending.error, WHY)}"
    yield from (f"  {printable(lack, WHY)}" for lack in ending.lacking)
    alike: dict[tuple[int, str], list[str]] = {}
    for fate in ending.fates:
        alike.setdefault((ORDER.index(fate.became), fate.why), []).append(fate.node)
    for (became, why), nodes in sorted(alike.items()):
        yield f"  {ORDER[became]}: {_listed(nodes)}{f': {printable(why, WHY)}' if why else ''}"
    yield from _warnings(ending.warnings)
    if ending.gates:
        yield f"  gates that did not hold: {_listed(ending.gates)}"
    yield from _changes(ending)
    if ending.interrupted and any(fate.became == "interrupted" and fate.under_way for fate in ending.fates):
        yield "what was under way on those nodes ends there by itself, within its time limit"
    for node, key in ending.new_keys.items():
        yield f"new host key of {printable(node)}, compare it: {printable(key)}"
    yield f"evidence: {ending.evidence or 'none was kept'}"


def not_held(gates: Sequence[Gate]) -> list[str]:
    """Gates that did not hold: those of the job over all nodes by their names, those of a node by itself behind its."""
    names: dict[str | None, list[str]] = {}
    for gate in gates:
        if gate.verdict != Verdict.OK:
            names.setdefault(gate.node, []).append(gate.name)
    together = names.pop(None, [])
    return together + [f"{node} ({' '.join(its)})" for node, its in names.items()]


def _warnings(warnings: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """How many warnings, and of what; none of them has a part in the verdict."""
    nodes: dict[str, list[str]] = {}
    for node, names in warnings.items():
        for name in names:
            nodes.setdefault(name, []).append(node)
    if nodes:
        what = "; ".join(f"{printable(name)}: {_listed(its)}" for name, its in nodes.items())
        yield f"  warnings, beside the verdict: {sum(map(len, nodes.values()))} ({what})"


def _changes(ending: Ending) -> Iterator[str]:
    unfinished = ending.unfinished
    changed = {node: names for node, names in ending.changed.items() if names}
    if not changed:
        yield f"changed: nothing{' (dry run)' if ending.dry else ''}"
    for node, names in changed.items():
        shown = [f"{name} (not to its end)" if name == unfinished.get(node) else name for name in names]
        yield f"changed: {printable(node)}: {printable(', '.join(shown))}"


def _listed(names: Sequence[str]) -> str:
    more = len(names) - NAMED
    return ", ".join(printable(name) for name in names[:NAMED]) + (f" and {more} more" if more > 0 else "")
