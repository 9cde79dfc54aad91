"""GPUs as AMD's library (libamd_smi.so, by its Python package) reports them, always in a child: it may hang or crash.
The node's own package is preferred, since it matches the library; the carried one is the last resort."""

from __future__ import annotations

import ctypes
import os
import sys
from functools import lru_cache
from typing import Any, Callable, Dict, NamedTuple, Optional, Tuple

from . import owners, rocm
from .known import KNOWN
from .tree import Part, Tree, Unreadable, attempt, pick

_AMDSMI = KNOWN["amdsmi"]
# The first number of libamd_smi's version, by the first ROCm that had it. A package of PyPI has ROCm's version; AMD's
# own packages have the library's.
_ABI_BY_ROCM = [(tuple(first), abi) for first, abi in _AMDSMI["abi_by_rocm"]]
_LIBRARY = "libamd_smi.so*"
LIBRARIES = ("lib/" + _LIBRARY, "lib64/" + _LIBRARY)
_NOT_INITIALISED = 32  # AMDSMI_STATUS_NOT_INIT
_AMD_GPUS = 2  # AMDSMI_INIT_AMD_GPUS


def library_path(tree: Tree) -> str:
    """Return the path of libamd_smi.so. Importing the package to find out costs 25 ms of CPU."""
    found: Optional[str] = tree.ask("rocm " + _LIBRARY, rocm.find, tree.root, *LIBRARIES)
    if found:
        return found
    for folder in _AMDSMI["folders"]:
        names = tree.matching(folder, _LIBRARY)
        if names:
            return str(folder + "/" + max(names, key=rocm.numbers))
    raise Unreadable("missing", "libamd_smi.so")


@lru_cache(maxsize=4)
def library_abi(path: str) -> int:
    """Return the first number of the library's version: structures are the same within it alone."""
    version = (ctypes.c_uint32 * 8)()  # major (before 25 the year, which was the same), minor, release, a pointer
    try:
        library = ctypes.CDLL(path)
        status = library.amdsmi_get_lib_version(version)
        if status == _NOT_INITIALISED:  # of a library that asks for that first, such as Debian's of 2023
            status = library.amdsmi_init(ctypes.c_uint64(_AMD_GPUS)) or library.amdsmi_get_lib_version(version)
            library.amdsmi_shut_down()
    except (OSError, AttributeError) as error:
        raise Unreadable("failed", "import amdsmi: {}: {}".format(type(error).__name__, error)) from None
    if status:
        raise Unreadable("failed", "{}: amdsmi_get_lib_version: status {}".format(path, status))
    return int(version[0])


def package_abi(folder: str) -> Optional[int]:
    """Return the library version that a folder's package was generated for; None: it does not say."""
    try:
        with open(folder + "/amdsmi/_version.py", encoding="utf-8") as file:
            found = rocm.numbers(file.read(1000).partition("=")[2])
    except (OSError, ValueError):
        return None
    if found and found[0] >= _ABI_BY_ROCM[-1][1]:
        return found[0]
    return next((abi for first, abi in _ABI_BY_ROCM if found >= first), None)


def import_package(tree: Tree, library: str) -> Any:
    """Import the Python package `amdsmi` that was generated for this library. Raises Unreadable where there is none."""
    path = tree.path(library)
    _own(tree, owners.own_file, path)
    above = os.path.dirname(os.path.dirname(path))
    abi = library_abi(path)
    carried = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "fallback")
    beside = [above + "/share/amd_smi"]
    if tree.path("/usr/lib") in (above, os.path.dirname(path)):  # a distribution's own
        beside = [tree.path(folder) for folder in ("/usr/share/amd_smi", "/usr/lib/python3/dist-packages")]
    others = [tree.path(folder) + "/share/amd_smi" for folder in rocm.folders(tree.root)]
    if tree.live:
        import site  # the probe starts without it (-S), which hides the node's site-packages

        others += site.getsitepackages()
    there = [folder for folder in [*beside, *others, *sys.path, carried] if os.path.isdir(folder + "/amdsmi")]
    fitting = [folder for folder in there if package_abi(folder) in ((abi, None) if folder in beside else (abi,))]
    if not fitting:
        packages = ", ".join("{} for {}".format(folder, package_abi(folder)) for folder in there) or "none"
        words = "libamd_smi.so of version {} needs the Python package generated with it (python3-amdsmi); there is: {}"
        raise Unreadable("missing", words.format(abi, packages))
    _own(tree, owners.place, fitting[0] + "/amdsmi")
    os.environ["ROCM_PATH"], os.environ["AMDSMI_LIB_OVERRIDE"] = above, path
    os.environ.pop("ROCM_HOME", None)
    sys.path.insert(0, fitting[0])
    try:
        import amdsmi
    except Exception as error:  # KeyError where the library is missing, AttributeError where it is of another version
        raise Unreadable("failed", "import amdsmi: {}: {}".format(type(error).__name__, error)) from None
    return amdsmi


