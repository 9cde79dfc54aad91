"""What a baseline is, and what makes jobs comparable: data alone. A key has an `identity` (GPU model, recipe with
parameters, node count, scope) and an `epoch` (image, ROCm, amdgpu); another epoch begins a new baseline."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, date, datetime
from typing import Annotated, Any, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, FiniteFloat

from shakedown.common.frozen import Frozen
from shakedown.common.text import counted, decimal, short


def digest(values: Any) -> str:
    """Digest, hex, of a document of JSON, whatever the order of its keys."""
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


class Key(Frozen):
    """What a job's figures depend on besides the machines' health. Of nodes that differ every value is named."""

    gpu: str  # the GPUs' market name; of nodes without one the CPU's, after "CPU "
    recipe: str
    parameters: str  # digest, hex: options, environment, runtime, precision, batches, sequence length, parallelism
    nodes: int
    scope: str  # "each", "together"
    node: str | None = None  # of a job of one node by itself
    image: str  # sha256:... where the image is pinned, else its name; "none" for the runtime process
    rocm: str
    driver: str  # amdgpu

    @property
    def epoch(self) -> str:
        """What starts a new baseline when it changes, for a person to read."""
        return f"image {self.image}, ROCm {self.rocm}, amdgpu {self.driver}"

    @property
    def identity(self) -> str:
        """Digest, hex, of all that is not the epoch: equal for jobs that belong to one history."""
        return digest(self.model_dump(exclude={"image", "rocm", "driver"}))


class Earlier(Frozen):
    """An earlier comparable job that passed but for baselines. `figures`: metric -> value; `worse`: metrics."""

    run_id: str
    at: datetime
    figures: dict[str, float]
    epoch: str
    worse: list[str] = []


Direction = Literal["at least", "at most"]  # what a figure has to be: more is better, or less
Value = Annotated[float, Field(ge=0, le=1e15, allow_inf_nan=False)]  # of a figure: more than any machine has
MINIMUM = 5  # earlier runs, below which nothing is judged
MOST = 120  # earlier runs that one is compared with, the newest: more would only make the evidence of 512 nodes long


class Baseline(Frozen):
    """A figure's earlier runs, in its unit: `centre` with standard `error`, `spread` (deviation of a run) and `bound`
    of the comparison that decided, of the last `runs` (mean `recent`) with `earlier` ones. All, and `lost`, are None
    below `needed` earlier runs."""

    direction: Direction
    value: float
    count: int  # earlier runs
    needed: int = MINIMUM
    lost: bool | None = None
    runs: int = 1
    earlier: int = 0
    centre: float | None = None
    error: float | None = None
    spread: float | None = None
    recent: float | None = None
    bound: float | None = None
    since: str = ""  # the run with which a new level began, that this one is at too
    reported: bool = False  # whether a run before this one has reported that level

    def __str__(self) -> str:
        """Describe the baseline on one line."""
        if self.centre is None or self.error is None or self.bound is None:
            return f"{self.count} of {self.needed} runs"
        who = f"the last {self.runs} runs together are" if self.runs > 1 else "this run is"
        worse = f"{who} worse: " if self.lost else ""
        around = f"{decimal(self.centre)} +- {short(self.error)}"
        known = f"{self.direction} {decimal(self.bound)} by {counted(self.earlier, 'run')} around {around}"
        return f"{worse}{known}"


class Pass(Frozen):
    """An earlier run. `figures`: metric -> value in its unit; `worse`: metrics that are no part of a baseline."""

    run_id: str
    at: AwareDatetime
    figures: dict[str, Value]
    worse: list[str] = []


class PeersNoise(Frozen):
    """Other nodes' noise in the same job, as a share of the figure, and how many runs this opinion is worth."""

    noise: FiniteFloat = Field(ge=0)
    weight: FiniteFloat = Field(ge=0)
    nodes: int


class Past(BaseModel):
    """A job's earlier passes as its gates got them, kept as evidence. `earlier`: of its own `epoch`, oldest first;
    `others`: how many of other epochs, which do not count."""

    model_config = ConfigDict(extra="forbid", defer_build=True)

    judge: bool  # else what comes out is shown and is no gate
    epoch: str = ""
    earlier: Annotated[list[Pass], Field(max_length=MOST)] = []
    others: dict[str, int] = {}
    peers: dict[str, PeersNoise] = {}  # by metric
    since: date | None = None  # a day of UTC: passes before it do not count
    by: str = ""  # who accepted that
    problem: str = ""  # why nobody knows of earlier runs

    @classmethod
    def of(cls, known: Sequence[Earlier], epoch: str, judge: bool, since: date | None = None, by: str = "") -> Past:
        """Select what counts of all earlier passes of the same job."""
        recent = [run for run in known if since is None or run.at.astimezone(UTC).date() >= since]
        same = sorted((run for run in recent if run.epoch == epoch), key=lambda run: (run.at, run.run_id))
        others = Counter(run.epoch for run in recent if run.epoch != epoch)
        kept = [Pass(run_id=run.run_id, at=run.at, figures=run.figures, worse=run.worse) for run in same[-MOST:]]
        return cls(judge=judge, epoch=epoch, earlier=kept, others=dict(others), since=since, by=by)

    def of_metric(self, metric: str) -> list[Pass]:
        """Return the earlier runs that have this figure, and were not worse in it."""
        return [run for run in self.earlier if metric in run.figures and metric not in run.worse]

    @property
    def before(self) -> str:
        """Describe the passes of other epochs, which do not count; empty: there are none."""
        if not self.others:
            return ""
        epochs = [f"{count} with {epoch}" for epoch, count in list(self.others.items())[:3]]
        more = f" and {counted(len(self.others) - 3, 'other epoch')}" if len(self.others) > 3 else ""
        return f"earlier runs of another baseline: {', '.join(epochs)}{more}"

    @property
    def new_epoch(self) -> str:
        """Report a new epoch as long as it has too few runs to judge by; empty: it has enough, or is the first."""
        few = len(self.earlier) < MINIMUM
        return f"a new baseline begins with {self.epoch}; {self.before}" if few and self.others else ""

    @property
    def judged(self) -> dict[str, Past]:
        """Return the metrics that have enough earlier runs to judge by, each with these runs."""
        names = dict.fromkeys(metric for run in self.earlier for metric in run.figures)
        return {name: self for name in names if self.judge and len(self.of_metric(name)) >= MINIMUM}
