"""The typed desired state, one class per section. A field that is None (or empty) is not checked and not changed.

Every model refuses unknown keys and wrong types: a site's layer with a typing error must never be read as "not
requested". Figures come from the profiles (`profiles/*.toml`), which name their sources.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import create_model

from shakedown.common.section import Positive, Section, Text, key
from shakedown.desired.models.jobs import EACH, TOGETHER, Benchmark, Smoke, Soak, Trials
from shakedown.desired.models.node import ContainerEngine, Gpu, Provider, Rdma, System, Tuning
from shakedown.desired.models.service import Agent, Bmc, Rolling, Service, Signing, Waiver
from shakedown.desired.models.software import DataFile, Dataset, Image, Mirror, Packages, Pulls, Source
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

    tuning: Tuning = key(Tuning(), "host settings")
    gpu: Gpu = key(..., "the GPUs")
    rdma: Rdma = key(Rdma(), "the RDMA devices")
    images: dict[Text, Image] = key(
        {}, "container images, by the names that smoke.image, benchmark.image and datasets.NAME.image use"
    )
    pulls: Pulls = key(Pulls(), "how images come to the nodes")
    system: System = key(System(), "what the node needs besides tuning")
    smoke: Smoke | None = key(None, "the smoke run")
    trials: Trials | None = key(None, "trials before the smoke run, deploy/trials.py")
    soak: Soak | None = key(None, "the burn-in, deploy/soak.py")
    source: Source | None = key(None, "a program from source, deploy/megatron_source.py")
    datasets: dict[Text, Dataset] = key(
        {}, "data sets on the nodes, deploy/datasets.py: shipped ones by name, or a site's own"
    )
    benchmark: Benchmark | None = key(None, "PyTorch training on each node, deploy/pytorch_training.py")
    agent: Agent | None = key(None, "the agent on the nodes, deploy/agent.py")
    rolling: Rolling = key(Rolling(), "a run in batches, `shakedown run --batch 10%`")
    service: Service | None = key(None, "the way back into service, shakedown service")
    waivers: dict[Text, Waiver] = key({}, "known exceptions, each for a time")
    signing: Signing | None = key(None, "signatures on runs, shakedown verify")
    kept_checks: Positive = key(
        50, "drift checks of an inventory that stay in the folder of runs; `drift` removes older ones, and no run", 500
    )
    reports: list[Report] = key(
        ["html"],
        "reports that a run writes into its directory, those of all hosts together; run.json is always there",
        ["html", "junit"],
    )

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
        **{
            name: (section | None, key(None, f"{name.capitalize()}, where it owns the nodes"))
            for name, section in registry.sections().items()
        },
    )
