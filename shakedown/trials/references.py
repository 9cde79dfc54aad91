"""Published figures with their sources, and physical limits: `references.toml`."""

from datetime import date
from fnmatch import fnmatchcase
from functools import cache

from pydantic import Field

from shakedown.common.data import read_toml
from shakedown.common.frozen import Frozen

MEASURED = 1.02  # clocks differ between a device's timer and the host's by less


class Floor(Frozen):
    """A published figure. A part fails below `value` times `factor`."""

    figure: str
    gpus: list[str]
    value: float = Field(gt=0)
    unit: str
    factor: float = Field(gt=0, le=1)
    source: str
    date: date
    disputed: str = ""  # why the floor fails no part

    @property
    def bound(self) -> float:
        """Return the value that a figure must reach."""
        return self.value * self.factor

    @property
    def origin(self) -> str:
        """Write the value with its source."""
        return f"{self.value:g} {self.unit} x {self.factor:g}, {self.source} ({self.date})"


class References(Frozen):
    """The whole file. `ceilings`: GPU profile -> figure or pattern of figures -> physical limit."""

    floors: list[Floor]
    ceilings: dict[str, dict[str, float]]

    def floor(self, gpu: str, figure: str) -> Floor | None:
        """Look up the published floor of a figure (TRIAL.FIGURE) on a GPU model."""
        return next((floor for floor in self.floors if floor.figure == figure and gpu in floor.gpus), None)

    def ceiling(self, gpu: str, figure: str) -> float | None:
        """Look up the physical limit of a figure, with room for the error of clocks."""
        limits = self.ceilings.get(gpu, {})
        return next((most * MEASURED for pattern, most in limits.items() if fnmatchcase(figure, pattern)), None)


@cache
def references() -> References:
    return References.model_validate(read_toml("shakedown.trials", "references.toml"))
