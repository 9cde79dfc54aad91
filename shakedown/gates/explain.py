"""Explains a log line by line: which lines of a kernel's or a job's log the catalogue knows, and which error lines not.

Nothing but the lines that are reported is held in memory, and of those at most `MOST`.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from shakedown.catalogue import Entry, entry
from shakedown.catalogue.kernel import describe, matcher
from shakedown.catalogue.lines import Record, records
from shakedown.catalogue.model import alarming, is_daemon, of_a_job
from shakedown.common.lists import grouped
from shakedown.common.text import counted, printable
from shakedown.gates.log_lines import job_of
from shakedown.gates.model import Outcome
from shakedown.gates.observed import LogReading
from shakedown.logs.known import tuning
from shakedown.logs.lines import LineSplitter, is_text
from shakedown.logs.signatures import FailureScanner, quoted
from shakedown.logs.source import LogSource
from shakedown.node.kernel_log import ERROR
from shakedown.node.kernel_verdict import FAULTS, Events, Line
from shakedown.state.findings import Verdict

MOST = 10_000  # known lines, and as many unknown ones; what is beyond is counted
MOST_ALIKE = 500  # lines of one name: a storm must not hide what comes after
LINE = 2_000  # characters of a line that are kept


@dataclass
class Explained:
    """One line that the catalogue knows."""

    number: int
    line: str
    name: str
    part: str
    severity: str
    cause: str
    remedy: str
    note: str = ""  # what the line states in numbers, in words
    job: bool = False  # of a job's log, not the kernel's
    judged: bool = False  # whether it means a failure is for the gates over the whole log to say

    @property
    def fault(self) -> bool:
        """Whether the line means a fault: of the node, or of the job whoever is to blame."""
        return self.severity in FAULTS or (self.job and self.severity == "user")


@dataclass
class Unknown:
    """An error line that the catalogue does not know."""

    number: int
    line: str
    priority: int | None = None


@dataclass
class Explanation:
    """What a log comes to."""

    lines: list[Explained] = field(default_factory=list)
    unknown: list[Unknown] = field(default_factory=list)
    read: int = 0  # lines
    left_out: int = 0  # lines beyond MOST and MOST_ALIKE
    fault_left_out: bool = False
    of_kernel: bool = False  # whether a line is the kernel's for certain
    of_daemons: bool = True  # whether each line is of the kernel or of a daemon that is no job's
    of_job: bool = False  # whether a line is a job's for certain
    job: Outcome | None = None  # what the gates make of the log; None: it may be a kernel's

    @property
    def exit_code(self) -> int:
        """Return 1 for a fault, 4 for unknown error lines alone or an end that is unknown, 0 otherwise."""
        judged = self.job and self.job.verdict
        if judged is Verdict.FAIL or self.fault_left_out or any(line.fault and not line.judged for line in self.lines):
            return 1
        return 4 if judged is Verdict.UNKNOWN or (self.unknown and not judged) else 0


def explain(source: LogSource, noise: bool = False) -> Explanation:
    """Explain a log. `noise`: with the harmless lines. Raises what LogSource raises.

    Whether a job's log shows a failed job is what the gates say of it.
    """
    splitter, explainer, reading = LineSplitter(), _Explainer(noise), LogReading()

    def lines() -> Iterable[str]:
        for chunk in source:
            reading.take(chunk)
            yield from splitter.feed(chunk)
        yield from splitter.close()

    for record in records(lines()):
        explainer.take(record)
    found, log = explainer.close(), reading.close()
    if found.of_job or not (found.of_kernel or found.of_daemons):
        job = job_of(log)  # without an iteration nothing shows that it went well
        found.job = job if log.iterations or job.verdict is Verdict.FAIL else None
    return found


class _Explainer:
    def __init__(self, noise: bool) -> None:
        self._noise = noise
        self._found = Explanation()
        self._events = Events(matcher())
        self._waiting: list[tuple[Explained, Line]] = []  # later lines may change their severity
        self._failures = FailureScanner(every=True)
        self._alike = Counter[str]()
        self._programs: set[str] = set()  # of lines of syslog and journald: those that are a job's

    def take(self, record: Record) -> None:
        """Explain one record."""
        if not record.message.strip():
            return
        self._found.read = record.number
        event = self._events.take(record.number, record.message, record.priority)
        if event is not None and not record.kernel and is_text(record.message):
            event = None
        self._found.of_daemons &= record.kernel or is_daemon(record.program)
        self._found.of_kernel |= record.kernel or (event is not None and not event.entry["general"])
        if record.program and of_a_job(record.message) and len(self._programs) < MOST_ALIKE:
            self._programs.add(record.program)
        if event is not None and (record.kernel or record.program or not event.entry["general"]):
            self._of_kernel(event, record)
        elif record.kernel:
            self._unknown(record, "kernel")
        elif not record.program or record.program in self._programs:
            self._of_job(record, event)

    def close(self) -> Explanation:
        """Return the explanation, its lines in their order."""
        if ended := self._failures.close():
            self._of_match(ended.name, ended.line_number, ended.line, ended.cause)
        for explained, event in self._waiting:
            explained.severity, explained.part = event.severity, event.part
            if event.returned:
                explained.note = f"the link came back on line {event.returned}"
        lines = [explained for explained in self._found.lines if explained.severity != "noise" or self._noise]
        self._found.lines = sorted(lines, key=lambda line: line.number)
        return self._found

    def _of_kernel(self, event: Line, record: Record) -> None:
        if event.severity == "noise" and not self._noise and not event.entry["detail"]:
            return
        known = entry(event.entry["name"])
        assert known is not None
        note = describe(record.message, known.bank) if known.bank else ""
        explained = _explained(known, record.number, record.line, event.severity, note)
        if self._keep(explained) and (known.link or known.group):
            self._waiting.append((explained, event))

    def _of_job(self, record: Record, event: Line | None) -> None:
        """Explain a line that need not be the kernel's. `event`: what the kernel's general entries, whose words stand
        in any log, would make of it where no line has shown that this is a job's."""
        self._found.of_job = self._found.of_job or of_a_job(record.message)
        self._failures.lines = record.number - 1
        began = self._failures.open
        match = self._failures.line(record.line + "\n")
        if match is not None:
            own = record.line if match.line == quoted(record.line) else match.line  # an exception, behind its line
            self._of_match(match.name, match.line_number, own, match.cause)
        elif tuned := tuning(record.line):
            self._of_match(tuned.name, record.number, record.line, tuned.cause)
        elif began or self._failures.open:
            return  # of a traceback only the exception counts
        elif event is not None and not self._found.of_job:
            self._of_kernel(event, record)
        else:
            self._unknown(record, "job" if self._found.of_job else "kernel")

    def _of_match(self, name: str, number: int, line: str, cause: str) -> None:
        known = entry(name)
        assert known is not None
        self._found.of_job = True
        explained = _explained(known, number, line, known.severity, job=True, judged=known.log == "job")
        explained.cause = cause
        self._keep(explained)

    def _unknown(self, record: Record, log: Any) -> None:
        wrong = alarming(record.message, log) if record.priority is None else record.priority <= ERROR
        if not wrong:
            return
        if len(self._found.unknown) >= MOST:
            self._found.left_out += 1
            return
        line = printable(record.line.strip(), LINE)
        self._found.unknown.append(Unknown(record.number, line, record.priority))

    def _keep(self, one: Explained) -> bool:
        self._alike[one.name] += 1
        if len(self._found.lines) < MOST and self._alike[one.name] <= MOST_ALIKE:
            self._found.lines.append(one)
            return True
        self._found.left_out += 1
        self._found.fault_left_out |= one.fault and not one.judged
        return False


