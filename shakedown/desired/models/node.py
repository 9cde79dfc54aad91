"""What a node is made of, how it is set up, and what is brought to it: GPUs, host settings, images, programs, data."""

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, field_validator

from shakedown.common.section import MountPath, Positive, Section, Text, Word
from shakedown.desired.cabling import Cabling, read_plan
from shakedown.desired.values import (
    SIZE,
    Commit,
    Congestion,
    DevicePattern,
    Dscp,
    Environment,
    Group,
    Module,
    NodePath,
    Parameter,
    Priority,
    Sha256,
    Sysctl,
    parse_room,
)
from shakedown.state.images import parse


class Gpu(Section):
    """The GPUs of a node. `profile` names a file of profiles/gpu; count 0 is a node without GPUs."""

    profile: Text
    name: Text
    count: Annotated[int, Field(ge=0)]
    pci_ids: list[Annotated[str, Field(pattern=r"^[0-9a-f]{4}:[0-9a-f]{4}$")]] = []
    vram_bytes: Annotated[int | None, SIZE] = None
    link_gts: float | None = None
    link_width: Positive | None = None
    vram_used_bytes: Annotated[Positive | None, SIZE] = None
    corrected_errors: Annotated[int, Field(ge=0)] | None = None
    pcie_replays: Annotated[int, Field(ge=0)] | None = None
    xgmi_links: Positive | None = None
    power_cap_w: Positive | None = None
    compute_partition: Word | None = None
    memory_partition: Word | None = None
    rocm_min: Annotated[str, Field(pattern=r"^\d+\.\d+(\.\d+)?$")] | None = None
    rccl: Literal["installed"] | None = None
    modules: list[Module] = []
    no_throttling: list[Literal["power", "current", "thermal", "vr_thermal", "hbm_thermal", "prochot"]] = []
    environment: Environment = {}


class Provider(Section):
    """The libibverbs provider of a NIC family, on the host and in the container."""

    name: Module
    host_library: MountPath | None = None
    source: Text | None = None
    sha256: Sha256 | None = None
    container_library: MountPath | None = None
    install_as: MountPath | None = None
    config_dirs: list[MountPath] = []


class Rdma(Section):
    """The RDMA devices of a node. `family` names a file of profiles/nic; None where the node has none."""

    family: Text | None = None
    count: Annotated[int, Field(ge=0)] = 0
    devices: list[DevicePattern] = []
    usual_devices: list[DevicePattern] = []
    vendor: Annotated[str, Field(pattern=r"^[0-9a-f]{4}$")] | None = None
    rate_gbps: float | None = None
    mtu: Positive | None = None
    link_gts: float | None = None
    link_width: Positive | None = None
    max_read_request: Positive | None = None
    usual_gid_index: int | None = None
    pfc: list[Priority] | None = None
    dscp: dict[Dscp, Priority] = {}
    congestion: dict[Congestion, Annotated[int, Field(ge=0)]] = {}
    usual_pfc: list[Priority] = []
    usual_dscp: dict[Dscp, Priority] = {}
    modules: list[Module] = []
    cabling: Annotated[Cabling | None, BeforeValidator(read_plan)] = None
    environment: Environment = {}
    provider: Provider | None = None
    mounts: dict[MountPath, MountPath] = {}


class Tuning(Section):
    """Host settings."""

    numa_balancing: bool | None = None
    nmi_watchdog: bool | None = None
    cmdline: list[Parameter] = []
    cpu_governor: Word | None = None
    c2: Literal["disabled"] | None = None
    thp: Literal["always", "madvise", "never"] | None = None
    pcie_acs: Literal["off"] | None = None
    memlock: Literal["unlimited"] | Positive | None = None
    nofile: Positive | None = None
    groups: list[Group] = []
    sysctl: Sysctl = {}
    modules: list[Module] = []


class ContainerEngine(Section):
    """The engine that runs containers. `"docker"` alone stands for `{"name": "docker"}`."""

    name: Literal["any", "docker", "podman"] = "any"
    install: bool = False


class System(Section):
    """What the node needs besides tuning."""

    container_engine: ContainerEngine | None = None
    clock_synchronised: bool | None = None
    clock_skew_s: float | None = None
    memory: Annotated[Positive | None, BeforeValidator(parse_room)] = None
    mpi: Literal["installed"] | None = None
    mounts_answer: bool | None = None
    drive_health: bool | None = None
    disk_free: dict[NodePath, int] = {}
    reboot: Literal["never", "when needed"] = "never"
    reboot_at_once: Positive = 1
    reboot_timeout_s: Positive = 900
    kernel_log_clean: bool | None = None

    @field_validator("disk_free", mode="before")
    @classmethod
    def _sizes(cls, value: object) -> object:
        return {key: parse_room(size) for key, size in value.items()} if isinstance(value, dict) else value


class Image(Section):
    """A container image: `name:tag`, `name@sha256:...` or `name:tag@sha256:...`."""

    reference: Text
    insecure: bool = False
    ca_file: Text | None = None
    username: Text | None = None
    password_file: Text | None = None
    password_env: Text | None = None
    size_bytes: Annotated[int | None, SIZE] = None

    @field_validator("reference")
    @classmethod
    def _reference(cls, value: str) -> str:
        try:
            parse(value)
        except ValueError:
            raise ValueError("name:tag, name@sha256:... or name:tag@sha256:...") from None
        return value


class Mirror(Section):
    """A mirror or pull-through cache of one registry. What it gives has the digest that is wanted, or is refused."""

    address: Annotated[str, Field(pattern=r"^[A-Za-z0-9.-]+(:[0-9]{1,5})?(/[a-z0-9._/-]+)?$")]
    insecure: bool = False
    ca_file: Text | None = None
    username: Text | None = None
    password_file: Text | None = None
    password_env: Text | None = None


class Pulls(Section):
    """How images come to the nodes."""

    at_once: Positive = 8
    mirrors: dict[Text, Mirror] = {}


class Packages(Section):
    """One call of pip."""

    packages: list[Text] = []
    requirements: Text | None = None
    index_url: Text | None = None


class Source(Section):
    """A program from source on the node."""

    url: Text
    commit: Commit
    path: Text
    patches: list[Text] = []
    venv: Text | None = None
    python: Text = "python3"
    install: list[Packages] = []
    editable: bool = True
    modules: list[Text] = ["torch", "megatron"]


class DataFile(Section):
    """A file to be downloaded. Without size and checksum the server's size is all that is compared."""

    url: Text
    sha256: Sha256 | None = None
    size_bytes: Annotated[int | None, SIZE] = None


class Dataset(Section):
    """A data set of recipes/datasets.toml by its name there, or one of the site's own `files`."""

    folder: Text
    files: list[DataFile] = []
    sha256: dict[Text, Sha256] = {}
    image: Text | None = None
    tokenizer: Text | None = None
