"""One smoke job, as data."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from shakedown.desired.models import EACH, TOGETHER
from shakedown.evidence.results import JobResult
from shakedown.jobs.launch import LaunchPlan
from shakedown.logs.iterations import Iteration
from shakedown.logs.kept_logs import LogQuota


@dataclass(frozen=True)
class Event:
    """Something that a person who watches wants to see."""

    kind: Literal["phase", "node", "iteration", "device", "failure", "end"]
    text: str
    node: str | None = None
    iteration: Iteration | None = None
    at: float | None = None  # Unix time, where the event is older than its report


@dataclass(frozen=True)
class Timeouts:
    """Times in seconds."""

    poll_s: float = 1.0  # between two polls of a node
    poll_timeout_s: float = 8.0  # for one command on a node
    unreachable_s: float = 20.0  # without an answer until the job is stopped for it
    lease_s: float = 45.0  # without a poll until the node ends the job
    grace_s: float = 3.0  # between SIGTERM and SIGKILL
    prepare_s: float = 300.0  # for uploads and the setup commands
    last_exit_s: float = 30.0  # for all leaders to exit after the first one has
    stop_s: float = 60.0  # for ending, cleanup and collecting; of a long log, without anything new of it
    collect_s: float = 900.0  # the same in all: a gibibyte at little more than a megabyte in a second
    answer_s: float = 5.0  # for other nodes to show the same fault before the first iteration, until one is named
    echo_s: float = 1.5  # a failure that can be the echo of another node's waits so long for that one

    @classmethod
    def of(cls, unreachable_s: float) -> Timeouts:
        """Those of a plan: two polls may go unanswered, and a node holds out for longer than the controller. One that
        is slow to answer is asked less often, since each answer costs it."""
        return cls(
            poll_s=0.05 * unreachable_s,
            poll_timeout_s=0.4 * unreachable_s,
            unreachable_s=unreachable_s,
            lease_s=2.25 * unreachable_s,
            answer_s=0.25 * unreachable_s,
        )


def job_name(node: str | None, trials: str = "") -> str:
    """Return the name of a job in a run's record: that of a single node, or (None) the one over all nodes.

    `trials`: the name of the kind of a job that does not train (shakedown/trials).
    """
    if node is None:
        return trials or TOGETHER
    return f"{trials or EACH}/{node}"


@dataclass
class Job:
    """One of the jobs that a deploy hands to `operations.smoke.run`. The plan is made when the job runs: after the
    changes. `node` has it for itself; None: it is over all nodes that are ready.

    `result` is None as long as no job has run: an absent result is a failed smoke run, never a passed one.
    """

    make_plan: Callable[[], LaunchPlan]
    log_dir: Path  # on the controller
    node: str | None = None
    trials: str = ""  # the kind of a job of trials (shakedown/trials); empty: it trains
    on_event: Callable[[Event], None] = lambda event: None
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)  # variable -> value
    timeouts: Timeouts | None = None  # None: the plan's
    quota: LogQuota = field(default_factory=LogQuota)  # for the logs that are kept; the jobs of a run share one
    plan: LaunchPlan | None = None
    result: JobResult | None = None
    error: str | None = None  # why there is no result
    allocated: bool = True  # False: there was no place to start it, so that nothing of it ever ran

    @property
    def name(self) -> str:
        """As the run's record calls it."""
        return job_name(self.node, self.trials)

    @property
    def scope(self) -> str:
        """As the desired state asks for it."""
        if self.trials:
            return self.trials
        return TOGETHER if self.node is None else EACH


class Clock:
    """The controller's time.

    Every duration and every order goes by the monotonic clock, which no user can set. The wall clock is read once, so
    that a step of it during the run changes nothing, not even the times that are shown.
    """

    def __init__(self) -> None:
        self._wall, self._began = time.time(), time.monotonic()

    def now(self) -> float:
        """Seconds of the monotonic clock."""
        return time.monotonic()

    def at(self, when: float) -> datetime:
        """Return the time of day of a moment of `now`, in UTC."""
        return datetime.fromtimestamp(self._wall + when - self._began, UTC)

    def when(self, moment: datetime) -> float:
        """Return the moment of `now` of a time of day."""
        return moment.timestamp() - self._wall + self._began


_KILL_S = 10.0  # for so long a node repeats SIGKILL (_KILL_S in node/launcher/watchdog.py)


def busy_after(jobs: Sequence[Job]) -> dict[str, float]:
    """Return the nodes of jobs that were left running, and the seconds within which each node ends its part alone: the
    lease that the last poll began, and the time that processes have to end."""
    held: dict[str, float] = {}
    for job in jobs:
        if job.plan is None or job.result is not None or job.error:
            continue
        times = job.timeouts or Timeouts.of(job.plan.unreachable_s)
        held |= {node.name: times.lease_s + times.grace_s + _KILL_S for node in job.plan.nodes}
    return held
