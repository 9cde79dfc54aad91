"""The typed node state: everything the probe read on one node, in one document.

The probe (`shakedown/node`) prints it as JSON and imports nothing from here, since it travels; this module is the
contract that its output is validated against. Absolute paths say where each value comes from.

A reading that could not be taken is an `Unreadable` with the reason, never a default: `is_unreadable(x)` tells.
"""

from __future__ import annotations

from collections.abc import Callable
from ipaddress import IPv4Address, IPv4Interface, IPv4Network
from types import NoneType
from typing import Annotated, Any, Literal, TypeVar, Union

from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from typing_extensions import TypeIs

SCHEMA_VERSION = 1

Why = Literal["missing", "not permitted", "timed out", "malformed", "failed"]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, defer_build=True, allow_inf_nan=False)


class Unreadable(_Part):
    """Why there is no value: no such file or tool (`missing`), no permission, no answer in time, output that makes no
    sense, or a tool that reported an error (`failed`). `detail` names the file or the command, and its words."""

    unreadable: Why
    detail: str = ""

    def __str__(self) -> str:
        return f"unreadable ({self.unreadable}{': ' + self.detail if self.detail else ''})"


T = TypeVar("T")
# In this order: a reading that is a dictionary of texts would take an Unreadable for one, and call it read.
Reading = Annotated[Union[Unreadable, T], Field(union_mode="left_to_right")]  # noqa: UP007 - subscripted with a TypeVar


def _as(kind: Callable[[str], object]) -> AfterValidator:
    """A text that `kind` understands: the plan calculates with it."""

    def check(text: str) -> str:
        kind(text)
        return text

    return AfterValidator(check)


Address = Annotated[str, _as(IPv4Address)]
InterfaceAddress = Annotated[str, _as(IPv4Interface)]
Network = Annotated[str, _as(IPv4Network)]


def is_unreadable(reading: Any) -> TypeIs[Unreadable]:
    """True where the reading could not be taken."""
    return isinstance(reading, Unreadable)


NOT_READ = Unreadable(unreadable="failed", detail="the probe that took this state did not read it")


class Probe(_Part):
    """The probe itself: who it ran as and what it cost."""

    version: str  # digest of the bundle, hex
    python: str  # "3.11.7"
    user: str
    uid: int
    wall_s: float
    cpu_s: float


class System(_Part):
    """/etc/os-release, uname and DMI."""

    hostname: str
    boot_id: Reading[str]  # /proc/sys/kernel/random/boot_id
    taken_at: str  # UTC, ISO 8601
    epoch_s: float  # the node's clock when the reading was taken, seconds since 1970 UTC
    os_id: Reading[str]  # "debian", "ubuntu", "rhel", "rocky", ...
    os_version: Reading[str]
    os_name: Reading[str]  # PRETTY_NAME
    family: Literal["debian", "rhel", "other"]  # from ID and ID_LIKE
    kernel: str  # uname -r
    arch: str
    bios_version: Reading[str]  # /sys/class/dmi/id/bios_version
    product: Reading[str]  # /sys/class/dmi/id/product_name
    board_serial: Reading[str] = NOT_READ  # /sys/class/dmi/id/board_serial; needs root
    machine_id: Reading[str] = NOT_READ  # /etc/machine-id
    host_key: Reading[str] = NOT_READ  # the public key of sshd, "ssh-ed25519 AAAA..."
    service_manager: Literal["systemd", "other"]  # /run/systemd/system


class Setting(_Part):
    """A setting with what runs now and what the node would come up with (None: nothing is written down)."""

    running: Reading[str]
    persisted: Reading[str | None]


class Cmdline(_Part):
    """The kernel command line: running (/proc/cmdline) and as the boot loader holds it (GRUB's files)."""

    running: Reading[list[str]]
    persisted: Reading[list[str]]
    loader: Literal["grub-dropin", "grub-default", "grubby", "none"]  # how persistence can be changed here


class Cpu(_Part):
    """/proc/cpuinfo and /sys/devices/system/cpu."""

    model: Reading[str]
    count: int
    vendor: Reading[str]  # "AuthenticAMD", "GenuineIntel"
    governors: Reading[dict[str, int]]  # governor -> number of CPUs; missing where the kernel has no cpufreq
    c2_enabled: Reading[int]  # CPUs whose idle state 2 is not disabled; missing where there is no cpuidle state2


