"""What became of a job: its failures and the end of each node's part, as data."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AwareDatetime, ConfigDict, Field

from shakedown.common.frozen import Frozen
from shakedown.logs.kept_logs import KeptLog

# Unix seconds of any day, and what brings a clock there: what is beyond cannot be computed with.
Seconds = Annotated[float, Field(ge=-1e11, le=1e11)]
# Of a known zone, and far from the ends of the calendar: it can be compared, shown in any zone and counted from.
Moment = Annotated[AwareDatetime, Field(ge=datetime(1900, 1, 1, tzinfo=UTC), le=datetime(9999, 12, 1, tzinfo=UTC))]


class NodeClock(Frozen):
    """What has to be added to a node's monotonic clock to have the controller's time (Unix seconds), and how far that
    may be off: half of the time that the shortest exchange with the node took (Cristian's algorithm)."""

    model_config = ConfigDict(allow_inf_nan=False)

    offset_s: Seconds
    uncertainty_s: Seconds

    def at(self, monotonic: float) -> float:
        """Return the controller's time of a moment of the node."""
        return monotonic + self.offset_s


class Timing(Frozen):
    """When things happened in one job, by the controller's clock, in Unix seconds."""

    model_config = ConfigDict(allow_inf_nan=False)

    started_at: Seconds | None = None
    stopped_at: Seconds | None = None  # when the controller began to stop the job; None: the job ended alone
    finished_at: Seconds | None = None
    clocks: dict[str, NodeClock] = {}
    iterations: list[tuple[int, Seconds]] = []  # (iteration, when its line came)


Outcome = Literal["completed", "failed", "interrupted", "not started"]


class Failure(Frozen):
    """Something that went wrong on a node, and when (by the controller's `Clock`, whatever the node's says).

    `kind` is an entry of the catalogue, or: busy, unusable, not ready, exit, early exit, no start, stall,
    timeout, unreachable, rebooted, disk full, watchdog, interrupted, controller.
    """

    node: str | None  # None: not one node's
    kind: str
    text: str  # what a person reads
    at: Moment  # no later than then it happened
    since: Moment | None = None  # and no sooner than then; None: nobody can say
    line: str | None = None  # the line of the node's log that shows it, or the last one before it
    line_number: int | None = None  # from 1, as `grep -n` counts
    cause: str | None = None
    remedy: str | None = None


class NodeResult(Frozen):
    """One node's part of the job."""

    name: str
    exit_code: int | None  # of the leader; negative: the signal that killed it; None: it never started or is not known
    started_at: datetime | None
    ended_at: datetime | None  # when the leader exited
    stopped: bool = False  # by the controller, with the job: the exit code is the stop's
    kept: list[KeptLog]  # the leader's output first
    notes: list[str]  # what a person should know: what is left on the node, logs that could not be fetched
    running_at_end: list[str] = []  # processes when it began to end, with their states: "123 python3 (T)"
    left: list[str] = []  # of these: what the run has left running, or may have: a run that has is no pass

    @property
    def logs(self) -> list[Path]:
        """Return the logs on the controller; the leader's output first."""
        return [Path(log.path) for log in self.kept]


class JobResult(Frozen):
    """What became of a job. `completed` says that every leader exited with 0: the gates judge the rest."""

    run_id: str
    outcome: Outcome
    reason: str
    first_failure: Failure | None
    failures: list[Failure]  # all that were seen before the job was stopped, in the order of time
    nodes: list[NodeResult]
    last_iteration: int | None
    started_at: datetime | None  # None: nothing was started
    finished_at: datetime
    timing: Timing = Timing()

    @property
    def completed(self) -> bool:
        """Return whether every rank exited with 0."""
        return self.outcome == "completed"
