"""What an import comes to: a site's layer with remarks, as Python or JSON text."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from shakedown.common.text import counted
from shakedown.desired.problems import Problem

Kind = Literal["derived", "refused", "flagged"]


@dataclass(frozen=True)
class Remark:
    """Something a reader of the file should know.

    `derived`: the nodes answer it. `refused`: it is not taken over. `flagged`: it is taken over, and may not hold.
    """

    kind: Kind
    path: str  # in the file
    value: str
    why: str

    def __str__(self) -> str:
        return f"{self.path} = {self.value}: {self.kind}: {self.why}"


@dataclass
class Imported:
    """One job of a CVS file as a site's layer.

    `values` has the very text <changeme> where the file leaves a value open that no node can answer: a layer above may
    give it, and a desired state in which one is left is refused. `open` lists them with their paths in the file.
    """

    name: str  # "cvs FILE"
    values: dict[str, Any] = field(default_factory=dict)
    open: list[Problem] = field(default_factory=list)
    remarks: list[Remark] = field(default_factory=list)

    @property
    def derived(self) -> list[Remark]:
        """What is left to the nodes, with the reason."""
        return [remark for remark in self.remarks if remark.kind == "derived"]

    @property
    def refused(self) -> list[Remark]:
        """What is not taken over, with the reason."""
        return [remark for remark in self.remarks if remark.kind == "refused"]

    @property
    def flagged(self) -> list[Remark]:
        """What is taken over and may not hold, with the reason."""
        return [remark for remark in self.remarks if remark.kind == "flagged"]


class CvsError(ValueError):
    """A file that cannot be imported. `problems` holds every error, not the first; `remarks` what is noted besides."""

    def __init__(self, problems: Sequence[Problem], remarks: Sequence[Remark] = ()) -> None:
        self.problems = tuple(problems)
        self.remarks = tuple(remarks)
        count = counted(len(self.problems), "error")
        super().__init__("\n".join([f"the CVS file has {count}:", *(f"  {p}" for p in self.problems)]))
