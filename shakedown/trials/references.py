"""Published figures, with their pages, and what is physically possible: `references.toml`."""

from __future__ import annotations

import tomllib
from datetime import date
from fnmatch import fnmatchcase
from functools import cache
from importlib.resources import files

from pydantic import BaseModel, ConfigDict, Field

MEASURED = 1.02  # clocks differ between a device's timer and the host's by less


class Floor(BaseModel):
    """A figure that a page asks for. What fails a part is `value` times `factor`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    figure: str
    gpus: list[str]
    value: float = Field(gt=0)
    unit: str
    factor: float = Field(gt=0, le=1)
    source: str
    date: date
    disputed: str = ""  # why it fails nobody

    @property
    def bound(self) -> float:
        """What a figure must reach."""
        return self.value * self.factor

    @property
    def told(self) -> str:
        """Where it is from."""
        return f"{self.value:g} {self.unit} x {self.factor:g}, {self.source} ({self.date})"


class References(BaseModel):
    """The whole file. `ceilings`: GPU profile -> figure, or a pattern of figures -> the most that there can be."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    floors: list[Floor]
    ceilings: dict[str, dict[str, float]]

    def floor(self, gpu: str, figure: str) -> Floor | None:
        """What is published for a figure (TRIAL.FIGURE) on a GPU model."""
        return next((each for each in self.floors if each.figure == figure and gpu in each.gpus), None)

    def ceiling(self, gpu: str, figure: str) -> float | None:
        """The most that a figure can be."""
        known = self.ceilings.get(gpu, {})
        found = next((most for pattern, most in known.items() if fnmatchcase(figure, pattern)), None)
        return None if found is None else found * MEASURED


@cache
def references() -> References:
    """As shipped."""
    text = (files("shakedown.trials") / "references.toml").read_text("utf-8")
    return References.model_validate(tomllib.loads(text))
