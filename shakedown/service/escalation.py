"""The escalation as data: escalation.toml."""

from fnmatch import fnmatchcase
from functools import cache
from typing import Annotated

from pydantic import Field

from shakedown.common.data import read_toml
from shakedown.common.frozen import Frozen
from shakedown.service.model import Incident, Repair


class _Named(Frozen):
    names: list[str]
    reason: str


class Budget(Frozen):
    """A repair with its budget: `attempts` within `within_h` hours, and `wait_s` seconds after the last repair."""

    repair: Repair
    attempts: Annotated[int, Field(ge=1)]
    within_h: Annotated[float, Field(gt=0)]
    wait_s: Annotated[float, Field(ge=0)]


class Entry(Frozen):
    """The repairs for some incidents, in this order, and the loads that show a success."""

    names: list[str]
    steps: Annotated[list[Budget], Field(min_length=1)]
    shown_by: list[str] = []
    reason: str


class Escalation(Frozen):
    """escalation.toml, with the defaults filled in."""

    ignored: _Named
    compared: _Named
    entry: list[Entry]

    def counts(self, incident: Incident) -> bool:
        """Return whether an incident makes the node suspect."""
        return not _matches(self.ignored.names, incident)

    def is_compared(self, incident: Incident) -> bool:
        """Return whether an incident rests on other nodes' reports."""
        return _matches(self.compared.names, incident)

    def entry_for(self, incident: Incident) -> Entry:
        """Find the entry of an incident; the last entry matches every incident."""
        return next(entry for entry in self.entry if _matches(entry.names, incident))

    def shown_by(self, incident: Incident) -> list[str]:
        """List the loads that the node has to pass; empty: any load."""
        return [load.format(name=incident.name) for load in self.entry_for(incident).shown_by]


def _matches(patterns: list[str], incident: Incident) -> bool:
    return any(fnmatchcase(f"{incident.source} {incident.name}", pattern) for pattern in patterns)


@cache
def escalation() -> Escalation:
    """Load the shipped escalation."""
    document = read_toml("shakedown.service", "escalation.toml")
    defaults = document.pop("defaults")
    for entry in document["entry"]:
        entry["steps"] = [{**defaults, **step} for step in entry["steps"]]
    return Escalation.model_validate(document)
