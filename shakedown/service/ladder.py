"""The ladder as data: ladder.toml."""

from __future__ import annotations

import tomllib
from fnmatch import fnmatchcase
from functools import cache
from importlib.resources import files
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from shakedown.service.model import Accusation, Rung


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class _Defaults(_Part):
    attempts: Annotated[int, Field(ge=1)]
    within_h: Annotated[float, Field(gt=0)]
    wait_s: Annotated[float, Field(ge=0)]
    reason: str


class _Named(_Part):
    names: list[str]
    reason: str


class RungOf(_Part):
    """A rung of an entry with its budget. None: as the defaults say."""

    rung: Rung
    attempts: Annotated[int, Field(ge=1)] | None = None
    within_h: Annotated[float, Field(gt=0)] | None = None
    wait_s: Annotated[float, Field(ge=0)] | None = None


class Entry(_Part):
    """What is tried for some accusations, in this order, and what shows that it has helped."""

    names: list[str]
    rungs: Annotated[list[RungOf], Field(min_length=1)]
    shown_by: list[str] = []
    reason: str


class Budget(_Part):
    """A rung with its budget: `attempts` within `within_s` seconds, and not before `wait_s` seconds after the last."""

    rung: Rung
    attempts: int
    within_s: float
    wait_s: float


class Ladder(_Part):
    """ladder.toml."""

    defaults: _Defaults
    nobody: _Named
    compared: _Named
    entry: list[Entry]

    def accuses(self, accusation: Accusation) -> bool:
        """Whether it speaks against the node at all."""
        return not _matches(self.nobody.names, accusation)

    def is_compared(self, accusation: Accusation) -> bool:
        """Whether it rests on what other nodes say of themselves."""
        return _matches(self.compared.names, accusation)

    def is_of_nobody(self, ended_by: str) -> bool:
        """Whether what ended a job that a node had for itself says nothing of that node."""
        return f"ended {ended_by}" in self.nobody.names

    def of(self, accusation: Accusation) -> Entry:
        """The entry of an accusation; the last one holds for all."""
        return next((each for each in self.entry if _matches(each.names, accusation)), self.entry[-1])

    def rungs(self, accusation: Accusation) -> list[Budget]:
        """Its rungs in order, each with its budget."""
        return [self._budget(each) for each in self.of(accusation).rungs]

    def shown_by(self, accusation: Accusation) -> list[str]:
        """The loads that the node has to pass; none: any will do."""
        return [each.format(name=accusation.name) for each in self.of(accusation).shown_by]

    def _budget(self, each: RungOf) -> Budget:
        usual = self.defaults
        return Budget(
            rung=each.rung,
            attempts=usual.attempts if each.attempts is None else each.attempts,
            within_s=3600 * (usual.within_h if each.within_h is None else each.within_h),
            wait_s=usual.wait_s if each.wait_s is None else each.wait_s,
        )


def _matches(patterns: list[str], accusation: Accusation) -> bool:
    return any(fnmatchcase(f"{accusation.source} {accusation.name}", pattern) for pattern in patterns)


@cache
def ladder() -> Ladder:
    """The ladder that is shipped."""
    return Ladder.model_validate(tomllib.loads((files("shakedown.service") / "ladder.toml").read_text("utf-8")))
