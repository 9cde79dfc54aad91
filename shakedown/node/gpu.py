"""GPUs as sysfs shows them; `smi.py` adds what only AMD's library tells."""

from __future__ import annotations

from . import pci, smi
from .tree import Part, Tree, Unreadable, attempt, is_unreadable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_AMD = "1002"
# What the library knows better, or alone; where it does not answer, the driver's files do for most of it.
_FROM_LIBRARY = (
    "model",
    "serial",
    "vram_bytes",
    "vram_used_bytes",
    "compute_partition",
    "memory_partition",
    "driver",
    "firmware",
    "ecc_correctable",
    "ecc_uncorrectable",
    "pcie_replays",
    "temperature_c",
    "power_w",
    "xgmi_links",
)


def is_gpu(event: dict[str, str]) -> bool:
    """An AMD accelerator or display controller. A VGA function counts only under amdgpu: servers' management
    controllers carry old ATI ones."""
    kind = int(event.get("PCI_CLASS", "0"), 16) >> 8
    if not event.get("PCI_ID", "").upper().startswith(_AMD + ":"):
        return False
    return kind in (0x1200, 0x0380) or (kind == 0x0300 and event.get("DRIVER") == "amdgpu")


def parse_ras(lines: list[str]) -> dict[str, int]:
    """A ras/*_err_count file: "ue: 0" and "ce: 0"."""
    return {key: int(value) for key, _, value in (line.partition(":") for line in lines)}


def _hwmon(tree: Tree, folder: str, names: list[str]) -> int:
    for monitor in tree.names(folder + "/hwmon"):
        for name in names:
            value = attempt(tree.number, "{}/hwmon/{}/{}".format(folder, monitor, name))
            if isinstance(value, int):
                return value
    raise Unreadable("missing", folder + "/hwmon/*/" + names[0])


def ras_total(tree: Tree, folder: str, kind: str) -> int:
    """Errors of all RAS blocks of a GPU: "ce" those that were corrected, "ue" those that were not."""
    files = [name for name in tree.names(folder + "/ras") if name.endswith("_err_count")]
    if not files:
        raise Unreadable("missing", folder + "/ras")
    return sum(parse_ras(tree.lines("{}/ras/{}".format(folder, name))).get(kind, 0) for name in files)


def _driver(tree: Tree) -> str:
    """The driver's version. A kernel's own amdgpu has none, and is known by the digest of its source."""
    version = attempt(tree.text, "/sys/module/amdgpu/version")
    if isinstance(version, str):
        return version
    return "the kernel's own, source " + tree.text("/sys/module/amdgpu/srcversion")


def _udev_model(bdf: str) -> str:
    """The name in udev's hardware database, for a GPU that AMD's library does not describe."""
    import pyudev  # here only: 20 ms of CPU, and needed on nodes without ROCm alone

    device = pyudev.Devices.from_path(pyudev.Context(), pci.DEVICES + "/" + bdf)
    return str(device.properties["ID_MODEL_FROM_DATABASE"])


def _one(tree: Tree, bdf: str, event: dict[str, str]) -> Part:
    folder = pci.DEVICES + "/" + bdf
    return {
        "bdf": bdf,
        "pci_id": event["PCI_ID"].lower(),
        "numa_node": attempt(pci.numa_node, tree, folder),
        "link": pci.link(tree, folder),
        "model": attempt(tree.text, folder + "/product_name"),
        "serial": attempt(lambda: smi.serial(tree.text(folder + "/unique_id"))),
        "vram_bytes": attempt(tree.number, folder + "/mem_info_vram_total"),
        "vram_used_bytes": attempt(tree.number, folder + "/mem_info_vram_used"),
        "compute_partition": attempt(tree.text, folder + "/current_compute_partition"),
        "memory_partition": attempt(tree.text, folder + "/current_memory_partition"),
        "driver": attempt(_driver, tree),
        "firmware": Unreadable("missing", "amdsmi").as_part(),
        "ecc_correctable": attempt(ras_total, tree, folder, "ce"),
        "ecc_uncorrectable": attempt(ras_total, tree, folder, "ue"),
        "pcie_replays": attempt(tree.number, folder + "/pcie_replay_count"),
        "temperature_c": attempt(lambda: _hwmon(tree, folder, ["temp2_input"]) / 1000),
        "power_w": attempt(lambda: _hwmon(tree, folder, ["power1_input", "power1_average"]) / 1e6),
        "xgmi_links": Unreadable("missing", "amdsmi").as_part(),
    }


def read(tree: Tree) -> list[Part]:
    """GPUs in PCI order."""
    return [_one(tree, bdf, event) for bdf, event in sorted(pci.functions(tree).items()) if is_gpu(event)]


def merge(tree: Tree, gpus: Any, library: Any) -> Any:
    """The driver's view joined with the library's, by BDF. A value wins over a reason; the library's reason wins over
    the driver's, since it is asked first."""
    if is_unreadable(gpus):
        return gpus
    described = {} if is_unreadable(library) else {part["bdf"]: part for part in library["gpus"]}
    why = library if is_unreadable(library) else Unreadable("missing", "amdsmi does not list this GPU").as_part()
    for gpu in gpus:
        of_library = described.get(gpu["bdf"], {})
        for field in _FROM_LIBRARY:
            value = of_library.get(field, why)
            if not is_unreadable(value) or is_unreadable(gpu[field]):
                gpu[field] = value
        if is_unreadable(gpu["model"]) and tree.live:
            name = attempt(_udev_model, gpu["bdf"])
            gpu["model"] = gpu["model"] if is_unreadable(name) else name
    return gpus


def counters(gpus: Any) -> dict[str, Any]:
    """The counters that a run is judged by: RAS and PCIe replays."""
    found: dict[str, Any] = {}
    for gpu in gpus if isinstance(gpus, list) else []:
        found["ras/{}/correctable".format(gpu["bdf"])] = gpu["ecc_correctable"]
        found["ras/{}/uncorrectable".format(gpu["bdf"])] = gpu["ecc_uncorrectable"]
        found["pcie/{}/replay".format(gpu["bdf"])] = gpu["pcie_replays"]
    return found
