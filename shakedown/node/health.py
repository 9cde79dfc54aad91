"""What AMD's library reports of a GPU's health. Each reading may hang or crash: it costs that reading alone, and one
that a version of the library does not offer is missing, which is never right.

Functions and fields are those of amdsmi 7.0.2 and of rocm-systems' projects/amdsmi, CHANGELOG.md at 0116a072.
"""

from __future__ import annotations

import os
from typing import Any, Dict

from .smi import Gpus, ask, call, open_library
from .tree import Part, Tree, Unreadable, attempt

_MOST_RECORDS = 50  # of a GPU, the newest
_MOST_PROCESSES = 200
_PAGES = ("retired", "pending", "unreservable")  # amdsmi_memory_page_status_t
_LINKS = ("internal", "PCIe", "XGMI")  # amdsmi_link_type_t
_VIOLATIONS = {
    "power": "active_ppt_pwr",
    "thermal": "active_socket_thrm",
    "vr_thermal": "active_vr_thrm",
    "hbm_thermal": "active_hbm_thrm",
    "prochot": "active_prochot_thrm",
}
_ALL_SEVERITIES = 7
_NO_AFID = (1 << 64) - 1  # what a version before 7.14 gives for a corrupt record (ROCm/rocm-systems#2477)
_RING = "/sys/kernel/debug/dri"  # each GPU's has amdgpu_ring_cper, which the library reads; root alone may


def _pages(gpus: Gpus, handle: Any) -> Part:
    """Return how many pages of memory are out of use, by their state, and from how many on AMD exchanges the GPU."""
    records = call(gpus.module, "amdsmi_get_gpu_bad_page_info", handle)
    states = [int(record["status"]) for record in records]
    counts = {name: states.count(number) for number, name in enumerate(_PAGES)}
    return dict(counts, limit=attempt(lambda: int(call(gpus.module, "amdsmi_get_gpu_bad_page_threshold", handle))))


def _power_cap(gpus: Gpus, handle: Any) -> Part:
    info = call(gpus.module, "amdsmi_get_power_cap_info", handle)
    fields = {"watts": "power_cap", "default_watts": "default_power_cap", "most_watts": "max_power_cap"}
    found = {name: attempt(_watts, info, key) for name, key in fields.items()}
    _watts(info, "power_cap")
    return found


def _watts(info: Part, key: str) -> float:
    """Return watts. The library has microwatts, in some versions watts; 0 and all bits set are no value."""
    value = ask(info.__getitem__, key)
    if not 0 < value < 1 << 31:
        raise Unreadable("missing", "amdsmi: {} is {}".format(key, value))
    return float(value / 1e6 if value > 100_000 else value)


def _blocks(gpus: Gpus, handle: Any) -> Part:
    """Return the errors of each block that has any. Of XGMI no other function counts them (rocm-systems #11468)."""
    enabled = call(gpus.module, "amdsmi_get_gpu_ecc_enabled", handle)
    found = {}
    for block in gpus.module.AmdSmiGpuBlock:
        if block & enabled and block & (block - 1) == 0:
            count = call(gpus.module, "amdsmi_get_gpu_ecc_count", handle, block)
            counts = {name: int(count[name + "_count"]) for name in ("correctable", "uncorrectable", "deferred")}
            if any(counts.values()):
                found[str(block.name)] = counts
    return found


def _records(gpus: Gpus, handle: Any) -> list[Part]:
    """Return the newest error records (CPER), with AMD's numbers of their events (AFID)."""
    if gpus.version[:2] == (26, 4):
        raise Unreadable("missing", "amdsmi 26.4 crashes over error records (ROCm/device-metrics-exporter#532)")
    found: list[Part] = []
    cursor, more = 0, True
    while more:
        try:
            answer = call(gpus.module, "amdsmi_get_gpu_cper_entries", handle, _ALL_SEVERITIES, 1 << 20, cursor)
        except Unreadable as problem:
            if "FILE_ERROR" in problem.detail and gpus.version < (26, 5) and os.access(gpus.tree.path(_RING), os.R_OK):
                return found  # so says a library of before 7.14 of a ring without a record
            raise
        entries, after, raw, status = answer
        for number, record in zip(entries, raw):
            entry = entries[number]
            found.append(
                {
                    "severity": str(entry["error_severity"])[:40],
                    "at": str(entry["timestamp"])[:40],
                    "afids": attempt(_afids, gpus, record),
                }
            )
        found = found[-_MOST_RECORDS:]
        more = status == gpus.module.amdsmi_interface.amdsmi_wrapper.AMDSMI_STATUS_MORE_DATA and after > cursor
        cursor = after
    return found


def _afids(gpus: Gpus, record: Part) -> list[int]:
    """Return the events of a record, whose bytes 7.0.2 gives with a sign."""
    content = [byte & 255 for byte in record["bytes"]]
    numbers, _ = call(gpus.module, "amdsmi_get_afids_from_cper", [{"bytes": content, "size": record["size"]}])
    if _NO_AFID in numbers:
        raise Unreadable("malformed", "amdsmi: the record is not as its decoder knows records")
    return [int(number) for number in numbers][:_MOST_RECORDS]


def _throttled(gpus: Gpus, handle: Any) -> list[str]:
    """Return what limits the GPU at this moment."""
    status = call(gpus.module, "amdsmi_get_violation_status", handle)
    known = {reason: status.get(name, "N/A") for reason, name in _VIOLATIONS.items()}
    if all(value == "N/A" for value in known.values()):
        raise Unreadable("missing", "amdsmi: this GPU does not report what limits it")
    return [reason for reason, value in known.items() if value is True or value == 1]


def _processes(gpus: Gpus, handle: Any) -> list[Part]:
    """Return the processes that hold memory of the GPU. A version before 10 may list one on every GPU."""
    found = []
    for process in call(gpus.module, "amdsmi_get_gpu_process_list", handle)[:_MOST_PROCESSES]:
        memory = int(process["memory_usage"]["vram_mem"])
        if memory:
            found.append({"pid": int(process["pid"]), "name": str(process["name"])[:100], "vram_bytes": memory})
    return found


def _peers(gpus: Gpus, handle: Any) -> Part:
    """Return how the GPU reaches each other GPU, and the rate of a lane of that link."""
    links = attempt(lambda: call(gpus.module, "amdsmi_get_link_metrics", handle)["links"])
    rates = {} if isinstance(links, dict) else {link["bdf"].lower(): link["bit_rate"] for link in links}
    found = {}
    for bdf, other in gpus.handles.items():
        if other is not handle:
            way = call(gpus.module, "amdsmi_topo_get_link_type", handle, other)
            kind = _LINKS[way["type"]] if 0 <= way["type"] < len(_LINKS) else "unknown"
            found[bdf] = {"kind": kind, "hops": int(way["hops"]), "gts": int(rates.get(bdf) or 0) or None}
    return found


READINGS = {
    "bad_pages": _pages,
    "power_cap": _power_cap,
    "ecc_blocks": _blocks,
    "error_records": _records,
    "throttled": _throttled,
    "processes": _processes,
    "peers": _peers,
}


def read(tree: Tree, library: Any, name: str) -> Dict[str, Any]:
    """Return one reading of each GPU that the library lists, by its BDF."""
    gpus = open_library(tree, library)
    return {bdf: attempt(READINGS[name], gpus, handle) for bdf, handle in gpus.handles.items()}
