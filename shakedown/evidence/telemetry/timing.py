"""One time for all nodes of a job: the controller's."""

from datetime import UTC, datetime
from typing import Annotated

from pydantic import AwareDatetime, ConfigDict, Field

from shakedown.common.frozen import Frozen

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
