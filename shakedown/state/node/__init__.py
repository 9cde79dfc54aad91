"""The typed node state: everything the probe read on one node, in one document.

The probe (`shakedown/node`) prints it as JSON and imports nothing from here, since it travels; this module is the
contract that its output is validated against. Absolute paths say where each value comes from.

A reading that could not be taken is an `Unreadable` with the reason, never a default: `is_unreadable(x)` tells.
"""

from shakedown.state.node.devices import (
    Acs,
    BadPages,
    DeviceNode,
    Devices,
    Disk,
    Drive,
    EccBlock,
    ErrorRecord,
    Gpu,
    GpuProcess,
    Kfd,
    Nvme,
    PciLink,
    PeerLink,
    PowerCap,
)
from shakedown.state.node.document import SCHEMA_VERSION, NodeState
from shakedown.state.node.host import (
    Account,
    BootUnit,
    Clock,
    Cmdline,
    Cpu,
    KernelLog,
    KernelRecord,
    Memory,
    Modules,
    Numa,
    Probe,
    ResourceLimits,
    Setting,
    System,
)
from shakedown.state.node.network import Gid, Interface, Lossless, Neighbour, RdmaDevice, Route
from shakedown.state.node.reading import NOT_READ, Reading, Unreadable, Why, is_unreadable
from shakedown.state.node.sharing import share_texts, shared
from shakedown.state.node.software import Containers, Image, ProviderLibrary, Software, Verbs

__all__ = [
    "NOT_READ",
    "SCHEMA_VERSION",
    "Account",
    "Acs",
    "BadPages",
    "BootUnit",
    "Clock",
    "Cmdline",
    "Containers",
    "Cpu",
    "DeviceNode",
    "Devices",
    "Disk",
    "Drive",
    "EccBlock",
    "ErrorRecord",
    "Gid",
    "Gpu",
    "GpuProcess",
    "Image",
    "Interface",
    "KernelLog",
    "KernelRecord",
    "Kfd",
    "Lossless",
    "Memory",
    "Modules",
    "Neighbour",
    "NodeState",
    "Numa",
    "Nvme",
    "PciLink",
    "PeerLink",
    "PowerCap",
    "Probe",
    "ProviderLibrary",
    "RdmaDevice",
    "Reading",
    "ResourceLimits",
    "Route",
    "Setting",
    "Software",
    "System",
    "Unreadable",
    "Verbs",
    "Why",
    "is_unreadable",
    "share_texts",
    "shared",
]
