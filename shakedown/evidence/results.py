"""What became of a job: its failures and the end of each node's part, as data."""

from datetime import datetime
from pathlib import Path
from typing import Literal

from shakedown.common.frozen import Frozen
from shakedown.evidence.telemetry.timing import Moment, Timing
from shakedown.logs.kept_logs import KeptLog

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
