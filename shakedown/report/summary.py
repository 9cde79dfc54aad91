"""How a run ended, in a few lines that are the same for every command and every ending: the verdict, what became of
each node and why, what was changed, and where the evidence is."""

import re
import shutil
import textwrap
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, chain
from typing import Literal, get_args

from shakedown.common.lists import grouped
from shakedown.common.text import counted, printable
from shakedown.hosts import few
from shakedown.state.findings import Verdict

OutcomeKind = Literal["failed", "interrupted", "unreached", "excluded", "fail", "unknown", "drift", "stopped", "ok"]
ORDER: tuple[OutcomeKind, ...] = get_args(OutcomeKind)
WIDTH = 100  # columns of a line
LINES = 25
PAGE = "docs/failed.md"
KEYS = 3  # new host keys that are shown one by one
REASONS = 9  # lines for what became of nodes; the others are one line
_FAULTS = ("failed", "unreached", "fail")
_COMMAND = re.compile(r"\s*(?:next|then): (?:shakedown|pyinfra) ")
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
    headline: str = ""  # what a job died of, and where that began
    grounds: Sequence[str] = ()  # what the headline rests on
    next_steps: Sequence[str] = ()
    gates: Sequence[Sequence[str]] = ()  # lines for each gate that did not hold, the worst first
    report: str = ""  # where a failed run's report is
    new_keys: Mapping[str, str] = field(default_factory=dict)  # node -> the key that was taken for the first time
    error: str = ""  # what ended the run before its end
    lacking: Sequence[str] = ()  # what was asked for besides, and is not there
    notices: Sequence[str] = ()  # what could not be written, though the verdict stands
    warnings: Mapping[str, Sequence[str]] = field(default_factory=dict)  # node -> the findings that are advice
    waived: str = ""  # which verdicts rest on waivers
    busy: Mapping[str, float] = field(default_factory=dict)  # node -> seconds for which a job may still hold it
    evidence: str = ""
    dry: bool = False
    plan: str = ""  # what was planned alone, and not done
    interrupted: bool = False
    shown: bool = False  # what differs was shown before


def summary_lines(summary: Summary) -> Iterator[str]:
    """Yield the lines, as they may reach a terminal. What was shown before is left out, unless the run ended early."""
    headline = f": {summary.headline}" if summary.headline else ""
    planned = f"{summary.plan}; of the checks alone, " if summary.plan and not summary.interrupted else ""
    yield f"{planned}verdict: {summary.verdict}{' (interrupted)' if summary.interrupted else ''}{headline}"
    if summary.shown and not (summary.error or summary.interrupted):
        yield from (f"  {printable(lack, WHY)}" for lack in summary.lacking)
    else:
        yield from _course(summary, bool(headline and summary.grounds))
    if summary.busy:
        yield (
            f"may still be busy, for up to {max(summary.busy.values()):.0f} s: {_listed(list(summary.busy))}: "
            "the controller did not wait for the job's end there. Its watchdog ends it, and a new run is refused until "
            "then; its run folder stays"
        )
    if len(summary.new_keys) > KEYS:
        names = _listed(list(summary.new_keys))
        yield f"{len(summary.new_keys)} new host keys, compare them (ssh-keygen -lf known_hosts): {names}"
    else:
        for node, key in summary.new_keys.items():
            yield f"new host key of {printable(node)}, compare it: {printable(key)}"
    if summary.waived:
        yield printable(summary.waived, WHY)
    yield from (f"beside the verdict: {printable(notice, WHY)}" for notice in summary.notices)
    page = f", help: {PAGE}" if summary.evidence and summary.verdict is Verdict.FAIL else ""
    yield summary.report or f"evidence: {summary.evidence or 'none was kept'}{page}"


