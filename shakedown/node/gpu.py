"""GPUs as the driver shows them: sysfs, the compute driver's topology, the processes that hold them, ROCm's version.
`smi.py` adds what only AMD's library reports."""

from __future__ import annotations

from typing import Any

from . import pci, rocm, smi
from .known import KNOWN
from .tree import Part, Tree, Unreadable, attempt, attempt_or, is_unreadable, pairs, pick
from .udev import Device, devices

_AMD = "0x1002"
_AMDGPU = KNOWN["amdgpu"]
_OF_THE_DRIVER = {"bdf", "pci_id", "numa_node", "link"}  # all else the library knows better, or alone


def functions(tree: Tree) -> list[Device]:
    """Return AMD's accelerators and display controllers, in PCI order."""
    return [device for device in devices(tree, "pci", vendor=_AMD) if _is_gpu(device.properties)]


def _is_gpu(properties: dict[str, str]) -> bool:
    """Return whether a function is a GPU. VGA counts only under amdgpu: management controllers carry old ATI ones."""
    kind = int(properties.get("PCI_CLASS", "0"), 16) >> 8
    return kind in (0x1200, 0x0380) or (kind == 0x0300 and properties.get("DRIVER") == "amdgpu")


def hwmon(tree: Tree, folder: str, channel: str) -> float:
    """Return the value of a channel's first file. temp2 is the junction (hotspot), temp3 the memory."""
    names, unit = _AMDGPU["hwmon"][channel]
    for monitor in tree.names(folder + "/hwmon"):
        for name in names:
            value = attempt(tree.number, "{}/hwmon/{}/{}".format(folder, monitor, name))
            if isinstance(value, int):
                return float(value / unit)
    raise Unreadable("missing", folder + "/hwmon/*/" + names[0])


def ras_totals(tree: Tree, folder: str) -> dict[str, int]:
    """Add up the errors of all RAS blocks of a GPU: "ce" corrected ones, "ue" uncorrected ones."""
    files = [name for name in tree.names(folder + "/ras") if name.endswith("_err_count")]
    if not files:
        raise Unreadable("missing", folder + "/ras")
    blocks = [dict(line.split(":") for line in tree.lines("{}/ras/{}".format(folder, name))) for name in files]
    return {kind: sum(int(block.get(kind, 0)) for block in blocks) for kind in ("ce", "ue")}


def _driver(tree: Tree) -> str:
    """Return the driver's version. A kernel's own amdgpu has none, and is known by the digest of its source."""
    version = attempt_or("", tree.text, "/sys/module/amdgpu/version")
    return str(version or "the kernel's own, source " + tree.text("/sys/module/amdgpu/srcversion"))


def _model(tree: Tree, folder: str, properties: dict[str, str]) -> str:
    """Return the model by the driver, or by udev's hardware database; AMD's library knows it better than both."""
    try:
        return tree.text(folder + "/product_name")
    except OSError:
        if "ID_MODEL_FROM_DATABASE" not in properties:
            raise
        return properties["ID_MODEL_FROM_DATABASE"]


def _one(tree: Tree, device: Device) -> Part:
    folder = pci.DEVICES + "/" + device.name
    errors = attempt(ras_totals, tree, folder)
    return {
        "bdf": device.name,
        "pci_id": device.properties["PCI_ID"].lower(),
        "numa_node": attempt(pci.numa_node, tree, folder),
        "link": pci.link(tree, folder),
        "model": attempt(_model, tree, folder, device.properties),
        "serial": attempt(lambda: smi.serial(tree.text(folder + "/unique_id"))),
        **{name: attempt(tree.number, folder + "/" + file) for name, file in _AMDGPU["numbers"].items()},
        **{name: attempt(tree.text, folder + "/" + file) for name, file in _AMDGPU["texts"].items()},
        "driver": attempt(_driver, tree),
        "firmware": Unreadable("missing", "amdsmi").as_part(),
        "ecc_correctable": attempt(pick, errors, "ce"),
        "ecc_uncorrectable": attempt(pick, errors, "ue"),
        "temperature_c": attempt(hwmon, tree, folder, "temperature_c"),
        "power_w": attempt(hwmon, tree, folder, "power_w"),
        "xgmi_links": Unreadable("missing", "amdsmi").as_part(),
    }


def read(tree: Tree) -> list[Part]:
    return [_one(tree, device) for device in functions(tree)]


