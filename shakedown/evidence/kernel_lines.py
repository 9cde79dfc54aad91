"""The lines of a node's kernel log, and of its devices' events, that report a fault in the job's window."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from shakedown.catalogue import entry
from shakedown.catalogue.kernel import matcher
from shakedown.catalogue.lines import read
from shakedown.evidence.telemetry.kernel import KernelWindow
from shakedown.logs.signatures import Match, quoted
from shakedown.node.kernel_log import ERROR
from shakedown.node.kernel_verdict import Line, judge


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
    lines = judge(matcher(), [read(text, at) for at, text in enumerate(window.lines)], links)
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
