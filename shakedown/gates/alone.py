"""What nodes do together against the sum of what the same nodes do alone."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat

from shakedown.gates.baselines.model import Value


class OneAlone(BaseModel):
    """What a node did by itself, in which runs: metric -> the figure per GPU (of several runs their median), and over
    how many ranks."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    runs: list[str]
    ranks: int = Field(gt=0, le=10**6)
    figures: dict[str, Value]


class Alone(BaseModel):
    """What each node of a job did by itself, as the gate was given it; a node that is missing did nothing, or nobody
    knows of it. `share` is what of the sum they are to do together, 0 to 1."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    share: FiniteFloat = Field(gt=0)
    nodes: dict[str, OneAlone | None]
