"""GPUs as AMD's library (libamd_smi.so, by its Python package) reports them. Always in a child: it may hang or crash.

The node's own package is preferred, since it matches the library that is installed; the carried one is the last resort.
"""

from __future__ import annotations

import os
import sys
from typing import Any, Callable, Optional

from .tree import Part, Tree, Unreadable, attempt, pick

_LIBRARY_FOLDERS = (
    "/opt/rocm/lib", "/opt/rocm/lib64", "/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib", "/usr/local/lib",
)  # fmt: skip
_WHY_BY_STATUS = {
    "NOT_SUPPORTED": "missing",
    "NOT_YET_IMPLEMENTED": "missing",
    "FILE_NOT_FOUND": "missing",
    "DRIVER_NOT_LOADED": "missing",
    "NO_DRV": "missing",
    "NO_PERM": "not permitted",
    "TIMEOUT": "timed out",
}


def rocm_home(tree: Tree) -> Optional[str]:
    """Return /opt/rocm, or the newest versioned folder where the link is not there."""
    versioned = [name for name in tree.names("/opt") if name.startswith("rocm-")]
    return tree.first("/opt/rocm", *("/opt/" + name for name in reversed(versioned)))


def library_path(tree: Tree) -> str:
    """Return the path of libamd_smi.so. Importing the package to find out costs 25 ms of CPU."""
    home = rocm_home(tree)
    for folder in ((home + "/lib",) if home else ()) + _LIBRARY_FOLDERS:
        found = [name for name in tree.names(folder, in_order=False) if name.startswith("libamd_smi.so")]
        if found:
            return folder + "/" + min(found)
    raise Unreadable("missing", "libamd_smi.so")


def import_package(tree: Tree) -> Any:
    """Import the Python package `amdsmi`. Raises Unreadable where it or its library cannot be loaded."""
    home = rocm_home(tree)
    if home:
        os.environ["ROCM_PATH"] = tree.path(home)
        os.environ.pop("ROCM_HOME", None)
    carried = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "fallback")
    own = [tree.path(home + "/share/amd_smi")] if home else []
    if tree.live:
        import site  # the probe starts without it (-S), which hides the node's site-packages

        own += [*site.getsitepackages(), "/usr/lib/python3/dist-packages", "/usr/share/amd_smi"]  # the last: Debian's
    sys.path[:] = own + sys.path + [carried]
    try:
        import amdsmi
    except Exception as error:  # KeyError where the library is missing, AttributeError where it is of another version
        raise Unreadable("failed", "import amdsmi: {}: {}".format(type(error).__name__, error)) from None
    return amdsmi


def explain_error(error: Exception) -> Unreadable:
    """Return the reason that an exception of amdsmi names by its status."""
    info = getattr(error, "get_error_info", None)
    words = str(info()) if info else "{}: {}".format(type(error).__name__, error)
    reason = next((reason for status, reason in _WHY_BY_STATUS.items() if "STATUS_" + status in words), "failed")
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
        if not hasattr(amdsmi, name):
            raise Unreadable("missing", "amdsmi: this version has no " + name)
        value = ask(getattr(amdsmi, name), handle)
        for key in keys:
            value = ask(value.__getitem__, key)
        return value

    def memory(name: str) -> int:
        return int(ask(getattr(amdsmi, name), handle, amdsmi.AmdSmiMemoryType.VRAM))

    def temperature() -> float:
        sensor, metric = amdsmi.AmdSmiTemperatureType.HOTSPOT, amdsmi.AmdSmiTemperatureMetric.CURRENT
        return float(ask(amdsmi.amdsmi_get_temp_metric, handle, sensor, metric))

    ecc = "amdsmi_get_gpu_total_ecc_count"
    return {
        "bdf": of("amdsmi_get_gpu_device_bdf").lower(),
        "model": attempt(of, "amdsmi_get_gpu_asic_info", "market_name"),
        "serial": attempt(lambda: serial(str(of("amdsmi_get_gpu_asic_info", "asic_serial")))),
        "vram_bytes": attempt(memory, "amdsmi_get_gpu_memory_total"),
        "vram_used_bytes": attempt(memory, "amdsmi_get_gpu_memory_usage"),
        "compute_partition": attempt(of, "amdsmi_get_gpu_compute_partition"),
        "memory_partition": attempt(of, "amdsmi_get_gpu_memory_partition"),
        "driver": attempt(of, "amdsmi_get_gpu_driver_info", "driver_version"),
        "firmware": attempt(_firmware, amdsmi, handle),
        "ecc_correctable": attempt(of, ecc, "correctable_count"),
        "ecc_uncorrectable": attempt(of, ecc, "uncorrectable_count"),
        "pcie_replays": attempt(of, "amdsmi_get_pcie_info", "pcie_metric", "pcie_replay_count"),
        "temperature_c": attempt(temperature),
        "power_w": attempt(_power, amdsmi, handle),
        "xgmi_links": attempt(lambda: of("amdsmi_get_gpu_xgmi_link_status", "status").count("U")),
    }


def read(tree: Tree, library: Any) -> Part:
    """Return the library's version, and one part per GPU. `library`: its path, or why there is none. Raises Unreadable
    where the library does not answer."""
    pick(library)
    amdsmi = import_package(tree)
    ask(lambda: amdsmi.amdsmi_init() or "done")
    version = ask(amdsmi.amdsmi_get_lib_version)
    handles: list[Any] = ask(amdsmi.amdsmi_get_processor_handles)
    gpus = [attempt(_gpu, amdsmi, handle) for handle in handles]
    return {"version": "{major}.{minor}.{release}".format(**version), "gpus": [gpu for gpu in gpus if "bdf" in gpu]}
