"""The burn-in."""

from typing import Annotated

from pydantic import Field

from shakedown.desired.models.schedulers import JobVia
from shakedown.desired.models.section import Section, key
from shakedown.desired.names import Text


class Soak(Section):
    """A burn-in: load on every part for hours, with its counters of errors watched."""

    time: Text = key("24h", "how long nodes are loaded, besides checks and trials; `--for` comes first", "4h")
    only: list[Text] = key([], "the stages, by name; empty: all that apply", ["cpu", "memory"])
    scratch: Annotated[str, Field(pattern=r"^/[^\x00-\x1f{}]*$")] | None = key(
        None, "a folder on the nodes in which the disk test makes its own; else the run's folder", "/scratch"
    )
    memory: Annotated[float, Field(gt=0, le=0.9)] = key(0.7, "fraction of the free memory that is filled", 0.5)
    via: JobVia = key(
        "ssh", "how jobs are started: over SSH, or in an allocation of a scheduler (the section of that name)", "slurm"
    )
