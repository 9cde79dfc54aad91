"""The agent on the nodes."""

from typing import Annotated, Literal

from pydantic import Field, field_validator

from shakedown.desired.models.section import Section, key
from shakedown.desired.models.values import Positive
from shakedown.desired.names import MountPath
from shakedown.desired.sizes import parse_size


class Agent(Section):
    """The timer on each node that checks it without the controller, deploy/agent.py."""

    state: Literal["present", "absent"] = key("present", "have the agent on the nodes, or not", "absent")
    every_s: Annotated[int, Field(ge=30, le=86400)] = key(600, "time between two checks of a node", 600, unit="s")
    delay_s: Annotated[int, Field(ge=0, le=3600)] = key(
        120, "at most this much later, at random, so that not all nodes check at the same time", 120, unit="s"
    )
    timeout_s: Annotated[int, Field(ge=10, le=3600)] = key(
        120, "time of one check, after which it is ended", 120, unit="s"
    )
    memory_bytes: Positive = key(256 << 20, "memory of one check, above which it is ended", "256M", unit="bytes")
    stale_after_s: Positive | None = key(
        None, "age from which a verdict is unknown; None: two checks and a half", 3600, unit="s"
    )
    textfile: MountPath | None = key(
        None,
        "folder of node_exporter's textfile collector on the nodes, root's own; None: no metrics are written",
        "/var/lib/prometheus/node-exporter",
    )
    remedy: Literal["none", "safe"] = key(
        "none",
        "whether the agent puts back what is safe to change; it never loads a driver anew, and never boots",
        "safe",
    )
    remedies_per_day: Annotated[int, Field(ge=1, le=100)] = key(
        3, "how often a day it puts back one thing, after which it only reports", 3
    )

    @field_validator("memory_bytes", mode="before")
    @classmethod
    def _size(cls, value: object) -> object:
        return parse_size(value)

    @property
    def stale_s(self) -> int:
        """Age from which a verdict says nothing about the node any more, seconds."""
        return self.stale_after_s or (5 * (self.every_s + self.delay_s) + 2 * self.timeout_s) // 2
