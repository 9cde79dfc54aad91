"""What a node is made of and how it is set up: GPUs, RDMA devices, host settings, and what it needs besides."""

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, field_validator

from shakedown.common.section import MountPath, Positive, Section, Text, Word, key
from shakedown.desired.cabling import Cabling, read_plan
from shakedown.desired.values import (
    SIZE,
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
    SysctlKey,
    parse_room,
    setting,
)
from shakedown.node import sysctl


class Gpu(Section):
    """The GPUs of a node. `profile` names a file of profiles/gpu; count 0 is a node without GPUs."""

    profile: Text = key(..., 'the GPU profile, a file of profiles/gpu; a site writes gpu = "mi300x"', "mi300x")
    name: Text = key(..., "the model's name in findings", "AMD Instinct MI300X")
    count: int = key(..., "GPUs of a node; 0 is a node without", 8, ge=0)
    pci_ids: list[Annotated[str, Field(pattern=r"^[0-9a-f]{4}:[0-9a-f]{4}$")]] = key(
        [], "PCI ids, vendor:device, that the model has", ["1002:74a1"]
    )
    vram_bytes: Annotated[int | None, SIZE] = key(None, "memory of one GPU", "192G", unit="bytes")
    link_gts: float | None = key(None, "PCIe rate of each lane", 32.0, unit="GT/s")
    link_width: Positive | None = key(None, "PCIe lanes of a GPU", 16, unit="lanes")
    vram_used_bytes: Annotated[Positive | None, SIZE] = key(
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


class Provider(Section):
    """The libibverbs provider of a NIC family, on the host and in the container."""

    name: Module = key(..., "the driver that libibverbs.d names, and lib<name>-rdmav<abi>.so", "bnxt_re")
    host_library: MountPath | None = key(
        None,
        "the library's path on the host; {abi} stands for libibverbs' provider ABI",
        "/usr/local/lib/libbnxt_re-rdmav{abi}.so",
    )
    source: Text | None = key(
        None,
        "the site's file on the controller, put at host_library where another or none stands",
        "/srv/lib/libbnxt_re-rdmav34.so",
    )
    sha256: Sha256 | None = key(
        None, "of host_library", "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
    )
    container_library: MountPath | None = key(
        None,
        "where the host's file is mounted in the container",
        "/usr/lib/x86_64-linux-gnu/libibverbs/libbnxt_re-rdmav{abi}.so.host",
    )
    install_as: MountPath | None = key(
        None,
        "where the mounted file is copied to inside the container before the job starts",
        "/usr/lib/x86_64-linux-gnu/libibverbs/libbnxt_re-rdmav{abi}.so",
    )
    config_dirs: list[MountPath] = key(
        [], "folders of libibverbs.d on the host: the first that exists is mounted", ["/etc/libibverbs.d"]
    )


class Rdma(Section):
    """The RDMA devices of a node. `family` names a file of profiles/nic; None where the node has none."""

    family: Text | None = key(None, 'the NIC family, a file of profiles/nic; a site writes nic = "thor2"', "thor2")
    count: int = key(0, "RDMA devices of a node", 8, ge=0)
    devices: list[DevicePattern] = key(
        [], "only these devices, by name, shell style; empty: all of the family", ["bnxt_re[0-7]"]
    )
    usual_devices: list[DevicePattern] = key(
        [], "the family's own names, where the vendor of a device is not known", ["bnxt_re*"]
    )
    vendor: Annotated[str, Field(pattern=r"^[0-9a-f]{4}$")] | None = key(None, "PCI vendor id of the family", "14e4")
    rate_gbps: float | None = key(None, "rate of every port", 400.0, unit="Gb/s")
    mtu: Positive | None = key(None, "MTU of the devices' network interfaces", 9000, unit="bytes")
    link_gts: float | None = key(None, "PCIe rate of each lane of the NIC", 32.0, unit="GT/s")
    link_width: Positive | None = key(None, "PCIe lanes of the NIC", 16, unit="lanes")
    max_read_request: Positive | None = key(
        None, "PCIe MaxReadReq of the NIC, now and at every boot", 4096, unit="bytes"
    )
    usual_gid_index: int | None = key(
        None, "GID index that is published for the family: shown when the node's own differs; the node's own is used", 3
    )
    pfc: list[Priority] | None = key(None, "priorities with priority flow control on every port, and no others", [3])
    dscp: dict[Dscp, Priority] = key(
        {}, "priority that packets with a DSCP are given on every port; other DSCPs may have any", {"26": 3, "48": 7}
    )
    congestion: dict[Congestion, Annotated[int, Field(ge=0)]] = key(
        {}, "congestion control (ECN, DCQCN) of every port, by the driver's own names", {"enable_cc": 1}
    )
    usual_pfc: list[Priority] = key([], "what is published for the family: reported where pfc is not set", [3])
    usual_dscp: dict[Dscp, Priority] = key({}, "the same for dscp", {"26": 3, "48": 7})
    modules: list[Module] = key([], "kernel modules of the NIC and of RDMA", ["bnxt_re", "ib_uverbs", "rdma_ucm"])
    cabling: Annotated[Cabling | None, BeforeValidator(read_plan)] = key(
        None,
        "the cabling plan: a CSV file on the controller with the columns node, port, switch, switch_port, by its path; "
        "or the same as a mapping",
        {"node01": {"bnxt_re0": ["leaf1", "Ethernet1/1"]}},
    )
    environment: Environment = key({}, "variables of every job over these NICs", {"RDMAV_DRIVERS": "bnxt_re"})
    provider: Provider | None = key(None, "the libibverbs provider library of the family", {"name": "bnxt_re"})
    mounts: dict[MountPath, MountPath] = key(
        {},
        "further files that the container needs: host path -> container path",
        {"/usr/lib/libionic.so": "/usr/lib/libionic.so"},
    )


class Tuning(Section):
    """Host settings."""

    numa_balancing: bool | None = setting("numa_balancing")
    nmi_watchdog: bool | None = setting("nmi_watchdog")
    cmdline: list[Parameter] = key(
        [],
        'kernel parameters, merged into what is there; "{cpu}_iommu=on" becomes amd_ or intel_ by the CPU\'s vendor',
        ["iommu=pt", "{cpu}_iommu=on"],
        source="system-optimization",
    )
    cpu_governor: Word | None = setting("cpu_governor")
    c2: Literal["disabled"] | None = setting("c2")
    thp: Literal["always", "madvise", "never"] | None = setting("thp")
    pcie_acs: Literal["off"] | None = setting("pcie_acs")
    memlock: Literal["unlimited"] | Positive | None = key(
        None, "locked memory that a session of the user who runs jobs may have", "unlimited", unit="KiB"
    )
    nofile: Positive | None = key(
        None, "open files that a session of the user who runs jobs may have", 1048576, unit="files"
    )
    groups: list[Group] = key([], "groups of the user who runs jobs", ["render", "video"])
    sysctl: dict[SysctlKey, int | Text] = key(
        {},
        "kernel settings by their sysctl names, now and at boot",
        {"net.ipv4.conf.all.rp_filter": 2},
        max_length=sysctl.MOST,
    )
    modules: list[Module] = key(
        [], "kernel modules that are loaded now and at every boot, besides those of gpu and rdma", ["nvme_tcp"]
    )


class ContainerEngine(Section):
    """The engine that runs containers. `"docker"` alone stands for `{"name": "docker"}`."""

    name: Literal["any", "docker", "podman"] = key("any", "which engine runs containers", "docker")
    install: bool = key(False, "whether a deploy installs the distribution's package where the engine is missing", True)


class System(Section):
    """What the node needs besides tuning."""

    container_engine: ContainerEngine | None = key(None, "the engine that runs containers", {"name": "docker"})
    clock_synchronised: bool | None = key(None, "whether the node's clock is kept by NTP or PTP", True)
    clock_skew_s: float | None = key(None, "how far the clocks of an inventory's nodes may be apart", 30.0, unit="s")
    memory: Annotated[Positive | None, BeforeValidator(parse_room)] = key(
        None, "RAM that there must be at least", "32G", unit="bytes"
    )
    mpi: Literal["installed"] | None = key(
        None, "MPI on the node itself, for jobs that are started with it", "installed"
    )
    mounts_answer: bool | None = key(None, "whether every mounted file system answers within 2 s", True)
    drive_health: bool | None = key(
        None, "whether NVMe and SMART health of the node's own drives is read, as root, and judged", True
    )
    disk_free: dict[NodePath, int] = key({}, "free room by mount or path", {"/": "100G"}, unit="bytes")
    reboot: Literal["never", "when needed"] = key(
        "never", "whether a deploy may reboot a node for what takes effect at boot only", "when needed"
    )
    reboot_at_once: Positive = key(1, "nodes that may be down together", 4, unit="nodes")
    reboot_timeout_s: Positive = key(900, "time in which a node has to be back", 900, unit="s")
    kernel_log_clean: bool | None = key(
        None, "no line of a fault (docs/reference/catalogue.md) in the kernel's log since boot", True
    )

    @field_validator("disk_free", mode="before")
    @classmethod
    def _sizes(cls, value: object) -> object:
        return {key: parse_room(size) for key, size in value.items()} if isinstance(value, dict) else value
