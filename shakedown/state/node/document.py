"""All readings of a node together."""

from pydantic import Field

from shakedown.state.node.devices import Acs, Devices, Disk, Drive, Gpu, GpuProcess, Kfd, Nvme
from shakedown.state.node.host import (
    Account,
    BootUnit,
    Clock,
    Cmdline,
    Cpu,
    KernelLog,
    Memory,
    Modules,
    Numa,
    Probe,
    ResourceLimits,
    Setting,
    System,
)
from shakedown.state.node.network import Interface, Neighbour, RdmaDevice, Route
from shakedown.state.node.reading import NOT_READ, Part, Reading
from shakedown.state.node.software import Containers, Software, Verbs

SCHEMA_VERSION = 1


class NodeState(Part):
    """Everything read on one node in one round trip. `schema_version` changes when a field changes its meaning."""

    schema_version: int
    probe: Probe
    system: System
    cmdline: Cmdline
    cpu: Cpu
    numa: Numa
    memory: Memory
    sysctl: dict[str, Setting]  # the keys in shakedown/node's SYSCTLS, and those that the desired state asks for
    settings: dict[str, Setting] = Field({})  # of shakedown/node/settings, those that have no place above
    limits: ResourceLimits
    account: Account
    modules: Modules
    devices: Devices
    gpus: Reading[list[Gpu]]  # empty: read, and there are none
    gpu_tool: Reading[str]  # amdsmi's library version; why not, otherwise
    gpu_processes: Reading[list[GpuProcess]]
    kfd: Kfd
    rocm_version: Reading[str]  # of the layout that node/rocm.py finds first
    rocm_file: Reading[str] = NOT_READ  # "/opt/rocm/core/.info/version"
    software: Software = Software()
    rdma: Reading[list[RdmaDevice]]  # in PCI order, then by name
    interfaces: Reading[list[Interface]]
    routes: Reading[list[Route]]
    neighbours: Reading[list[Neighbour]] = NOT_READ  # read on request alone: rdma.cabling
    listening: Reading[list[int]]  # TCP ports in state LISTEN, any address: /proc/net/tcp and tcp6
    verbs: Verbs
    containers: Containers
    disks: Reading[list[Disk]]
    nvme: Reading[list[Nvme]] = NOT_READ
    drives: Reading[list[Drive]] = NOT_READ  # read on request alone: system.drive_health
    clock: Clock
    acs: Acs
    kernel_log: KernelLog
    boot_unit: BootUnit
    # Monotonic error counters to difference over a run: "rdma/bnxt_re0/rx_err", "ethtool/ens1/rx_discards",
    # "ras/0000:c1:00.0/uncorrectable", "pcie/0000:c1:00.0/replay".
    # Where a whole subject could not be read its reason stands under "rdma/*" or "ethtool/*".
    counters: dict[str, Reading[int]]
