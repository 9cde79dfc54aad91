"""A node's kernel log of the job's window, and the events of the node's devices: as the sampler wrote them."""

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from shakedown.catalogue import entry
from shakedown.catalogue.kernel import matcher
from shakedown.catalogue.lines import read as read_record
from shakedown.common.text import incoming, printable
from shakedown.logs.signatures import Match, quoted
from shakedown.node.kernel_log import ERROR
from shakedown.node.kernel_verdict import Line, judge

READ_LIMIT = 16 << 20  # bytes: the sampler writes a quarter of it
_BEGIN = re.compile(r"# begin monotonic=(\d{1,12}\.\d{1,9}) wall=(\d{1,12}\.\d{1,9}) source=(\w{1,20})")
_RECORD = re.compile(r"(?:<[0-7]>)?\[ {0,20}(\d{1,12}\.\d{1,9})\] (.*)")
_FORMS = 500  # of earlier error lines that are kept


@dataclass
class KernelWindow:
    """The records of the window: `lines` as the file has them. `unreadable` says why there are none, `incomplete` why
    they are not all; empty: they are."""

    lines: list[str] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)  # of each in the file, from 1
    before: set[str] | None = None  # forms of the error lines before the window, since boot; None: not known
    begin: tuple[float, float] | None = None  # monotonic clock and Unix time of the node
    source: str = ""
    unreadable: str = ""
    incomplete: str = ""


def timed(line: str) -> tuple[float, str] | None:
    """Return when a record was written, in seconds since boot, and its message; None for a line without a time."""
    found = _RECORD.match(line)
    return (float(found[1]), found[2]) if found else None


def read(chunks: Iterable[bytes]) -> KernelWindow:
    """Read the window of a file. The content raises no error."""
    window, gaps, ended = KernelWindow(), [], False
    data = bytearray()
    for chunk in chunks:
        if len(data) + len(chunk) > READ_LIMIT:
            gaps.append(f"only its first {len(data)} bytes were read")
            break
        data += chunk
    for number, raw in enumerate(bytes(data).split(b"\n"), 1):
        line = incoming(raw.decode("utf-8", "replace"))
        if not line.startswith("#"):
            if line:
                window.lines.append(line)
                window.numbers.append(number)
            continue
        what, _, rest = line.removeprefix("# ").partition(" ")
        if what == "begin" and (found := _BEGIN.match(line)):
            window.begin, window.source = (float(found[1]), float(found[2])), found[3]
        elif what == "before":
            window.before = window.before or set()
            if rest and len(window.before) < _FORMS:
                window.before.add(rest)
        elif what == "unreadable":
            window.unreadable = printable(rest, 400)
        elif what in ("lost", "beyond"):
            gaps.append(f"{printable(rest, 40)} {'overwritten' if what == 'lost' else 'beyond the limit'}")
        elif what == "end":
            ended = True
    if window.begin is None:
        gaps.append("the first line is missing")
    elif not ended:
        gaps.append("the end was not written")
    window.incomplete = "; ".join(gaps)
    return window


@dataclass(frozen=True)
class Reported:
    """A kind of line of the window. `verdict`: "fail", "unknown" or "warn"; `text`: the line as the file has it."""

    line: Line
    verdict: str
    text: str


def reported(window: KernelWindow, links: Collection[str] | None = None) -> list[Reported]:
    """Return the lines that are not ok, each kind where it first stood.

    A line of priority 3 that no entry names is `unknown` where the log before the window has none like it. `links`: the
    ports that the job uses; None: all count.
    """
    lines = judge(matcher(), [read_record(text, at) for at, text in enumerate(window.lines)], links)
    kinds: dict[tuple[str, str], Reported] = {}
    for line in lines:
        verdict = line.verdict
        if line.priority == ERROR and not line.known and line.form not in (window.before or ()):
            verdict = "unknown"
        if verdict != "ok":
            kind = line.name if line.known else line.form
            kinds.setdefault((kind, verdict), Reported(line, verdict, window.lines[line.number]))
    return list(kinds.values())


def kernel_log(lines: Iterable[str], links: Collection[str] | None = None) -> list[Match]:
    """Return the lines of a kernel's log that can explain a failure, each kind where it first stood: those of a known
    fault, and a link that went down, whether or not it came back. `links`: the ports that the job uses; None: all."""
    matches = []
    for report in reported(KernelWindow(lines=list(lines), before=set()), links):
        known = entry(report.line.name) if report.line.name else None
        if known and known.role and (report.verdict == "fail" or known.link):
            found = Match(
                name=known.name,
                line_number=report.line.number + 1,
                line=quoted(report.text),
                cause=known.cause,
                remedy=known.remedy,
            )
            matches.append(found)
    return matches
