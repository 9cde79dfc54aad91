"""What a baseline is and what it says: data alone, so that who only reads it loads no numpy."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

Direction = Literal["at least", "at most"]  # what a figure has to be: more is better, or less
MINIMUM = 5  # earlier runs, below which nothing is judged


class Baseline(BaseModel):
    """What earlier runs say of a figure, in the metric's own unit.

    `centre` with its standard `error`, the `spread` (standard deviation) of one run, and the `bound` are those of the
    comparison that decided: of the last `runs` runs, whose mean is `recent`, with the `earlier` ones before them. All
    are None as long as there are fewer than `needed` earlier runs: the figure is then recorded and not judged, and
    `lost` is None too.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

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
