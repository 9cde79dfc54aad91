"""What is noted while a file is read: errors, open values, and what its reader should know."""

from __future__ import annotations

from dataclasses import dataclass, field

from shakedown.desired.cvs.document import PLACEHOLDER, Given
from shakedown.desired.cvs.result import Remark
from shakedown.desired.problems import Problem


@dataclass
class Notes:
    """`where` is the layer's name, "cvs FILE"."""

    where: str
    problems: list[Problem] = field(default_factory=list)
    open: list[Problem] = field(default_factory=list)
    remarks: list[Remark] = field(default_factory=list)

    def wrong(self, given: Given, expected: str) -> None:
        """An error: the file cannot be imported."""
        self.problems.append(Problem(self.where, given.path, given.shown, expected))

    def leave_open(self, given: Given, target: str, missing: bool = False) -> None:
        """A value that somebody has to give, here or as `target` in a layer above."""
        expected = f"a value{'' if missing else f' in place of {PLACEHOLDER}'} ({target})"
        self.open.append(Problem(self.where, given.path, "nothing" if missing else given.shown, expected))

    def derive(self, given: Given, why: str) -> None:
        """The nodes answer it."""
        self.remarks.append(Remark("derived", given.path, given.shown, why))

    def refuse(self, given: Given, why: str) -> None:
        """Not taken over."""
        self.remarks.append(Remark("refused", given.path, given.shown, why))

    def flag(self, given: Given, why: str) -> None:
        """Taken over, and it may not hold."""
        self.remarks.append(Remark("flagged", given.path, given.shown, why))
