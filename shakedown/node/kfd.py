"""The compute driver's topology (/sys/class/kfd), the processes that hold GPUs, and ROCm's version."""

from __future__ import annotations

from . import rocm
from .tree import Part, Tree, Unreadable, attempt, attempt_or

_KFD = "/sys/class/kfd/kfd"


def parse_properties(lines: list[str]) -> dict[str, int]:
    pairs = (line.split() for line in lines)
    return {words[0]: int(words[1]) for words in pairs if len(words) == 2 and words[1].isdigit()}


def _nodes(tree: Tree) -> list[dict[str, int]]:
    folder = _KFD + "/topology/nodes"
    nodes = tree.names(folder)
    if not nodes:
        raise Unreadable("missing", folder)
    return [parse_properties(tree.lines("{}/{}/properties".format(folder, node))) for node in nodes]


def _count(tree: Tree, gpus: bool) -> int:
    return sum((node["simd_count"] > 0) == gpus for node in _nodes(tree))


def _gpus(tree: Tree) -> int:
    """Count GPUs. A partition is a node of its own, and differs from its GPU's others in the lowest three bits of its
    place, where a PCI address has the function."""
    return len({(node["domain"], node["location_id"] >> 3) for node in _nodes(tree) if node["simd_count"] > 0})


def render_minors(tree: Tree) -> set[int]:
    """Return the minors of the render nodes that are in use: a GPU's own, or those of its configured partitions."""
    return {node["drm_render_minor"] for node in _nodes(tree) if node["simd_count"] > 0}


def read(tree: Tree) -> Part:
    return {
        "gpus": attempt(_gpus, tree),
        "gpu_nodes": attempt(_count, tree, True),
        "cpu_nodes": attempt(_count, tree, False),
    }


def read_processes(tree: Tree) -> list[Part]:
    """Return the processes with a queue on a GPU, and the VRAM they hold on all GPUs together."""
    if not tree.exists(_KFD):
        raise Unreadable("missing", _KFD)
    found = []
    for pid in tree.names(_KFD + "/proc"):
        folder = "{}/proc/{}".format(_KFD, pid)
        files = [name for name in tree.names(folder) if name.startswith("vram_")]
        name = attempt_or("?", tree.ask, "process " + pid, lambda number: tree.psutil.Process(number).name(), int(pid))
        vram = attempt(lambda f, ns: sum(tree.number(f + "/" + n) for n in ns), folder, files)
        found.append({"pid": int(pid), "name": name, "vram_bytes": vram})
    return found


def rocm_file(tree: Tree) -> str:
    """Return the path of what has ROCm's version: its own file, or a wheel's folder."""
    path = tree.ask("rocm version", rocm.find, tree.root, ".info/version", "../rocm_sdk_core-*.dist-info")
    if path is None:
        raise Unreadable("missing", rocm.TOP + "/.info/version")
    return str(path)


def rocm_version(tree: Tree) -> str:
    """Return ROCm's version."""
    path = rocm_file(tree)
    version = path.rpartition("rocm_sdk_core-")[2][: -len(".dist-info")] if path.endswith("-info") else tree.text(path)
    if not version[:1].isdigit():
        raise Unreadable("malformed", "{}: {}".format(path, version))
    return version
