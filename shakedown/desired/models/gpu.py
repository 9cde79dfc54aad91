"""The GPUs of a node."""

from typing import Annotated, Literal

from pydantic import Field, field_validator

from shakedown.desired.models.section import Section, key
from shakedown.desired.models.values import Environment, Positive
from shakedown.desired.names import Module, Text, Word
from shakedown.desired.sizes import parse_size


class Gpu(Section):
    """The GPUs of a node. `profile` names a file of profiles/gpu; count 0 is a node without GPUs."""

    profile: Text = key(..., 'the GPU profile, a file of profiles/gpu; a site writes gpu = "mi300x"', "mi300x")
    name: Text = key(..., "the model's name in findings", "AMD Instinct MI300X")
    count: int = key(..., "GPUs of a node; 0 is a node without", 8, ge=0)
    pci_ids: list[Annotated[str, Field(pattern=r"^[0-9a-f]{4}:[0-9a-f]{4}$")]] = key(
        [], "PCI ids, vendor:device, that the model has", ["1002:74a1"]
    )
    vram_bytes: int | None = key(None, "memory of one GPU", "192G", unit="bytes")
    link_gts: float | None = key(None, "PCIe rate of each lane", 32.0, unit="GT/s")
    link_width: Positive | None = key(None, "PCIe lanes of a GPU", 16, unit="lanes")
    vram_used_bytes: Positive | None = key(
        None,
        "memory in use on a GPU without a job, from which the GPU is not idle",
        "2G",
        unit="bytes",
        source="primus-node-smoke",
    )
    corrected_errors: int | None = key(
        None,
        "corrected memory errors of a GPU since its driver was loaded, above which there is advice",
        0,
        unit="errors",
        source="node-scraper",
        ge=0,
    )
    pcie_replays: int | None = key(
        None,
        "repeated packets of a GPU's PCIe link, above which there is advice",
        0,
        unit="packets",
        source="node-scraper",
        ge=0,
    )
    xgmi_links: Positive | None = key(
        None, "XGMI links of one GPU that are up, to the others of its board", 7, unit="links"
    )
    power_cap_w: Positive | None = key(
        None, "least power cap of every GPU; without it the default of the GPU itself", 750, unit="W"
    )
    compute_partition: Word | None = key(None, "compute partition of every GPU", "SPX", source="system-optimization")
    memory_partition: Word | None = key(None, "memory partition of every GPU", "NPS1", source="system-optimization")
    rocm_min: Annotated[str, Field(pattern=r"^\d+\.\d+(\.\d+)?$")] | None = key(
        None, "oldest version of ROCm on the node that will do", "6.3.0"
    )
    rccl: Literal["installed"] | None = key(
        None, "RCCL on the node itself, for jobs that run without a container", "installed"
    )
    modules: list[Module] = key(
        [], "the driver's kernel modules; with them /dev/kfd and /dev/dri are wanted", ["amdgpu"]
    )
    no_throttling: list[Literal["power", "current", "thermal", "vr_thermal", "hbm_thermal", "prochot"]] = key(
        [],
        "reasons for which no GPU may be throttled in the steady iterations of a job; other reasons are reported",
        ["thermal", "hbm_thermal", "prochot"],
    )
    environment: Environment = key(
        {},
        "variables of every job on these GPUs; those of the NIC family, the options and "
        "smoke.environment win over them",
        {"HSA_NO_SCRATCH_RECLAIM": "1"},
    )

    @field_validator("vram_bytes", "vram_used_bytes", mode="before")
    @classmethod
    def _size(cls, value: object) -> object:
        return parse_size(value)
