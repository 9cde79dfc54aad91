"""GPUs, PCI devices and file systems."""

from typing import Literal

from shakedown.state.node.reading import NOT_READ, Part, Reading


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
    firmware: Reading[dict[str, str]]  # block -> version
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
