"""What the document allows, and what its figures are called: pytorch_training.toml."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib.resources import files
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict


class _Data(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Model(_Data):
    """One model: the training modes and precisions that the document runs it with."""

    modes: list[str]
    precisions: list[str]
    steps: list[str] = []  # modes whose log must have a line for each step


class Metric(_Data):
    """Unit and direction of a figure."""

    unit: str
    direction: Literal["at least", "at most"]

    def meets(self, actual: float, bound: float) -> bool:
        """Whether a value is as good as the bound. Never true for NaN."""
        return actual >= bound if self.direction == "at least" else actual <= bound


class Document(_Data):
    """The whole file."""

    document: str
    image: str
    folders: list[str]
    models: dict[str, Model]
    why: dict[str, str]
    report: dict[str, str]
    summary: dict[str, str]
    metrics: dict[str, Metric]
    container: dict[str, Any]


@cache
def document() -> Document:
    """The data of the document."""
    text = (files("shakedown.smoke.benchmark") / "pytorch_training.toml").read_text("utf-8")
    return Document.model_validate(tomllib.loads(text))


def excluded(model: str, mode: str, precision: str) -> list[tuple[str, str, str]]:
    """What the document excludes of a combination: (field, value, what was expected and why)."""
    data = document()
    known = data.models.get(model)
    if known is None:
        return [("model", model, f"one of {', '.join(data.models)}")]
    found = []
    for field, value, allowed in (("mode", mode, known.modes), ("precision", precision, known.precisions)):
        if value not in allowed:
            found.append((field, value, f"{' or '.join(allowed)} with {model}: {data.why[field]}"))
    return found
