"""The progress of one run, kept beside pyinfra's state: desired states, what each host is at, how the run ends.

A deploy file is executed once per host with nothing handed to it, and pyinfra's callbacks bring its State and no more.
The State has no room for what belongs to others, so the runner finds its own part by the State, here and in
`session.py`; it goes when the State does. (An operation that lets hosts share an answer keeps that in its own module.)
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from pyinfra.api import State

from shakedown.runner.host_run import HostRun

if TYPE_CHECKING:  # a drift check needs none of these
    from shakedown.checks.examination import Examination
    from shakedown.desired.resolve import Resolved
    from shakedown.jobs.launch import Job
    from shakedown.runs.records import RunRecord
    from shakedown.runs.watch.notes import Notes
    from shakedown.state.findings import Verdict


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
