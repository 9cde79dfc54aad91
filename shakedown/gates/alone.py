"""What nodes do together against the sum of what the same nodes do alone."""

from pydantic import Field, FiniteFloat

from shakedown.common.frozen import Frozen
from shakedown.gates.baselines.model import Value


class OneAlone(Frozen):
    """What a node did by itself, in which runs: metric -> the figure per GPU (of several runs their median), and over
    how many ranks."""

    runs: list[str]
    ranks: int = Field(gt=0, le=10**6)
    figures: dict[str, Value]


class Alone(Frozen):
    """What each node of a job did by itself, as the gate was given it; a node that is missing did nothing, or nobody
    knows of it. `share` is what of the sum they are to do together, 0 to 1."""

    share: FiniteFloat = Field(gt=0)
    nodes: dict[str, OneAlone | None]
