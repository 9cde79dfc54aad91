"""What one run has come to know, kept beside pyinfra's state: desired states, session, what each host is at.

A deploy file is executed once per host with nothing handed to it, and pyinfra's callbacks bring its State and no more.
The State has no room for what belongs to others, so what a run shares is found by it, here and nowhere else in the
runner; it goes when the State does. (An operation that lets hosts share an answer keeps that in its own module.)
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from pyinfra.api import State

from shakedown.runner.host_run import HostRun

if TYPE_CHECKING:  # a drift check loads no runner/session.py, which costs a tenth of it
    from shakedown.desired.resolve import Resolved
    from shakedown.runner.session import Session


FEW = 8  # hosts whose words on how an operation goes are shown as they come; of more, now and then those of one


@dataclass
class RunProgress:
    """What one run has come to know so far."""

    resolved: Resolved | None = None  # the desired states, once the inventory has been read
    session: Session | None = None  # once a deploy has examined the nodes
    hosts: dict[str, HostRun] = field(default_factory=lambda: defaultdict(HostRun))  # what becomes of each
    announced: bool = False  # how it ended was said
    evidence: str = ""  # the run directory of a drift check that is kept: it has no session
    waits: dict[str, tuple[str, float]] = field(default_factory=dict)  # host -> what it is at, since when (monotonic)
    saying: dict[str, str] = field(default_factory=dict)  # host -> the last line of an operation that tells how it goes

    def unfinished(self) -> dict[str, str]:
        """The operation that each host did not get through, or is still in."""
        return {name: its for name, host in self.hosts.items() if (its := host.unfinished or host.operation)}

    def ended(self, host: str) -> None:
        """The host is through with what it was in."""
        self.hosts[host].operation = ""
        for kept in (self.waits, self.saying):
            kept.pop(host, None)

    def job_runs(self) -> bool:
        """Whether a job is under way, which tells by itself how far it is."""
        jobs = self.session.jobs if self.session else []
        return any(job.plan is not None and job.result is None and job.error is None for job in jobs)


_progress: WeakKeyDictionary[State, RunProgress] = WeakKeyDictionary()


def progress(state: State) -> RunProgress:
    """The progress of the run of this state."""
    return _progress.setdefault(state, RunProgress())