def _own(tree: Tree, look: Callable[[str], str], path: str) -> None:
    """Raise Unreadable where another user could have written what this process is about to load."""
    try:
        if tree.live:
            look(path)
    except OSError as error:
        words = "{} is not loaded: {}: {}: give it to root".format(path, error.strerror, error.filename)
        raise Unreadable("not permitted", words) from None


def explain_error(error: Exception) -> Unreadable:
    """Return the reason that an exception of amdsmi names by its status."""
    info = getattr(error, "get_error_info", None)
    words = str(info()) if info else "{}: {}".format(type(error).__name__, error)
    reason = next((why for status, why in _AMDSMI["reasons"].items() if "STATUS_" + status in words), "failed")
    return Unreadable(reason, "amdsmi: " + words)


def ask(call: Callable[..., Any], *arguments: Any) -> Any:
    """Call the library once; "N/A" is its word for not having a value."""
    try:
        value = call(*arguments)
    except Unreadable:
        raise
    except Exception as error:
        raise explain_error(error) from None
    if value in ("N/A", "", None):
        raise Unreadable("missing", "amdsmi: N/A")
    return value


def call(module: Any, name: str, *arguments: Any) -> Any:
    """Call a function of the package, where this version has it; some versions do not export all that they have."""
    function = getattr(module, name, None) or getattr(module.amdsmi_interface, name, None)
    if function is None:
        raise Unreadable("missing", "amdsmi: this version has no " + name)
    return ask(function, *arguments)


def ecc_totals(module: Any, handle: Any) -> Part:
    """Return the errors of all blocks of a GPU. A version may add up nothing where it cannot read which blocks count
    (before 10.1): no error at all is a number only where that can be read, and some block counts."""
    totals: Part = call(module, "amdsmi_get_gpu_total_ecc_count", handle)
    counted = totals["correctable_count"] or totals["uncorrectable_count"]
    if not counted and not call(module, "amdsmi_get_gpu_ecc_enabled", handle):
        raise Unreadable("missing", "amdsmi: no block of this GPU counts errors")
    return totals


def serial(text: str) -> str:
    """Return a GPU's own number, 16 hex digits however it was written: the library's asic_serial and the driver's
    unique_id are one. Raises ValueError, and Unreadable for a GPU that has none."""
    number = int(text, 16)
    if number == 0:
        raise Unreadable("missing", "the serial number is 0")
    return "{:016x}".format(number)


def _firmware(amdsmi: Any, handle: Any) -> dict[str, str]:
    blocks = ask(amdsmi.amdsmi_get_fw_info, handle)["fw_list"]
    named = {getattr(block["fw_name"], "name", str(block["fw_name"])): str(block["fw_version"]) for block in blocks}
    return {name.replace("AMDSMI_FW_ID_", ""): version for name, version in sorted(named.items())}


def _power(amdsmi: Any, handle: Any) -> float:
    """Return watts: MI300 reports the current value, older ones the average."""
    info = ask(amdsmi.amdsmi_get_power_info, handle)
    for name in ("current_socket_power", "socket_power", "average_socket_power"):
        if isinstance(info.get(name), (int, float)) and info[name] > 0:
            return float(info[name])
    raise Unreadable("missing", "amdsmi: no socket power")


