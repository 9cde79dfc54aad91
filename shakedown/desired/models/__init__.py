"""The typed desired state, one class per section. A field that is None (or empty) is not checked and not changed.
Unknown keys and wrong types are refused. Figures come from `profiles/*.toml`, with sources; `keys.toml` describes each
key for docs/reference/configuration.md."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import create_model

from shakedown.common.section import Positive, Section, Text
from shakedown.desired.models.jobs import (
    EACH,
    TOGETHER,
    Agent,
    Benchmark,
    Bmc,
    Rolling,
    Service,
    Signing,
    Smoke,
    Soak,
    Trials,
    Waiver,
)
from shakedown.desired.models.node import (
    ContainerEngine,
    DataFile,
    Dataset,
    Gpu,
    Image,
    Mirror,
    Packages,
    Provider,
    Pulls,
    Rdma,
    Source,
    System,
    Tuning,
)
from shakedown.node.sysctl import DRIVES, NEIGHBOURS
from shakedown.schedulers import registry

__all__ = [
    "EACH", "NO_PROMISE", "TOGETHER", "Agent", "Benchmark", "Bmc", "ContainerEngine", "DataFile", "Dataset",
    "DesiredState", "Gpu", "Image", "Mirror", "Packages", "Provider", "Pulls", "Rdma", "Rolling", "Section", "Service",
    "Signing", "Smoke", "Soak", "Source", "System", "Trials", "Tuning", "Waiver",
]  # fmt: skip

NO_PROMISE = {"kept_checks", "pulls", "reports", "rolling", "signing", "waivers"}
"""Sections that ask nothing of a node."""
Report = Literal["html", "acceptance", "junit", "prometheus", "markdown"]


class _Fixed(Section):
    """What one node should be."""

    tuning: Tuning = Tuning()
    gpu: Gpu
    rdma: Rdma = Rdma()
    images: dict[Text, Image] = {}
    pulls: Pulls = Pulls()
    system: System = System()
    smoke: Smoke | None = None
    trials: Trials | None = None
    soak: Soak | None = None
    source: Source | None = None
    datasets: dict[Text, Dataset] = {}
    benchmark: Benchmark | None = None
    agent: Agent | None = None
    rolling: Rolling = Rolling()
    service: Service | None = None
    waivers: dict[Text, Waiver] = {}
    signing: Signing | None = None
    kept_checks: Positive = 50
    reports: list[Report] = ["html"]

    @property
    def requested_readings(self) -> tuple[str, ...]:
        """Return what the probe reads on request: keys of sysctl, and readings that start programs."""
        wanted = {DRIVES: bool(self.system.drive_health), NEIGHBOURS: self.rdma.cabling is not None}
        return (*self.tuning.sysctl, *(name for name, asked_for in wanted.items() if asked_for))


if TYPE_CHECKING:

    class DesiredState(_Fixed):
        """What one node should be: the sections above, and one for every scheduler that has settings."""
else:
    DesiredState = create_model(
        "DesiredState",
        __base__=_Fixed,
        __doc__=_Fixed.__doc__,
        __module__=__name__,
        **{name: (section | None, None) for name, section in registry.sections().items()},
    )
