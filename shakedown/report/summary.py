"""How a run ended, in a few lines that are the same for every command and every ending: the verdict, what became of
each node and why, what was changed, and where the evidence is."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from shakedown.common.text import printable
from shakedown.hosts import named
from shakedown.state.findings import Verdict

if TYPE_CHECKING:
    from shakedown.gates import Gate

OutcomeKind = Literal["failed", "interrupted", "unreached", "excluded", "fail", "unknown", "drift", "stopped", "ok"]
ORDER: tuple[OutcomeKind, ...] = (
    "failed",
    "interrupted",
    "unreached",
    "excluded",
    "fail",
    "unknown",
    "drift",
    "stopped",
    "ok",
)
NAMED = 8  # lines for nodes of which each has something of its own; the others are a number
_FAULTS = ("failed", "unreached", "fail")
_ADDRESS = re.compile(r"\d{1,3}(?:\.\d{1,3}){3}")
WHY = 500  # characters of one reason


@dataclass(frozen=True)
class HostOutcome:
    """What became of a node; `why` where there is something to be said of it."""

    node: str
    kind: OutcomeKind
    why: str = ""
    under_way: bool = False  # an operation was at work on it when the run ended


@dataclass(frozen=True)
class Summary:
    """All that is said at the end of a run."""

    verdict: Verdict
    outcomes: Sequence[HostOutcome] = ()
    changed: Mapping[str, Sequence[str]] = field(default_factory=dict)  # node -> operations
    restored: Mapping[str, Sequence[str]] = field(default_factory=dict)  # node -> what a rollback has put back
    unfinished: Mapping[str, str] = field(default_factory=dict)  # node -> the operation that it did not get through
    diagnosis: Sequence[str] = ()  # what a job died of and where that began, in lines
    gates: Sequence[str] = ()  # those that did not hold
    new_keys: Mapping[str, str] = field(default_factory=dict)  # node -> the key that was taken for the first time
    error: str = ""  # what ended the run before its end
    lacking: Sequence[str] = ()  # what was asked for besides, and is not there
    notices: Sequence[str] = ()  # what could not be written, though the verdict stands
    warnings: Mapping[str, Sequence[str]] = field(default_factory=dict)  # node -> the findings that are advice
    busy: Mapping[str, float] = field(default_factory=dict)  # node -> seconds for which a job may still hold it
    evidence: str = ""
    dry: bool = False
    interrupted: bool = False


def summary_lines(summary: Summary) -> Iterator[str]:
    """Yield the lines, as they may reach a terminal."""
    yield f"verdict: {summary.verdict}{' (interrupted)' if summary.interrupted else ''}"
    if summary.error:
        yield f"  ended by {printable(summary.error, WHY)}"
    yield from (f"  {line}" for line in summary.diagnosis)
    yield from (f"  {printable(lack, WHY)}" for lack in summary.lacking)
    yield from _outcomes(summary)
    yield from _warnings(summary.warnings)
    if summary.gates:
        yield f"  gates that did not hold: {_first(summary.gates)}"
    yield from _changes(summary)
    back: dict[str, list[str]] = {}
    for node, lines in summary.restored.items():
        for line in lines:
            back.setdefault(line, []).append(node)
    for line, nodes in back.items():
        yield f"{'would restore' if summary.dry else 'restored'}: {_listed(nodes)}: {printable(line, WHY)}"
    if summary.interrupted and any(outcome.kind == "interrupted" and outcome.under_way for outcome in summary.outcomes):
        yield "what was under way on those nodes ends there within its time limit"
    if summary.busy:
        yield (
            f"may still be busy, for up to {max(summary.busy.values()):.0f} s: {_listed(list(summary.busy))}: "
            "the controller did not wait for the job's end there. Its watchdog ends it, and a new run is refused until "
            "then; its run folder stays"
        )
    for node, key in list(summary.new_keys.items())[:NAMED]:
        yield f"new host key of {printable(node)}, compare it: {printable(key)}"
    if (more := len(summary.new_keys) - NAMED) > 0:
        yield f"new host keys of {more} more nodes, compare them: ssh-keygen -lf shows those of a known_hosts file"
    yield from (f"beside the verdict: {printable(notice, WHY)}" for notice in summary.notices)
    yield f"evidence: {summary.evidence or 'none was kept'}"


def _outcomes(summary: Summary) -> Iterator[str]:
    """Yield what became of the nodes. What most of them share is no node's own, and is said so, but where a diagnosis
    says it; an address in the reason differs from node to node."""
    alike: dict[tuple[int, str], list[HostOutcome]] = {}
    for outcome in summary.outcomes:
        what = _ADDRESS.sub("*", outcome.why) if outcome.kind == "unreached" else outcome.why
        alike.setdefault((ORDER.index(outcome.kind), what), []).append(outcome)
    for (kind, _what), outcomes in sorted(alike.items(), key=lambda item: item[0]):
        count, of = len(outcomes), len(summary.outcomes)
        shared = ORDER[kind] in _FAULTS and count > 1 and 2 * count > of and not summary.diagnosis
        where = f" ({count} of {of} nodes: check the inventory or the image)" if shared else ""
        why = f": {printable(outcomes[0].why, WHY)}" if outcomes[0].why else ""
        yield f"  {ORDER[kind]}: {_listed([outcome.node for outcome in outcomes])}{why}{where}"


def not_held(gates: Sequence[Gate]) -> list[str]:
    """Gates that did not hold: those of the job over all nodes by their names, those of a node by itself behind its."""
    names: dict[str | None, list[str]] = {}
    for gate in gates:
        if not gate.verdict.passes:
            names.setdefault(gate.node, []).append(gate.name)
    together = names.pop(None, [])
    alike: dict[str, list[str]] = {}
    for node, failed in names.items():
        alike.setdefault(" ".join(failed), []).append(str(node))
    return together + [f"{named(nodes)} ({failed})" for failed, nodes in alike.items()]


def _warnings(warnings: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """How many warnings, and of what; none of them has a part in the verdict."""
    nodes: dict[str, list[str]] = {}
    for node, names in warnings.items():
        for name in names:
            nodes.setdefault(name, []).append(node)
    if nodes:
        what = "; ".join(f"{printable(name)}: {_listed(warned)}" for name, warned in nodes.items())
        yield f"  warnings, beside the verdict: {sum(map(len, nodes.values()))} ({what})"


def _changes(summary: Summary) -> Iterator[str]:
    unfinished = summary.unfinished
    changed = {node: names for node, names in summary.changed.items() if names}
    if not changed:
        yield f"changed: nothing{' (dry run)' if summary.dry else ''}"
    alike: dict[str, list[str]] = {}
    for node, names in changed.items():
        shown = [f"{name} (not to its end)" if name == unfinished.get(node) else name for name in names]
        alike.setdefault(", ".join(shown), []).append(node)
    for what, nodes in alike.items():
        yield f"changed: {_listed(nodes)}: {printable(what)}"


def _listed(names: Sequence[str]) -> str:
    """Nodes, as few words as there can be."""
    return printable(named(names))


def _first(texts: Sequence[str]) -> str:
    more = len(texts) - NAMED
    return ", ".join(printable(text) for text in texts[:NAMED]) + (f" and {more} more" if more > 0 else "")
