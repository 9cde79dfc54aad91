"""What the document allows, and what its figures are called: pytorch_training.toml."""

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from shakedown.common.data import read_toml
from shakedown.desired.bounds import bounds
from shakedown.desired.contradictions import undeclared
from shakedown.desired.models import Benchmark, Image
from shakedown.desired.problems import Problem
from shakedown.recipes.documents import DocumentName


class _Data(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Model(_Data):
    """One model: the training modes and precisions that the document runs it with."""

    modes: list[str]
    precisions: list[str]
    steps: list[str] = []  # modes whose log must have a line for each step
    setup: list[str] = []  # what the setup has to leave: "library NAME [VERSION]", "model NAME", "data NAME"


class Scripts(_Data):
    """Scripts of one commit that train something else than they are asked for: what they do train."""

    precisions: list[str]
    seq_length: int


class Metric(_Data):
    """Unit and direction of a figure."""

    unit: str
    direction: Literal["at least", "at most"]

    def meets(self, actual: float, bound: float) -> bool:
        """Whether a value is as good as the bound. Never true for NaN."""
        return actual >= bound if self.direction == "at least" else actual <= bound


class Document(_Data):
    """The whole file."""

    document: DocumentName
    image: str
    folders: list[str]
    models: dict[str, Model]
    scripts: dict[str, Scripts] = {}
    why: dict[str, str]
    report: dict[str, str]
    summary: dict[str, str]
    metrics: dict[str, Metric]
    container: dict[str, Any]


@cache
def document() -> Document:
    """Return the data of the document."""
    return Document.model_validate(read_toml("shakedown.recipes", "pytorch_training.toml"))


def excluded(wanted: Benchmark) -> list[tuple[str, object, str]]:
    """Return what the document, or the scripts of the commit, exclude of a combination.

    Of each: field, value, what was expected and why.
    """
    data = document()
    known = data.models[wanted.model]
    exclusions: list[tuple[str, object, str]] = []
    allowed_by = (("mode", wanted.mode, known.modes), ("precision", wanted.precision, known.precisions))
    for field, value, allowed in allowed_by:
        if value not in allowed:
            exclusions.append((field, value, f"{' or '.join(allowed)} with {wanted.model}: {data.why[field]}"))
    scripts = data.scripts.get(wanted.commit)
    if scripts is None or wanted.model == "Flux":
        return exclusions
    other = f"MAD's scripts at {wanted.commit[:7]} train with nothing else; benchmark.commit names others"
    if wanted.precision in known.precisions and wanted.precision not in scripts.precisions:
        exclusions.append(("precision", wanted.precision, f"{' or '.join(scripts.precisions)}: {other}"))
    if wanted.seq_length not in (None, scripts.seq_length) and wanted.mode == "pretrain":
        exclusions.append(("seq_length", wanted.seq_length, f"{scripts.seq_length}: {other}"))
    return exclusions


def problems_of(wanted: Benchmark, images: Mapping[str, Image]) -> Iterator[Problem]:
    """Yield combinations that the benchmark's document excludes, and names that lead nowhere."""
    for key, value, expected in excluded(wanted):
        yield Problem("", f"benchmark.{key}", repr(value), expected)
    yield from undeclared("benchmark.image", wanted.image, images)
    yield from bounds("benchmark.expect", wanted.expect, document().metrics)