class Numa(_Part):
    """/sys/devices/system/node and kernel.numa_balancing."""

    nodes: Reading[int]
    balancing: Setting  # running "missing" = a kernel without it


class Memory(_Part):
    """psutil, /proc/meminfo and /sys/kernel/mm."""

    total_bytes: int
    available_bytes: int
    load_1m: float
    thp: Setting  # /sys/kernel/mm/transparent_hugepage/enabled, the bracketed word
    hugepages_total: Reading[int]
    hugepage_kb: Reading[int]


class ResourceLimits(_Part):
    """Limits of the user the probe ran as: soft values as text ("unlimited" or a number), and what is persisted."""

    memlock: Setting  # kilobytes or "unlimited"
    nofile: Setting


class Account(_Part):
    """The user that would run jobs, and the groups that matter."""

    user: str
    home: str | None = None  # None: nobody says where
    groups: list[str]  # groups of the session, by name (or number where unnamed)
    at_login: list[str]  # groups that a new session has by /etc/group and /etc/passwd
    members: dict[str, list[str]]  # group -> members, for render, video, docker; a group that does not exist is absent


class DeviceNode(_Part):
    """One file under /dev."""

    path: str
    kind: Literal["char", "block", "dir", "other"]
    major: int
    minor: int
    mode: str  # "0660"
    owner: str
    group: str
    openable: Reading[bool]  # by the probe's user; opened for reading and writing


class Devices(_Part):
    """/dev/kfd, /dev/dri/*, /dev/infiniband/*: missing where the file is not there."""

    kfd: Reading[DeviceNode]
    kfd_major: Reading[int]  # from /proc/devices
    dri: Reading[list[DeviceNode]]  # empty: no such folder
    infiniband: Reading[list[DeviceNode]]


class Modules(_Part):
    """/proc/modules, and what is loaded at every boot (/etc/modules-load.d, /etc/modules)."""

    loaded: Reading[list[str]]
    persisted: list[str]
    blacklisted: list[str]  # modprobe.d and modprobe.blacklist= on the command line
    builtin: list[str] = Field(default_factory=list)


class PciLink(_Part):
    """current_link_speed and current_link_width, and the most the device can do."""

    speed_gts: Reading[float]
    width: Reading[int]
    max_speed_gts: Reading[float]
    max_width: Reading[int]


class Gpu(_Part):
    """One GPU as sysfs shows it (PCI id, link) and as amdsmi describes it (the rest)."""

    bdf: str  # "0000:c1:00.0"
    pci_id: str  # "1002:74a1"
    numa_node: Reading[int]
    link: PciLink
    model: Reading[str]  # market name
    serial: Reading[str] = NOT_READ  # 16 hex digits: amdsmi's asic_serial, the driver's unique_id
    vram_bytes: Reading[int]
    vram_used_bytes: Reading[int]
    compute_partition: Reading[str]  # "SPX"
    memory_partition: Reading[str]  # "NPS1"
    driver: Reading[str]
    firmware: Reading[dict[str, str]]  # block -> version
    ecc_correctable: Reading[int]
    ecc_uncorrectable: Reading[int]
    pcie_replays: Reading[int]
    temperature_c: Reading[float]  # hotspot
    power_w: Reading[float]
    xgmi_links: Reading[int]  # those that are up: 7 on a board of 8


class Kfd(_Part):
    """/sys/class/kfd/kfd/topology: nodes with and without SIMDs, and the GPUs that the former are (parts of)."""

    gpus: Reading[int]
    gpu_nodes: Reading[int]
    cpu_nodes: Reading[int]


class Gid(_Part):
    """One filled entry of a GID table."""

    index: int
    gid: str  # "0000:0000:0000:0000:0000:ffff:0a00:0001"
    type: Reading[str]  # "RoCE v2", "IB/RoCE v1"
    netdev: Reading[str]
    ipv4: Address | None  # of an IPv4-mapped GID