def _course(summary: Summary, headline: bool) -> Iterator[str]:
    if summary.error:
        yield f"  ended by {printable(summary.error, WHY)}"
    yield from [*(summary.next_steps if headline else []), *summary.grounds]
    yield from (f"  {printable(lack, WHY)}" for lack in summary.lacking)
    parts = [*summary.gates, *([line] for line in _outcomes(summary))]
    for number, part in enumerate(parts):
        yield from part
        yield from summary.next_steps if number == 0 and not headline else []
    yield from _warnings(summary.warnings)
    yield from _changes(summary)
    for line, nodes in grouped((line, node) for node, lines in summary.restored.items() for line in lines).items():
        yield f"{'would restore' if summary.dry else 'restored'}: {_listed(nodes)}: {printable(line, WHY)}"
    if summary.interrupted and any(outcome.kind == "interrupted" and outcome.under_way for outcome in summary.outcomes):
        yield "what was under way on those nodes ends there within its time limit"


def fitted(lines: Iterable[str], width: int = 0, most: int = LINES) -> Iterator[str]:
    """Yield the lines for a screen, a narrow one too: each wrapped between words, the first on four lines at most and
    the others on three. Where they are too many, the ones before the last are left out, each of them whole. The files
    of the report and commands are never cut: a person copies them."""
    width = width or max(40, min(WIDTH, shutil.get_terminal_size((WIDTH, LINES)).columns))
    shown: list[list[str]] = []
    where: list[str] = []
    for line in lines:
        if line.startswith("report: "):
            where = [line] if len(line) <= width else line.replace(", evidence: ", "\nevidence: ").split("\n")
            continue
        indent = line[: len(line) - len(line.lstrip())]
        whole = _COMMAND.match(line)
        cut = " ".join(w if whole or len(w) < width - 10 else f"{w[: width - 13]}..." for w in line.split())
        wrapped = textwrap.wrap(
            cut,
            width,
            initial_indent=indent,
            subsequent_indent=" " * 8,
            break_long_words=False,
            break_on_hyphens=False,
            max_lines=None if whole else 3 if shown else 4,
            placeholder=" ...",
        )
        shown.append(wrapped)
    if not where and shown:
        where = shown.pop()
    ends = list(accumulate(map(len, shown)))
    if ends and ends[-1] + len(where) > most:
        room = most - len(where) - 1
        kept = shown[: bisect_right(ends, room)] or [shown[0][:room]]
        more = f"  and {counted(ends[-1] - sum(map(len, kept)), 'more line')} in the report"
        shown = [*kept, [more]]
    yield from (*chain.from_iterable(shown), *where)


def _outcomes(summary: Summary) -> Iterator[str]:
    """Yield what became of the nodes. What most of them share is no node's own, and is said so, but where a diagnosis
    says it; an address in the reason differs from node to node."""
    alike: dict[tuple[int, str], list[HostOutcome]] = {}
    for outcome in summary.outcomes:
        what = _ADDRESS.sub("*", outcome.why) if outcome.kind == "unreached" else outcome.why
        alike.setdefault((ORDER.index(outcome.kind), what), []).append(outcome)
    rows = sorted(alike.items(), key=lambda item: item[0])
    for (kind, _what), outcomes in rows[:REASONS]:
        count, of = len(outcomes), len(summary.outcomes)
        shared = ORDER[kind] in _FAULTS and count > 1 and 2 * count > of and not summary.headline
        place = "this machine's network" if ORDER[kind] == "unreached" else "the image"
        where = f" ({count} of {of} nodes: check the inventory or {place})" if shared else ""
        why = f": {printable(outcomes[0].why, WHY)}" if outcomes[0].why else ""
        yield f"  {ORDER[kind]}: {_listed([outcome.node for outcome in outcomes])}{why}{where}"
    if rest := [outcome.node for _, outcomes in rows[REASONS:] for outcome in outcomes]:
        yield f"  each for a reason of its own: {_listed(rest)}"


def _warnings(warnings: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """How many warnings, and of what; none of them has a part in the verdict."""
    if nodes := grouped((name, node) for node, names in warnings.items() for name in names):
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
    for what, nodes in list(alike.items())[:REASONS]:
        yield f"changed: {_listed(nodes)}: {printable(what)}"
    if rest := [node for nodes in list(alike.values())[REASONS:] for node in nodes]:
        yield f"changed: {_listed(rest)}: each something else"


def _listed(names: Sequence[str]) -> str:
    return printable(few(names))
