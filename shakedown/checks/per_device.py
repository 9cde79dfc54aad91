"""Comparisons of every GPU, or of every RDMA device of the family, with one wanted value. Data: `per_device.json`.

`gpu_*` are about GPUs and `rdma_*` about RDMA devices. An entry has the `reading` of a device, the `wanted` key of the
desired state or a fixed `value`, the `rule` between the two, the `verdict` of a device that breaks it, and the remedy.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any

from shakedown.checks import GPUS, NICS, check
from shakedown.checks.compare import compare_several, data, nothing_there, unknown
from shakedown.desired.hca import devices_of, none_there
from shakedown.desired.models import DesiredState
from shakedown.state.findings import Comparison, Remedy, Verdict
from shakedown.state.node import NodeState, is_unreadable

MOST_LANES = 32  # PCI Express Base Specification, Link Status Register; a device that has left the bus reads as 63
_RULES: dict[str, Callable[[Any, Any], bool]] = {
    "in": lambda seen, wanted: seen in wanted,
    "equal": operator.eq,
    "at least": operator.ge,
    "at most": operator.le,
    "below": operator.lt,
    "lanes": lambda seen, wanted: wanted <= seen <= MOST_LANES,
}
_entries = functools.lru_cache(functools.partial(data, "per_device.json"))


def register(module: str, *names: str) -> None:
    """Register checks that are nothing but their data, as checks of a module."""
    for name in names:
        entry = _entries()[name]

        def compared(desired: DesiredState, state: NodeState, name: str = name) -> list[Comparison]:
            return compare(name, desired, state)

        compared.__module__, compared.__doc__ = module, entry["does"]
        causes = GPUS if name.startswith("gpu") else (*NICS, *entry.get("follows", ()))
        check(name, *entry["keys"], follows=causes)(compared)


def compare(name: str, desired: DesiredState, state: NodeState) -> list[Comparison]:
    """Return the comparisons of a check, those whose value is asked for."""
    found = [_compare(name, entry, desired, state) for entry in _entries()[name]["compare"]]
    return [comparison for comparison in found if comparison]


def _compare(name: str, entry: dict[str, Any], desired: DesiredState, state: NodeState) -> Comparison | None:
    """Make one finding over the devices, also where none is there: what was asked for was not seen."""
    wanted = _value(desired, entry["wanted"]) if "wanted" in entry else entry["value"]
    if wanted is None or wanted == [] or ("only_with" in entry and not _value(desired, entry["only_with"])):
        return None
    words = ", ".join(wanted) if isinstance(wanted, list) else str(wanted)
    shown = entry["shown"].format(wanted=words, desired=desired) if "shown" in entry else wanted
    unit, about = entry.get("unit"), entry.get("about", "")
    found: Any
    count, found = (desired.gpu.count, state.gpus) if name.startswith("gpu") else (desired.rdma.count, state.rdma)
    if is_unreadable(found) and (count or not name.startswith("gpu")):
        return unknown(shown, found).about(about)
    why = "there is no GPU to judge: see gpu_count"
    devices: dict[str, Any] = {}
    if name.startswith("rdma"):
        devices = {device.name: device for device in devices_of(desired.rdma, found)}
        why, count = none_there(desired.rdma), len(devices) or count
    elif count and not is_unreadable(found):
        devices = {gpu.bdf: gpu for gpu in found}
    readings = _readings(devices, entry["reading"])
    if all(reading is None for reading in readings.values()):
        why = f"nothing of the kind on {', '.join(devices)}" if devices else why
        return nothing_there(shown, count=count, why=why, unit=unit).about(about)
    # Beside a device with a link, one without has lost it.
    readings = {label: 0 if reading is None else reading for label, reading in readings.items()}
    bound = wanted * entry["share"] if "share" in entry else wanted
    return compare_several(
        shown,
        readings,
        lambda seen: _RULES[entry["rule"]](seen, bound),
        otherwise=Verdict(entry.get("verdict", "fail")),
        unit=unit,
        remedy=functools.partial(_remedy, entry["remedy"], words),
    ).about(about)


def _remedy(entry: dict[str, Any], wanted: str) -> Remedy:
    remedy = {key: value.format(wanted=wanted) for key, value in entry.items() if isinstance(value, str)}
    arguments = {key: value.format(wanted=wanted) for key, value in entry.get("arguments", {}).items()}
    return Remedy(**remedy, arguments=arguments)


def _readings(devices: dict[str, Any], path: str) -> dict[str, Any]:
    """Return the readings of all devices at a path; None of one without a part of the way."""
    try:
        return dict(zip(devices, map(operator.attrgetter(path), devices.values())))  # noqa: B905 - newer than a node
    except AttributeError:
        return {label: _value(device, path) for label, device in devices.items()}


def _value(holder: Any, path: str) -> Any:
    """Return the value at a dotted path; None where a part of the way is not there."""
    for part in path.split("."):
        holder = holder if holder is None else getattr(holder, part)
    return holder
