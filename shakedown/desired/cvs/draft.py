"""A layer in the making."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from shakedown.desired.cvs.document import Given
from shakedown.desired.cvs.families import Family
from shakedown.desired.cvs.forms import Job
from shakedown.desired.cvs.notes import Notes


@dataclass
class Draft:
    """`given` and `parsed` are by the parameters' names; `parsed` holds those with a value of the right type."""

    notes: Notes
    file: Path
    given: dict[str, Given]
    job: Job | None
    figure_nodes: int | None  # for how many nodes a comment says the figures are
    thresholds: str | None = None  # the threshold file that a person chose
    family: Family | None = None
    parsed: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)  # smoke.options
    values: dict[str, Any] = field(default_factory=dict)

    @property
    def model(self) -> str:
        """The model's name in the file."""
        return str(self.job.model.value) if self.job else ""

    def put(self, path: str, value: Any) -> None:
        """Set a dotted path of the layer; an object is merged into what stands there."""
        *above, last = path.split(".")
        at = self.values
        for part in above:
            at = at.setdefault(part, {})
        if isinstance(value, dict) and isinstance(at.get(last), dict):
            for key, item in value.items():
                self.put(f"{path}.{key}", item) if isinstance(item, dict) else at[last].__setitem__(key, item)
        else:
            at[last] = value
