"""What the logs say where a job failed: some lines around the first failure of a node's log, with their numbers, and a
link to the whole log."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from shakedown.common.secrets import masked
from shakedown.common.text import printable
from shakedown.gates.registry import OF_THE_END
from shakedown.logs.lines import LineSplitter
from shakedown.logs.signatures import FailureScanner, Match
from shakedown.report.overview import Overview
from shakedown.runs import copies

LOGS = 12  # of one page: the first failure and some of what followed from it
READ = 1 << 26  # bytes of one log that are looked through
BEFORE, AFTER = 8, 12  # lines around the one that failed
LINE = 400  # characters of one


@dataclass(frozen=True)
class Excerpt:
    """Some lines of one log: (number from 1, text). `failed` is the number of the one that shows the failure; None: no
    line does, and these are the last ones."""

    job: str
    node: str
    path: str
    link: str
    anchor: str
    lines: list[tuple[int, str]]
    failed: int | None
    cause: str
    remedy: str


def of(shown: Overview) -> list[Excerpt]:
    """Return what a diagnosis rests on, then the logs of jobs that did not pass: those that show a failure first."""
    if shown.directory is None:
        return []
    found: list[Excerpt] = []
    for sign in shown.signs:
        if sign.file and sign.line_number and not any(excerpt.path == sign.file for excerpt in found):
            at = Match(name=sign.name, line_number=sign.line_number, line="", cause=sign.cause, remedy=sign.remedy)
            found += _of(shown, "diagnosis", sign.node or "", sign.file, at)
    bad: dict[str, set[str]] = {}
    for gate in shown.gates:
        if not gate.verdict.passes:
            bad.setdefault(gate.job, set()).add(gate.name)
    ended: list[Excerpt] = []
    for job in shown.jobs:
        for node, logs in job.logs.items() if job.name in bad else ():
            if len(found) < LOGS and logs and not any(excerpt.path == logs[0] for excerpt in found):
                for excerpt in _of(shown, job.name, node, logs[0]):
                    if excerpt.failed is not None:
                        found.append(excerpt)
                    elif bad[job.name] & OF_THE_END:  # no line shows a failure: the end of the log is worth a look
                        ended.append(excerpt)
            if len(found) + len(ended) >= 4 * LOGS:
                break  # of hundreds of nodes those that come first
    return [*found, *ended][:LOGS]


def link_to(shown: Overview, path: str) -> str:
    """Return a file of the run directory, as the page leads to it; nothing where the record names none that is
    there."""
    if shown.directory is None:
        return ""
    try:
        copies.inside(shown.directory, path)
    except ValueError:
        return ""
    return f"{shown.links}{quote(path)}"


def _of(shown: Overview, job: str, node: str, path: str, at: Match | None = None) -> Iterator[Excerpt]:
    """Yield the lines of a log around what failed, which is looked for where nobody says; nothing where it cannot be
    read: the gate logs_complete says what is wrong with it."""
    assert shown.directory is not None
    try:
        file = copies.inside(shown.directory, path)
        match = at or _first_failure(file)
        lines = _around(file, match)
    except (OSError, ValueError):
        return
    if not lines:
        return
    texts: list[str] = masked([text for _, text in lines], more=shown.secrets)
    yield Excerpt(
        job=job,
        node=printable(node, 200),
        path=printable(path, LINE),
        link=link_to(shown, path),
        anchor=f"log-{quote(job, safe='')}-{quote(node, safe='')}",
        lines=[(number, printable(text, LINE)) for (number, _), text in zip(lines, texts, strict=True)],
        failed=match.line_number if match else None,
        cause=match.cause if match else "",
        remedy=match.remedy if match else "",
    )


def _first_failure(path: Path) -> Match | None:
    scanner = FailureScanner()
    for batch in _batches(path):
        scanner.batch(batch)
    scanner.close()
    return scanner.root


def _around(path: Path, match: Match | None) -> list[tuple[int, str]]:
    """Return the lines around a failure; without one, the last lines of what is looked through."""
    number = 0
    kept: deque[tuple[int, str]] = deque(maxlen=BEFORE + 1 + AFTER)
    for batch in _batches(path):
        for line in batch:
            number += 1
            if match and number > match.line_number + AFTER:
                return [item for item in kept if item[0] >= match.line_number - BEFORE]
            kept.append((number, line))
    return [item for item in kept if match is None or item[0] >= match.line_number - BEFORE]


def _batches(path: Path) -> Iterator[list[str]]:
    splitter, left = LineSplitter(), READ
    with path.open("rb") as file:
        while left > 0 and (chunk := file.read(min(left, 1 << 18))):
            left -= len(chunk)
            yield splitter.feed(chunk)
    yield splitter.close()
