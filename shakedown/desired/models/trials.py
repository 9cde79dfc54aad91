"""Trials before the smoke run."""

from typing import Annotated

from pydantic import Field, field_validator

from shakedown.desired.models.schedulers import JobVia
from shakedown.desired.models.section import Section, key
from shakedown.desired.models.values import Positive
from shakedown.desired.names import Text
from shakedown.hosts import nodes


class Trials(Section):
    """Short measurements of each node and between nodes, before the smoke run."""

    only: list[Text] = key([], "the trials to run, by name; empty: all that there are", ["gemm", "memory", "pairs"])
    repetitions: Annotated[int, Field(ge=1, le=100)] = key(
        3, "how often each figure is taken; what is named is so in every one of them", 3
    )
    slower: Annotated[float, Field(gt=0, lt=1)] = key(
        0.1, "fraction below the median of its peers from which a part is named; half of it is reported", 0.1
    )
    floors: dict[Text, float] = key(
        {},
        "TRIAL.FIGURE -> bound in the trial's unit, over the published ones; at most for times",
        {"gemm.bf16": 600.0},
    )
    racks: dict[Text, Text] = key(
        {},
        "nodes (also ranges) -> what they hang on together, such as their leaf switch: pairs are read by these too",
        {"node[01-16].rack7": "leaf1"},
    )
    via: JobVia = key(
        "ssh",
        "how jobs are started: over SSH, or in an allocation of a scheduler (the section of that name)",
        "slurm",
    )
    limit_s: Positive = key(60, "time in which a part has to give its next figure, or is ended", 60, unit="s")
    exclude: bool = key(False, "leave the nodes that a trial names out of the smoke run", True)

    @field_validator("racks", mode="before")
    @classmethod
    def _ranges(cls, value: object) -> object:
        if not isinstance(value, dict) or not all(isinstance(hosts, str) for hosts in value):
            return value
        return {host: rack for hosts, rack in value.items() for host in nodes(hosts)}