def _explained(known: Entry, number: int, line: str, severity: str, note: str = "", **job: bool) -> Explained:
    shown = printable(line.strip(), LINE)
    return Explained(number, shown, known.name, known.part, severity, known.cause, known.remedy, note, **job)


_ORDER = ("fatal", "error", "user", "corrected", "noise")


def as_text(explanation: Explanation, shown: int = 3, width: int = 300) -> str:
    """Return the explanation for a person: each kind of line once, the worst first, then the unknown lines."""
    kinds = grouped(((line.name, line.severity, line.cause), line) for line in explanation.lines)
    texts = []
    for (name, severity, cause), lines in sorted(
        kinds.items(), key=lambda kind: (_ORDER.index(kind[0][1]), kind[1][0].number)
    ):
        texts.append(f"{severity}  {lines[0].part}  {name}: {cause}")
        texts += [
            f"    line {line.number}: {printable(line.line, width)}{f'  [{line.note}]' if line.note else ''}"
            for line in lines[:shown]
        ]
        if len(lines) > shown:
            texts.append(f"    and {len(lines) - shown} more, the last on line {lines[-1].number}")
        if severity != "noise":
            texts.append(f"    what to do: {lines[0].remedy}")
    if explanation.unknown:
        texts.append(f"{len(explanation.unknown)} error lines without an entry in the catalogue:")
        texts += [f"    line {line.number}: {printable(line.line, width)}" for line in explanation.unknown[:20]]
        if len(explanation.unknown) > 20:
            texts.append(
                f"    and {len(explanation.unknown) - 20} more, the last on line {explanation.unknown[-1].number}"
            )
    if (job := explanation.job) and job.verdict is not Verdict.OK:
        texts += [f"{job.verdict}  how the job ended: {job.evidence}", f"    what to do: {job.remedy}"]
    return "\n".join([*texts, summary(explanation)])


def summary(explanation: Explanation) -> str:
    """Return one line: how many lines of each kind."""
    count = Counter(line.severity for line in explanation.lines)
    parts = [f"{count[severity]} {severity}" for severity in _ORDER if count[severity]]
    parts += [f"{len(explanation.unknown)} unknown"] if explanation.unknown else []
    more = f"; {explanation.left_out} further lines are not listed" if explanation.left_out else ""
    return f"{counted(explanation.read, 'line')} read: {', '.join(parts) or 'no line of a fault'}{more}"


def as_json(explanation: Explanation) -> dict[str, Any]:
    """Return the document of `--format json`."""
    keys = ("line", "number", "name", "part", "severity", "cause", "remedy", "note")
    return {
        "lines": [{key: getattr(line, key) for key in keys} for line in explanation.lines],
        "unknown": [
            {"line": line.line, "number": line.number, "priority": line.priority} for line in explanation.unknown
        ],
        "read": explanation.read,
        "left_out": explanation.left_out,
        "job": explanation.job and explanation.job.model_dump(include={"verdict", "evidence", "remedy"}, mode="json"),
    }