class Lossless(_Part):
    """What RoCE needs of a port to lose nothing: DCB of the device's interface, and the driver's congestion control."""

    pfc: Reading[list[int]]  # priorities with priority flow control
    dscp: Reading[dict[str, int]]  # DSCP -> priority, the application table
    trust: Reading[list[str] | None]  # ["dscp"]; None: the kernel does not tell (Linux before 6.3, most drivers)
    congestion: Reading[dict[str, Reading[int]]]  # the driver's own names -> values: {"enable_cc": 1, "tos_dscp": 26}


class RdmaDevice(_Part):
    """One device of /sys/class/infiniband, port 1."""

    name: str
    bdf: str | None  # None for software devices
    physical_function: str | None = None  # BDF; of a virtual function alone
    ports: int = 1  # in all; the rest of this part is port 1's
    guid: Reading[str] = NOT_READ  # node_guid, "b83f:d203:0012:3456"
    vendor: str | None  # PCI vendor id, "14e4"
    numa_node: Reading[int]
    link: PciLink | None
    driver: str | None
    firmware: Reading[str]
    state: Reading[str]  # "ACTIVE"
    phys_state: Reading[str]  # "LinkUp"
    rate_gbps: Reading[float]
    link_layer: Reading[str]  # "Ethernet"
    netdev: Reading[str]
    gids: Reading[list[Gid]]
    max_read_request: Reading[int]  # bytes; PCI config space, needs root
    lossless: Reading[Lossless] = NOT_READ


class Interface(_Part):
    """One network interface."""

    name: str
    mac: str
    mtu: Setting
    up: bool
    speed_mbps: Reading[int]
    ipv4: list[InterfaceAddress]  # "10.0.0.1/24"
    ipv6: list[str]
    bdf: str | None


class Route(_Part):
    """One IPv4 route of the main table."""

    destination: Network  # "0.0.0.0/0"
    gateway: Address | None
    interface: str
    metric: int


class ProviderLibrary(_Part):
    """One libibverbs provider: lib<provider>-rdmav<abi>.so."""

    path: str
    provider: str  # "bnxt_re"
    abi: int  # 34
    sha256: Reading[str]
    target: str | None = None  # where a symbolic link leads


class Verbs(_Part):
    """libibverbs on the host: the library, its provider ABI, the providers and libibverbs.d."""

    library: Reading[str]
    abi: Reading[int]  # IBVERBS_PRIVATE_<n> of the library: the <n> that a provider's name must carry
    providers: list[ProviderLibrary]
    drivers: dict[str, str]  # file of libibverbs.d -> the driver it names


class Image(_Part):
    """One image in the container engine's store."""

    id: str  # "sha256:..."
    tags: list[str]
    digests: list[str]  # "name@sha256:..."
    size_bytes: int
    labels: dict[str, str] = {}  # those that name a version


class Containers(_Part):
    """The container engine that answers (docker first, then podman)."""

    engine: Reading[Literal["docker", "podman"]]
    version: Reading[str]
    root: Reading[str]  # where it stores images
    images: Reading[list[Image]]
    running: Reading[int]


class Disk(_Part):
    """One mounted file system that holds files."""

    mount: str
    device: str
    fstype: str
    total_bytes: Reading[int]  # a file server that does not answer costs these two, and nothing else
    free_bytes: Reading[int]  # for an ordinary user
    network: bool  # NFS, Lustre, ...


class Nvme(_Part):
    """One NVMe controller: /sys/class/nvme, by udev."""

    name: str  # "nvme0"
    bdf: str | None  # None: it is no PCI device, such as one of NVMe over fabrics
    model: Reading[str]
    serial: Reading[str]
    firmware: Reading[str]


class Clock(_Part):
    """timedatectl or chronyc."""

    synchronised: Reading[bool]
    service: Reading[str]
    offset_s: Reading[float]


class Acs(_Part):
    """PCIe access control services (config space, needs root)."""

    enabled: Reading[list[str]]  # functions (BDF) with any ACS control bit set


class GpuProcess(_Part):
    """A process that holds a GPU."""

    pid: int
    name: str
    vram_bytes: Reading[int]


