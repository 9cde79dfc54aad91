"""What is read of GPUs, drives and file systems, RDMA devices, interfaces and routes."""

import re
from collections.abc import Callable
from ipaddress import IPv4Address, IPv4Interface, IPv4Network
from typing import Annotated, Literal

from pydantic import AfterValidator

from shakedown.state.node.host import NOT_READ, Part, Reading, Setting, Texts

_OCTET = r"(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_QUAD = rf"{_OCTET}(?:\.{_OCTET}){{3}}"


def _as(kind: Callable[[str], object], usual: str) -> AfterValidator:
    """Accept a text that `kind` understands; the `usual` form is looked at first, in a tenth of the time."""
    is_usual = re.compile(usual).fullmatch

    def check(text: str) -> str:
        if not is_usual(text):
            kind(text)
        return text

    return AfterValidator(check)


Address = Annotated[str, _as(IPv4Address, _QUAD)]
InterfaceAddress = Annotated[str, _as(IPv4Interface, rf"{_QUAD}/(?:3[0-2]|[12]?[0-9])")]
Network = Annotated[str, _as(IPv4Network, r"0\.0\.0\.0/0")]


class DeviceNode(Part):
    """One file under /dev."""

    path: str
    kind: Literal["char", "block", "dir", "other"]
    major: int
    minor: int
    mode: str  # "0660"
    owner: str
    group: str
    openable: Reading[bool]  # by the probe's user; opened for reading and writing


class Devices(Part):
    """/dev/kfd, /dev/dri/*, /dev/infiniband/*: missing where the file is not there."""

    kfd: Reading[DeviceNode]
    kfd_major: Reading[int]  # from /proc/devices
    dri: Reading[list[DeviceNode]]  # empty: no such folder
    infiniband: Reading[list[DeviceNode]]


class PciLink(Part):
    """current_link_speed and current_link_width, and the most the device can do."""

    speed_gts: Reading[float]
    width: Reading[int]
    max_speed_gts: Reading[float]
    max_width: Reading[int]


class BadPages(Part):
    """Pages of a GPU's memory that are out of use, or will be. AMD exchanges a GPU with `limit` of them."""

    retired: int
    pending: int  # until the driver is loaded anew
    unreservable: int
    limit: Reading[int]  # needs root


class PowerCap(Part):
    """The most that a GPU may draw: as set, as its model has it, and as can be set."""

    watts: Reading[float]
    default_watts: Reading[float]
    most_watts: Reading[float]


class EccBlock(Part):
    """Errors that one block of a GPU has counted since the driver was loaded."""

    correctable: int
    uncorrectable: int
    deferred: int


class ErrorRecord(Part):
    """One record of the driver's ring (CPER): amdsmi's severity, its time, AMD's numbers of the events (AFID)."""

    severity: str  # "fatal", "non_fatal_uncorrected", "non_fatal_corrected"
    at: str  # "2026/11/20 10:11:12", by the GPU's clock
    afids: Reading[list[int]]


class PeerLink(Part):
    """How one GPU reaches another."""

    kind: Literal["XGMI", "PCIe", "internal", "unknown"]
    hops: int
    gts: int | None  # of one lane; None: not reported


class GpuProcess(Part):
    """A process that holds a GPU."""

    pid: int
    name: str
    vram_bytes: Reading[int]


class Gpu(Part):
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
    firmware: Texts  # block -> version
    ecc_correctable: Reading[int]
    ecc_uncorrectable: Reading[int]
    pcie_replays: Reading[int]
    temperature_c: Reading[float]  # hotspot
    power_w: Reading[float]
    xgmi_links: Reading[int]  # those that are up: 7 on a board of 8
    bad_pages: Reading[BadPages] = NOT_READ
    power_cap: Reading[PowerCap] = NOT_READ
    ecc_blocks: Reading[dict[str, EccBlock]] = NOT_READ  # "UMC", "XGMI_WAFL": those with errors
    error_records: Reading[list[ErrorRecord]] = NOT_READ  # the newest 50
    throttled: Reading[list[str]] = NOT_READ  # what limits it now: "power", "thermal", "prochot", ...
    processes: Reading[list[GpuProcess]] = NOT_READ  # with memory of this GPU, as amdsmi lists them
    peers: Reading[dict[str, PeerLink]] = NOT_READ  # by the other GPU's BDF


class Kfd(Part):
    """/sys/class/kfd/kfd/topology: nodes with and without SIMDs, and the GPUs that the former are (parts of)."""

    gpus: Reading[int]
    gpu_nodes: Reading[int]
    cpu_nodes: Reading[int]


class Acs(Part):
    """PCIe access control services (config space, needs root)."""

    enabled: Reading[list[str]]  # functions (BDF) with any ACS control bit set


class Disk(Part):
    """One mounted file system that holds files."""

    mount: str
    device: str
    fstype: str
    total_bytes: Reading[int]  # a file server that does not answer costs these two, and nothing else
    free_bytes: Reading[int]  # for an ordinary user
    network: bool  # NFS, Lustre, ...


class Nvme(Part):
    """One NVMe controller: /sys/class/nvme, by udev."""

    name: str  # "nvme0"
    bdf: str | None  # None: it is no PCI device, such as one of NVMe over fabrics
    model: Reading[str]
    serial: Reading[str]
    firmware: Reading[str]


class Drive(Part):
    """One drive of the node itself, NVMe or not; `virtual`: a hypervisor's or another machine's."""

    name: str  # "nvme0", "sda"
    kind: Literal["nvme", "disk", "virtual"]
    model: Reading[str]
    serial: Reading[str]
    health: Reading[dict[str, int]]  # nvme-cli's and smartctl's figures, by the names of checks/drives.json


class Gid(Part):
    """One filled entry of a GID table."""

    index: int
    gid: str  # "0000:0000:0000:0000:0000:ffff:0a00:0001"
    type: Reading[str]  # "RoCE v2", "IB/RoCE v1"
    netdev: Reading[str]
    ipv4: Address | None  # of an IPv4-mapped GID


class Lossless(Part):
    """What RoCE needs of a port to lose nothing: DCB of the device's interface, and the driver's congestion control."""

    pfc: Reading[list[int]]  # priorities with priority flow control
    dscp: Reading[dict[str, int]]  # DSCP -> priority, the application table
    trust: Reading[list[str] | None]  # ["dscp"]; None: the kernel does not tell (Linux before 6.3, most drivers)
    congestion: Reading[dict[str, Reading[int]]]  # the driver's own names -> values: {"enable_cc": 1, "tos_dscp": 26}


class RdmaDevice(Part):
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


class Interface(Part):
    """One network interface."""

    name: str
    mac: str
    mtu: Setting
    up: bool
    speed_mbps: Reading[int]
    ipv4: list[InterfaceAddress]  # "10.0.0.1/24"
    ipv6: list[str]
    bdf: str | None


class Neighbour(Part):
    """What answers at the other end of an interface's cable, by LLDP."""

    interface: str
    system: str  # its name, or its chassis id where it has none
    chassis: str
    port: str  # the port's id: a name, or a MAC address
    port_description: str


class Route(Part):
    """One IPv4 route of the main table."""

    destination: Network  # "0.0.0.0/0"
    gateway: Address | None
    interface: str
    metric: int
