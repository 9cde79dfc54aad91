"""ROCm Validation Suite: the configuration of a module for a GPU model, and the figures in its output.

The forms are those of RVS' own guide (ROCm/ROCmValidationSuite, docs/ug1main.md, RVS 1.6.75 on MI355X, 2026-08-20) and
of AMD's acceptance page (ROCm/system-acceptance-docs, docs/common/system-validation.md, MI300X, 2026-07-10).
tests/data/trials has samples.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from . import rocm

_CONF = "share/rocm-validation-suite/conf"
_KFD = Path("/sys/class/kfd/kfd/topology/nodes")


class Stress(NamedTuple):
    """A figure of one action on one GPU, with RVS' own number of the GPU. `missed`: the target that RVS reports as
    missed."""

    action: str
    gpu: str
    value: float
    missed: str = ""


def configuration(module: str, model: str, root: str = "") -> Path | None:
    """Find the configuration of a module; None: there is none. The GPU model's comes first, the short form first."""
    folder = rocm.find(root, _CONF)
    if folder is None:
        return None
    for place in (Path(root + folder) / model.upper(), Path(root + folder)):
        for name in (f"{module}_single.conf", f"{module}.conf", f"{module}_stress.conf"):
            if (place / name).is_file():
                return place / name
    return None


def gpu_numbers(nodes: Path = _KFD) -> dict[str, str]:
    """Map RVS' number of a GPU to gpuN, in the order of the kernel's nodes."""
    numbers = []
    for node in sorted(nodes.glob("[0-9]*"), key=lambda path: int(path.name)):
        try:
            number = (node / "gpu_id").read_text().strip()
        except OSError:
            continue
        if number not in ("", "0"):  # a CPU's is 0
            numbers.append(number)
    return {number: f"gpu{index}" for index, number in enumerate(numbers)}


_LINE = r"\[(?P<action>[\w.-]+)\]\s*"
_GPU = r"\[GPU::\s*(?:\d+\s*-\s*)?(?P<gpu>\d+)(?:\s*-\s*[\w:.]+)?\]\s*"
_GST = re.compile(
    _LINE + _GPU + r"GFLOPS\s+(?P<value>[\d.]+)\s+Target GFLOPS:\s+(?P<target>[\d.]+)\s+met:\s*(?P<met>TRUE|FALSE)"
)
_POWER = re.compile(_LINE + _GPU + r"Power\(W\)\s+(?P<value>[\d.]+)")
_PASS = re.compile(_LINE + _GPU + r"pass:\s*(?P<passes>TRUE|FALSE)")
_DISTANCE = re.compile(_LINE + r"pcie-bandwidth\s*\[CPU::\s*(?P<cpu>\d+)\]\s*" + _GPU + r"distance:(?P<distance>\d+)")
_PCIE = re.compile(
    _LINE + r"pcie-bandwidth\s*\[\s*\d+/\s*\d+\]\s*\[CPU::\s*(?P<cpu>\d+)\]\s*" + _GPU + r"h2d::\w+\s+d2h::\w+\s+"
    r"(?P<value>[\d.]+) GBps"
)
_OTHER = r"\[GPU::\s*(?:\d+\s*-\s*)?(?P<other>\d+)(?:\s*-\s*[\w:.]+)?\]\s*"
_PEERS = re.compile(_LINE + r"p2p\s*" + _GPU + _OTHER + r"peers:(?P<peers>true|false)")
_P2P = re.compile(
    _LINE + r"p2p-bandwidth\s*\[\s*\d+/\s*\d+\]\s*" + _GPU + _OTHER + r"bidirectional:\s*\w+\s+(?P<value>[\d.]+) GBps"
)


def gst(text: str) -> list[Stress]:
    """Read TFLOPS: the last line of an action on a GPU; earlier lines are intervals."""
    last = {(match["action"], match["gpu"]): match for match in _GST.finditer(text)}
    return [
        Stress(
            action,
            gpu,
            float(match["value"]) / 1000,
            "" if match["met"] == "TRUE" else f"{float(match['target']) / 1000:g} TFLOPS",
        )
        for (action, gpu), match in last.items()
    ]


def iet(text: str) -> list[Stress]:
    """Read watts: the highest power of each GPU, since the action's target is about it."""
    most: dict[tuple[str, str], float] = {}
    for match in _POWER.finditer(text):
        key = match["action"], match["gpu"]
        most[key] = max(most.get(key, 0.0), float(match["value"]))
    failed = {(match["action"], match["gpu"]) for match in _PASS.finditer(text) if match["passes"] == "FALSE"}
    return [Stress(*key, value, "the target of its power" if key in failed else "") for key, value in most.items()]


def pebb(text: str) -> list[Stress]:
    """Read GB/s between each GPU and the memory of the nearest CPU, and of the other CPUs."""
    distances = {(match["cpu"], match["gpu"]): int(match["distance"]) for match in _DISTANCE.finditer(text)}
    nearest = {gpu: min(way for (_, own), way in distances.items() if own == gpu) for _, gpu in distances}
    rates: dict[tuple[str, str], float] = {}
    last = {(match["action"], match["cpu"], match["gpu"]): float(match["value"]) for match in _PCIE.finditer(text)}
    for (action, cpu, gpu), value in last.items():
        if (cpu, gpu) not in distances:
            continue
        key = f"{action}.{'near' if distances[cpu, gpu] == nearest[gpu] else 'far'}", gpu
        rates[key] = min(value, rates.get(key, value))
    return [Stress(action, gpu, value) for (action, gpu), value in rates.items()]


def pbqt(text: str) -> list[Stress]:
    """Read GB/s from each GPU to the GPU that it reaches most slowly."""
    last = {(match["action"], match["gpu"], match["other"]): float(match["value"]) for match in _P2P.finditer(text)}
    cut: dict[tuple[str, str], str] = {}
    for match in _PEERS.finditer(text):
        if match["peers"] == "false":
            cut[match["action"], match["gpu"]] = match["other"]
    lowest: dict[tuple[str, str], float] = {}
    for (action, gpu, _), value in last.items():
        lowest[action, gpu] = min(value, lowest.get((action, gpu), value))
    return [
        Stress(*key, value, f"peer access to GPU {cut[key]}" if key in cut else "") for key, value in lowest.items()
    ]


def babel(text: str) -> list[Stress]:
    """Read GB/s of each kernel, as the average of its runs: BabelStream's own column holds the best run."""
    header: list[str] = []
    action, found = "babel", []
    for line in text.splitlines():
        if named := re.search(r"Action name\s*:\s*([\w.-]+)", line):
            action = named[1]
        cells = re.split(r"\s{2,}", line.strip())
        if "GPU Id" in cells and "Function" in cells:
            header = cells
        elif header and len(cells) == len(header):
            row = dict(zip(header, cells))  # noqa: B905
            value = row.get("Avg MB/s", "")
            if re.fullmatch(r"[\d.]+", value) and row["GPU Id"].isdigit():
                found.append(Stress(f"{action}.{row['Function']}", row["GPU Id"], float(value) / 1000))
    return found


MODULES = {"gst": gst, "iet": iet, "babel": babel, "pebb": pebb, "pbqt": pbqt}
