"""The progress of one run, kept beside pyinfra's state: desired states, what each host is at, how the run ends.

A deploy file is executed once per host with nothing handed to it, and pyinfra's callbacks bring its State and no more.
The State has no room for what belongs to others, so the runner finds its own part by the State, here and in
`session.py`; it goes when the State does. (An operation that lets hosts share an answer keeps that in its own module.)

What a run waits for is shown after some seconds: pyinfra shows an operation when it is over on all hosts, and of 512
the one that hangs is then the one that nobody has heard of.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, cast
from weakref import WeakKeyDictionary

import gevent
from pyinfra.api import Host, State

from shakedown.common.text import printable
from shakedown.hosts import named
from shakedown.report.summary import ORDER, HostOutcome, OutcomeKind
from shakedown.state.findings import Verdict

if TYPE_CHECKING:  # a drift check needs none of these
    from shakedown.checks.examination import Examination
    from shakedown.desired.resolve import Resolved
    from shakedown.jobs.launch import Job
    from shakedown.runs.directory import RunRecord
    from shakedown.runs.watch.notes import Notes


@dataclass
class HostRun:
    """One host's course through a run."""

    operation: str = ""  # that the host is in
    declaring: str = ""  # the finding for which an operation is being declared, which reads facts
    unfinished: str = ""  # the operation that failed
    examined: bool = False  # a look at the node was tried
    kind: OutcomeKind | None = None  # what became of it; None: nothing but its findings tells
    reason: str = ""  # of the kind
    excluded: str = ""  # why it takes no part in what follows
    verdict: Verdict | None = None  # as what it was excluded, or failed
    message: str = ""  # the last one in red, of pyinfra or of an operation
    changes: list[str] = field(default_factory=list)  # operations that changed something, in order
    declared: list[str] = field(default_factory=list)  # findings for which a deploy declared an operation

    def settle(self, kind: OutcomeKind, reason: str) -> None:
        """Note what became of the host. The graver kind counts, and of one kind the first reason."""
        if self.kind is None or ORDER.index(kind) < ORDER.index(self.kind):
            self.kind, self.reason = kind, reason

    def begin(self, operation: str) -> bool:
        """Note that an operation begins on the host. Return False where the host is in it already."""
        again = self.operation == operation
        self.operation, self.message = operation, ""
        return not again

    def fail(self, operation: str) -> str:
        """Note that an operation failed. Return why, which is the last message in red."""
        why = self.message or "it gave no reason"
        self.unfinished = self.unfinished or operation
        self.settle("failed", f'in "{operation}": {why}')
        return why

    def lose(self, why: str) -> None:
        """Note that the host does not answer, and why: the last reason counts."""
        if self.kind == "unreached":
            self.reason = why
        self.settle("unreached", why)

    def answer(self) -> None:
        """Note that the host answers, though it may not have done so before."""
        if self.kind == "unreached":
            self.kind, self.reason = ("excluded", self.excluded) if self.excluded else (None, "")

    def exclude(self, why: str, verdict: Verdict | None = None) -> None:
        """Note that the host takes no part in what follows; the first reason and the first verdict count."""
        self.excluded = self.excluded or why
        self.verdict = self.verdict or verdict
        self.settle("excluded", self.excluded)

    def changed(self) -> list[str]:
        """Return what was changed, in order: findings by their names, other operations by theirs."""
        return [self.short(operation) for operation in self.changes]

    def short(self, operation: str) -> str:
        """Return the finding that an operation was declared for, or the operation itself."""
        finding = operation.partition(": ")[0]
        return finding if finding in self.declared else operation

    @property
    def fails(self) -> bool:
        """Return whether the run cannot pass with such a host."""
        return self.kind in ("failed", "unreached", "excluded")

    @property
    def lost(self) -> str:
        """Return why the host does not answer; empty: it does, or failed later on."""
        return self.reason if self.kind == "unreached" else ""

    @property
    def failure(self) -> str:
        """Return why the host failed, in an operation or while facts were read; empty: it did not."""
        return self.reason if self.unfinished or self.kind == "failed" else ""

    def outcome(self, node: str, interrupted: bool, worst: Verdict | None, different: str) -> HostOutcome:
        """Return what became of the host. `worst`: of its findings, `different` of which have it; None: not judged."""
        if self.kind not in ("failed", "unreached") and interrupted:
            if self.operation:
                return HostOutcome(node, "interrupted", f'in "{self.operation}"', under_way=True)
            if not self.examined:
                return HostOutcome(node, "interrupted", "before it was examined")
        if self.kind is not None:
            return HostOutcome(node, self.kind, self.reason)
        if worst is None:
            return HostOutcome(node, "unknown", different)
        return HostOutcome(node, cast(OutcomeKind, worst.value), different)  # never a warning


FEW = 8  # hosts whose words on how an operation goes are shown as they come; of more, now and then those of one


@dataclass(frozen=True)
class RunEnd:
    """What the stages of a run leave for the report of its end."""

    examination: Examination
    verdict: Verdict
    record: RunRecord | None
    evidence: str  # where the evidence is; empty: none was kept
    busy: Mapping[str, float]  # nodes of jobs that go on, and the seconds within which they end alone
    notices: Sequence[str]
    out: Any  # the console