def merge(gpus: Any, library: Any, health: Part) -> Any:
    """Join the driver's view with the library's by BDF, and add the readings of the GPUs' health. A value wins over a
    reason; the library's reason wins over the driver's, since it is asked first."""
    if is_unreadable(gpus):
        return gpus
    described = {} if is_unreadable(library) else library["gpus"]
    reason = library if is_unreadable(library) else Unreadable("missing", "amdsmi does not list this GPU").as_part()
    for gpu in gpus:
        of_library = described.get(gpu["bdf"], {})
        for field in gpu.keys() - _OF_THE_DRIVER:
            value = of_library.get(field, reason)
            if not is_unreadable(value) or is_unreadable(gpu[field]):
                gpu[field] = value
        for field, answer in health.items():
            gpu[field] = answer if is_unreadable(answer) else answer.get(gpu["bdf"], reason)
    return gpus


def counters(gpus: Any) -> dict[str, Any]:
    """Return the counters that a run is judged by: RAS and PCIe replays."""
    found: dict[str, Any] = {}
    for gpu in gpus if isinstance(gpus, list) else []:
        found["ras/{}/correctable".format(gpu["bdf"])] = gpu["ecc_correctable"]
        found["ras/{}/uncorrectable".format(gpu["bdf"])] = gpu["ecc_uncorrectable"]
        found["pcie/{}/replay".format(gpu["bdf"])] = gpu["pcie_replays"]
    return found


KFD = "/sys/class/kfd/kfd"


def _nodes(tree: Tree, gpus: bool = True) -> list[dict[str, int]]:
    """Return the properties of the nodes with SIMDs, or of those without."""
    folder = KFD + "/topology/nodes"
    names = tree.names(folder)
    if not names:
        raise Unreadable("missing", folder)
    files = [pairs(tree.lines("{}/{}/properties".format(folder, name)), " ") for name in names]
    nodes = [{key: int(value) for key, value in file.items() if value.isdigit()} for file in files]
    return [node for node in nodes if (node["simd_count"] > 0) == gpus]


def render_minors(tree: Tree) -> set[int]:
    """Return the minors of the render nodes that are in use: a GPU's own, or those of its configured partitions."""
    return {node["drm_render_minor"] for node in _nodes(tree)}


def read_kfd(tree: Tree) -> Part:
    return {
        # Partitions of one GPU differ in the lowest three bits of their place, a PCI address's function.
        "gpus": attempt(lambda: len({(node["domain"], node["location_id"] >> 3) for node in _nodes(tree)})),
        "gpu_nodes": attempt(lambda: len(_nodes(tree))),
        "cpu_nodes": attempt(lambda: len(_nodes(tree, gpus=False))),
    }


def read_processes(tree: Tree) -> list[Part]:
    """Return the processes with a queue on a GPU, and the VRAM they hold on all GPUs together."""
    if not tree.exists(KFD):
        raise Unreadable("missing", KFD)
    found = []
    for pid in tree.names(KFD + "/proc"):
        folder = "{}/proc/{}".format(KFD, pid)
        files = [name for name in tree.names(folder) if name.startswith("vram_")]
        # Which the kernel has: a user decides how long a process's arguments look (PR_SET_MM_MAP).
        name = attempt_or("?", tree.ask, "process " + pid, tree.text, "/proc/{}/comm".format(pid))
        vram = attempt(lambda f, ns: sum(tree.number(f + "/" + n) for n in ns), folder, files)
        found.append({"pid": int(pid), "name": name, "vram_bytes": vram})
    return found


def rocm_file(tree: Tree) -> str:
    """Return the path of what has ROCm's version: its own file, or a wheel's folder; not one behind the library's."""
    parts = (".info/version", "../rocm_sdk_core-*.dist-info", *smi.LIBRARIES)
    path = tree.ask("rocm version", rocm.find, tree.root, *parts)
    if path is None:
        raise Unreadable("missing", rocm.TOP + "/.info/version")
    if "/libamd_smi.so" in path:
        raise Unreadable("failed", "{} is there without {}/.info/version".format(path, path.rsplit("/", 2)[0]))
    return str(path)


def rocm_version(tree: Tree) -> str:
    path = rocm_file(tree)
    version = path.rpartition("rocm_sdk_core-")[2][: -len(".dist-info")] if path.endswith("-info") else tree.text(path)
    if not version[:1].isdigit():
        raise Unreadable("malformed", "{}: {}".format(path, version))
    return version