class KernelRecord(_Part):
    """One record of the kernel's log."""

    number: int  # /dev/kmsg's sequence number
    priority: int  # 0 (the worst) to 7
    seconds: float  # since boot
    message: str


class KernelLog(_Part):
    """Records of the kernel's log since boot that may report a fault: shakedown/node/kernel_log.py chooses them."""

    records: Reading[list[KernelRecord]]
    left_out: int = 0  # of the same kind, or beyond the limit


class BootUnit(_Part):
    """Our systemd unit: the settings that have to be made at every boot."""

    enabled: Reading[bool]
    settings: Reading[dict[str, str]]  # of /etc/shakedown/boot.conf


class Software(_Part):
    """What a job finds besides ROCm itself."""

    mpi: Reading[str] = NOT_READ  # "Open MPI (/usr/bin/mpirun)"
    rccl: Reading[str] = NOT_READ  # "2.22.3 (/opt/rocm/lib/librccl.so.1)"


class NodeState(_Part):
    """Everything read on one node in one round trip. `schema_version` changes when a field changes its meaning."""

    schema_version: int
    probe: Probe
    system: System
    cmdline: Cmdline
    cpu: Cpu
    numa: Numa
    memory: Memory
    sysctl: dict[str, Setting]  # the keys in shakedown/node's SYSCTLS, and those that the desired state asks for
    settings: dict[str, Setting] = {}  # of shakedown/node/settings, those that have no place above
    limits: ResourceLimits
    account: Account
    modules: Modules
    devices: Devices
    gpus: Reading[list[Gpu]]  # empty: read, and there are none
    gpu_tool: Reading[str]  # amdsmi's library version; why not, otherwise
    gpu_processes: Reading[list[GpuProcess]]
    kfd: Kfd
    rocm_version: Reading[str]  # /opt/rocm/.info/version, /opt/rocm/core-*/.info/version
    software: Software = Software()
    rdma: Reading[list[RdmaDevice]]  # in PCI order, then by name
    interfaces: Reading[list[Interface]]
    routes: Reading[list[Route]]
    listening: Reading[list[int]]  # TCP ports in state LISTEN, any address: /proc/net/tcp and tcp6
    verbs: Verbs
    containers: Containers
    disks: Reading[list[Disk]]
    nvme: Reading[list[Nvme]] = NOT_READ
    clock: Clock
    acs: Acs
    kernel_log: KernelLog
    boot_unit: BootUnit
    # Monotonic error counters to difference over a run: "rdma/bnxt_re0/rx_err", "ethtool/ens1/rx_discards",
    # "ras/0000:c1:00.0/uncorrectable", "pcie/0000:c1:00.0/replay".
    # Where a whole subject could not be read its reason stands under "rdma/*" or "ethtool/*".
    counters: dict[str, Reading[int]]


_MOST_SHARED, _LONGEST_SHARED = 100_000, 200  # texts, and characters of one
_texts: dict[str, str] = {}
_given: dict[frozenset[str], set[str]] = {}


def shared(state: NodeState) -> NodeState:
    """The same state, with what is equal in other nodes' states held once: texts, and which fields of a part were
    given. A thousand nodes take a quarter of the memory so. Parts are frozen: what is shared changes for none."""
    _share(state)
    return state


def share_given(model: BaseModel) -> None:
    """Hold the set of the fields that were given once for all models where it is equal: it is larger than most of their
    values together."""
    given = model.__pydantic_fields_set__
    object.__setattr__(model, "__pydantic_fields_set__", _given.setdefault(frozenset(given), given))


def _share(value: Any) -> Any:
    if value.__class__ is str:
        if len(_texts) >= _MOST_SHARED or len(value) > _LONGEST_SHARED:
            return _texts.get(value, value)
        return _texts.setdefault(value, value)
    if isinstance(value, BaseModel):
        share_given(value)
        _share_items(value.__dict__)
    elif value.__class__ is dict:
        _share_items(value)
    elif value.__class__ is list:
        value[:] = map(_share, value)
    elif value.__class__ is tuple:
        return tuple(map(_share, value))
    return value


def _share_items(items: dict[str, Any]) -> None:
    for key, value in items.items():
        if value.__class__ not in (int, float, bool, NoneType):
            items[key] = _share(value)