@dataclass
class RunProgress:
    """How far one run has come."""

    resolved: Resolved | None = None  # the desired states, once the inventory has been read
    hosts: dict[str, HostRun] = field(default_factory=lambda: defaultdict(HostRun))  # what becomes of each
    jobs: Sequence[Job] = ()  # once a deploy has examined the nodes
    notes: Notes | None = None  # for who watches, once there is a run directory
    close: Callable[[], RunEnd] | None = None  # ends the run of a deploy that has examined the nodes
    write_reports: Callable[[], None] = lambda: None  # of that run
    announced: bool = False  # the end of the run was reported
    shown: bool = False  # the command has shown what differs: the report of the end does not repeat it
    plan: str = ""  # what was planned alone, and not done
    run_id: str = ""  # of the run that the readings are signed for, before there is a run directory
    nonce: str = ""  # which nodes sign with their readings; empty: runs are not signed
    evidence: str = ""  # the run directory of a drift check that is kept: it has no session
    waits: dict[str, tuple[str, float]] = field(default_factory=dict)  # host -> what it is at, since when (monotonic)
    folding: Any = None  # of pyinfra's lines (`pyinfra/folding.py`); None: each is shown
    saying: dict[str, str] = field(default_factory=dict)  # host -> the last line of an operation that tells how it goes

    def unfinished(self) -> dict[str, str]:
        """Return the operation that each host did not get through, or is still in."""
        operations = {name: run.unfinished or run.operation for name, run in self.hosts.items()}
        return {name: self.hosts[name].short(operation) for name, operation in operations.items() if operation}

    def ended(self, host: str) -> None:
        """Note that the host is through with its operation."""
        self.hosts[host].operation = ""
        for kept in (self.waits, self.saying):
            kept.pop(host, None)

    def job_runs(self) -> bool:
        """Return whether a job is under way, which shows its own progress."""
        return any(job.plan is not None and job.result is None and job.error is None for job in self.jobs)


_progress: WeakKeyDictionary[State, RunProgress] = WeakKeyDictionary()


def progress(state: State) -> RunProgress:
    """Return the progress of the run of this state."""
    return _progress.setdefault(state, RunProgress())


FIRST_S = 10.0  # that something takes before it is said
EVERY_S = 15.0  # between two lines on what takes long, and two such lines that are alike
BEGIN_S = 1.0  # after which a step over many hosts says how many it waits for
STEP_S = 3.0  # between two such lines that differ
AGAIN_S = 60.0  # between two lines of which only the time differs
SAID = 200  # characters of what a host said last
BEAT_S = 5.0  # between two signs of life for those who watch the run


@contextmanager
def waiting_for(host: Host, what: str) -> Iterator[None]:
    """While it holds, this is what the run waits for on the host."""
    kept = progress(host.state)
    kept.waits[host.name] = (what, time.monotonic())
    try:
        yield
    finally:
        kept.waits.pop(host.name, None)


@dataclass
class Waiting:
    """Shows what the run waits for, at most every `EVERY_S`; a job shows its own progress."""

    _kept: RunProgress
    _say: Callable[[str], None]
    _shown: str = ""
    _shown_at: float = -AGAIN_S
    _counted: str = ""
    _counted_at: float = -STEP_S

    def look(self, now: float) -> None:
        """Say what has been waited for at `now` (of the monotonic clock), if it is time for that."""
        if (found := self._longest(now)) is None:
            self._shown = ""
            self._count(now)
            return
        what, since, last = found
        quiet = now - self._shown_at
        if quiet < EVERY_S or (f"{what}{last}" == self._shown and quiet < AGAIN_S):
            return
        self._shown, self._shown_at = f"{what}{last}", now
        clock = time.strftime("%H:%M:%S", time.localtime(time.time() - (now - since)))
        line = f"waiting for {timedelta(seconds=round(now - since))}, since {clock}: {what}{last}"
        self._say(line)
        if self._kept.notes is not None:
            self._kept.notes.note("wait", line)

    def _count(self, now: float) -> None:
        """Say how many hosts a step over many of them waits for, from its first second."""
        at = list(self._kept.waits.values())
        slow = [what for what, began in at if now - began >= BEGIN_S]
        if not slow or len(at) <= FEW or self._kept.job_runs():
            return
        line = f"{slow[0]}: waiting for {sum(what == slow[0] for what, _ in at)} nodes"
        if now - self._counted_at >= (EVERY_S if line == self._counted else STEP_S):
            self._counted, self._counted_at = line, now
            self._say(line)

    def _longest(self, now: float) -> tuple[str, float, str] | None:
        at = dict(self._kept.waits)
        what, since = min(at.values(), key=lambda wait: wait[1], default=("", now))
        if now - since < FIRST_S or self._kept.job_runs():
            return None
        hosts = [host for host, (work, began) in at.items() if work == what and now - began >= FIRST_S / 2]
        lines = [(host, words) for host in hosts if (words := self._kept.saying.get(host))]
        last = f"; {lines[0][0]}: {printable(lines[0][1], SAID)}" if len(lines) > FEW else ""
        return f"{what}, on {printable(named(hosts))}", since, last


def look_on(state: State, say: Callable[[str], None]) -> None:
    """Look on, until the run has said how it ended."""
    kept = progress(state)
    waiting = Waiting(kept, say)
    beat_at = 0.0
    while not kept.announced:
        gevent.sleep(1.0)
        now = time.monotonic()
        if now - beat_at >= BEAT_S and kept.notes is not None:
            beat_at = now
            kept.notes.beat()
        waiting.look(now)
