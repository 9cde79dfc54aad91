"""The typed node state: everything the probe read on one node, in one document.

The probe (`shakedown/node`) prints it as JSON and imports nothing from here, since it travels; this module is the
contract that its output is validated against. Absolute paths say where each value comes from.

A reading that could not be taken is an `Unreadable` with the reason, never a default: `is_unreadable(x)` tells.
"""

from typing import Any

from pydantic import BaseModel, Field

from shakedown.state.node.devices import (
    Acs,
    BadPages,
    DeviceNode,
    Devices,
    Disk,
    Drive,
    ErrorRecord,
    Gid,
    Gpu,
    GpuProcess,
    Interface,
    Kfd,
    Lossless,
    Neighbour,
    Nvme,
    PciLink,
    PowerCap,
    RdmaDevice,
    Route,
)
from shakedown.state.node.host import (
    NOT_READ,
    Account,
    BootUnit,
    Clock,
    Cmdline,
    Containers,
    Cpu,
    Image,
    KernelLog,
    Memory,
    Modules,
    Numa,
    Part,
    Probe,
    ProviderLibrary,
    Reading,
    ResourceLimits,
    Setting,
    Software,
    System,
    Unreadable,
    Verbs,
    Why,
    is_unreadable,
)

__all__ = [
    "NOT_READ", "SCHEMA_VERSION", "Account", "BadPages", "BootUnit", "DeviceNode", "Disk", "Drive", "ErrorRecord",
    "Gid", "Gpu", "GpuProcess", "Image", "Interface", "Lossless", "Neighbour", "NodeState", "PciLink", "PowerCap",
    "ProviderLibrary", "RdmaDevice", "Reading", "Setting", "Unreadable", "Verbs", "Why", "is_unreadable",
    "share_texts", "shared",
]  # fmt: skip

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
    sysctl: dict[str, Setting]  # the keys in shakedown/node/known.json, and those that the desired state asks for
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


# Many states in little memory: what is equal in them is held once.
_MOST_SHARED, _LONGEST_SHARED = 100_000, 200  # texts, and characters of one
_MOST_PARTS = 20_000
_LARGEST = 1 << 64  # of a number: the largest counters of the kernel are below
_texts: dict[str, str] = {}
_field_names: dict[frozenset[str], set[str]] = {}
_all_names: dict[type, set[str]] = {}
_parts: dict[tuple[Any, ...], BaseModel] = {}
_apart: set[type] = set()  # kinds of parts with lists or dictionaries in them


def shared(state: NodeState, odd: list[Any] | None = None) -> NodeState:
    """Return the same state, with texts, parts and sets of field names held once that other nodes' states have too. A
    thousand nodes take a sixth of the memory so. Parts are frozen: a change of a shared value cannot happen. `odd`
    collects the values that `sound` would look at: texts that are not plain, and numbers of more than 64 bits."""
    share_given(state)
    _share_items(state.__dict__, [] if odd is None else odd)
    return state


def share_given(model: BaseModel) -> None:
    """Hold equal sets of names of set fields once for all models: the set is larger than most of their values."""
    names, kind = model.__pydantic_fields_set__, model.__class__
    every = _all_names.get(kind) or _all_names.setdefault(kind, set(kind.model_fields))
    known = every if len(names) == len(every) else _field_names.setdefault(frozenset(names), names)
    object.__setattr__(model, "__pydantic_fields_set__", known)


def share_texts(model: BaseModel) -> None:
    """Hold the texts of a model once that others have too."""
    share_given(model)
    _share_items(model.__dict__, [])


def _share_items(items: dict[Any, Any], odd: list[Any]) -> None:
    for key, value in items.items():
        kind = value.__class__
        if kind is str:
            known = _texts.get(value)
            items[key] = _share_text(value, odd) if known is None else known
        elif kind is int or kind is float:
            if not -_LARGEST <= value <= _LARGEST:
                odd.append(value)
        elif kind is list:
            held = dict(enumerate(value))
            _share_items(held, odd)
            value[:] = held.values()
        elif kind is dict:
            odd += [name for name in value if not (name.isascii() and name.isprintable())]
            _share_items(value, odd)
        elif isinstance(value, BaseModel):
            share_given(value)
            items[key] = _share_part(value, odd)


def _share_part(part: BaseModel, odd: list[Any]) -> BaseModel:
    """Return an equal part that is held, where its values can be looked up: lists and dictionaries cannot. A part that
    is held has nothing odd in it, so that an equal one need not be looked through."""
    kind, before = part.__class__, len(odd)
    if kind in _apart:
        _share_items(part.__dict__, odd)
        return part
    values = part.__dict__.values()
    try:
        key = (kind, id(part.__pydantic_fields_set__), *values, *map(type, values))
        held = _parts.get(key)
    except TypeError:
        _apart.add(kind)
        return _share_part(part, odd)
    if held is None:
        _share_items(part.__dict__, odd)
        held = part
        if len(odd) == before and len(_parts) < _MOST_PARTS:
            _parts[key] = part
    return held


def _share_text(text: str, odd: list[Any]) -> str:
    if not (text.isascii() and text.isprintable()):
        odd.append(text)
    elif len(_texts) < _MOST_SHARED and len(text) <= _LONGEST_SHARED:
        _texts[text] = text
    return text


share_given(NOT_READ)  # first, since a part is found by its set of given fields
_share_part(NOT_READ, [])  # so that the states' own are this one