def _gpu(amdsmi: Any, handle: Any) -> Part:
    def of(name: str, *keys: str) -> Any:
        value = call(amdsmi, name, handle)
        for key in keys:
            value = ask(value.__getitem__, key)
        return value

    def memory(name: str) -> int:
        return int(ask(getattr(amdsmi, name), handle, amdsmi.AmdSmiMemoryType.VRAM))

    def temperature() -> float:
        sensor, metric = amdsmi.AmdSmiTemperatureType.HOTSPOT, amdsmi.AmdSmiTemperatureMetric.CURRENT
        return float(ask(amdsmi.amdsmi_get_temp_metric, handle, sensor, metric))

    ecc = attempt(ecc_totals, amdsmi, handle)
    return {
        **{name: attempt(of, *way) for name, way in _AMDSMI["described"].items()},
        "serial": attempt(lambda: serial(str(of("amdsmi_get_gpu_asic_info", "asic_serial")))),
        "vram_bytes": attempt(memory, "amdsmi_get_gpu_memory_total"),
        "vram_used_bytes": attempt(memory, "amdsmi_get_gpu_memory_usage"),
        "firmware": attempt(_firmware, amdsmi, handle),
        "ecc_correctable": attempt(pick, ecc, "correctable_count"),
        "ecc_uncorrectable": attempt(pick, ecc, "uncorrectable_count"),
        "temperature_c": attempt(temperature),
        "power_w": attempt(_power, amdsmi, handle),
        "xgmi_links": attempt(lambda: of("amdsmi_get_gpu_xgmi_link_status", "status").count("U")),
    }


class Gpus(NamedTuple):
    """An open library: the package, its library's version, and the GPUs' handles by their BDFs."""

    tree: Tree
    module: Any
    version: Tuple[int, int, int]
    handles: Dict[str, Any]


@lru_cache(maxsize=1)
def open_library(tree: Tree, path: str) -> Gpus:
    """Open the library, once in a process. Raises Unreadable without an answer."""
    amdsmi = import_package(tree, path)
    ask(lambda: amdsmi.amdsmi_init() or "done")
    version = ask(amdsmi.amdsmi_get_lib_version)
    if version.get("year", version["major"]) != library_abi(tree.path(path)):
        raise Unreadable("failed", "amdsmi loads another libamd_smi.so than {}".format(path))
    handles = ask(amdsmi.amdsmi_get_processor_handles)
    named = [(attempt(ask, amdsmi.amdsmi_get_gpu_device_bdf, handle), handle) for handle in handles]
    found = {bdf.lower(): handle for bdf, handle in named if isinstance(bdf, str)}
    return Gpus(tree, amdsmi, (version["major"], version["minor"], version["release"]), found)


def read(tree: Tree, library: str) -> Part:
    """Return the library's version, and one part per GPU."""
    gpus = open_library(tree, library)
    parts = {bdf: attempt(_gpu, gpus.module, handle) for bdf, handle in gpus.handles.items()}
    return {"version": "{}.{}.{}".format(*gpus.version), "gpus": parts}


_MOST_RECORDS = 50  # of a GPU, the newest
_MOST_PROCESSES = 200
_ALL_SEVERITIES = 7
_NO_AFID = (1 << 64) - 1  # what a version before 7.14 gives for a corrupt record (ROCm/rocm-systems#2477)
_RING = "/sys/kernel/debug/dri"  # each GPU's has amdgpu_ring_cper, which the library reads; root alone may


def _pages(gpus: Gpus, handle: Any) -> Part:
    """Return how many pages of memory are out of use, by their state, and from how many on AMD exchanges the GPU."""
    records = call(gpus.module, "amdsmi_get_gpu_bad_page_info", handle)
    states = [int(record["status"]) for record in records]
    counts = {name: states.count(number) for number, name in enumerate(_AMDSMI["pages"])}
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
            older = "FILE_ERROR" in problem.detail and gpus.version < (26, 5, 0)
            if older and os.access(gpus.tree.path(_RING), os.R_OK):
                return found  # so says a library of before 7.14 of a ring without a record
            raise
        entries, after, raw, status = answer
        found += [
            {
                "severity": str(entries[number]["error_severity"])[:40],
                "at": str(entries[number]["timestamp"])[:40],
                "afids": attempt(_afids, gpus, record),
            }
            for number, record in zip(entries, raw)
        ]
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
    status = call(gpus.module, "amdsmi_get_violation_status", handle)
    known = {reason: status.get(name, "N/A") for reason, name in _AMDSMI["violations"].items()}
    if all(value == "N/A" for value in known.values()):
        raise Unreadable("missing", "amdsmi: this GPU does not report what limits it")
    return [reason for reason, value in known.items() if value == 1]


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
            kind = dict(enumerate(_AMDSMI["links"])).get(way["type"], "unknown")
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


def read_health(tree: Tree, library: str, name: str) -> Dict[str, Any]:
    """Return one reading of each GPU that the library lists, by its BDF."""
    gpus = open_library(tree, library)
    return {bdf: attempt(READINGS[name], gpus, handle) for bdf, handle in gpus.handles.items()}
