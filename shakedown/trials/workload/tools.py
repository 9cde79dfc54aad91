"""The field's own tools: their command lines, and the figures in their output.

Columns are found by name: rccl-tests alone has had three tables. The formats come from public logs (2026-11) of
rccl-tests, perftest 4.5 to 6.2, TransferBench 1.5x, BabelStream 3.2 to 5.0 (tests/data/trials has samples), from RVS'
guide (ROCm/ROCmValidationSuite, docs/ug1main.md, RVS 1.6.75 on MI355X, 2026-08-20) and AMD's acceptance page
(ROCm/system-acceptance-docs, docs/common/system-validation.md, MI300X, 2026-07-10).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from . import rocm

COMMANDS: dict[str, list[list[str]]] = {
    "rccl_tests": [
        ["all_reduce_perf", "-b", "8", "-e", "8G", "-f", "2", "-g", "{gpus}"],
        ["alltoall_perf", "-b", "8", "-e", "8G", "-f", "2", "-g", "{gpus}"],
    ],
    "transferbench": [["TransferBench", "p2p"], ["TransferBench", "a2a"]],
    "babelstream": [["hip-stream", "-n", "50", "-s", "268435456", "--device", "{gpu}"]],
}
"""As on AMD's acceptance pages (ROCm/system-acceptance-docs, docs/common/system-validation.md, 2026-07-10)."""


def table(text: str, names: str, first: str) -> Iterator[dict[str, str]]:
    """Yield the rows below a header by its names; a name that stands twice becomes name and name.2. `names`: a pattern
    of the names; `first`: the first one, a number in each row."""
    header: list[str] = []
    for line in text.splitlines():
        words = [word.strip() for word in re.findall(names, line)]
        if words and words[0] == first and len(words) > 2:
            header = []
            for word in words:
                header.append(f"{word}.2" if word in header else word)
            continue
        cells = line.split()
        if header and len(cells) == len(header) and re.fullmatch(r"\d+", cells[0]):
            yield dict(zip(header, cells))  # noqa: B905


def number(row: dict[str, str], name: str) -> float:
    """Return a column's number; NaN where the column is absent or holds no number."""
    try:
        return float(row.get(name, "nan"))
    except ValueError:
        return math.nan


def rccl(text: str) -> tuple[float, int]:
    """Read bus bandwidth in GB/s at the largest message, in place, and wrong results (not the average of all sizes)."""
    rows = list(table(text.replace("#wrong", " wrong"), r"[a-z]+", "size"))
    wrong = [number(row, name) for row in rows for name in ("wrong", "wrong.2")]
    last = max(rows, key=lambda row: number(row, "size"), default={})
    in_place = "busbw.2" if "busbw.2" in last else "busbw"
    return number(last, in_place), int(sum(count for count in wrong if count == count))


_PERFTEST = r"#\w+|(?:BW \w+|MsgRate|t_\w+|[\d.]+% percentile)\[[^\]]+\]"


def ib_bandwidth(text: str) -> float:
    """Read Gb/s of ib_write_bw and its kin: the average at the largest message, from any unit."""
    last = max(table(text, _PERFTEST, "#bytes"), key=lambda row: number(row, "#bytes"), default={})
    for unit, factor in (("Gb/sec", 1.0), ("MB/sec", 8 * 1.048576 / 1000), ("MiB/sec", 8 * 1.048576 / 1000)):
        if f"BW average[{unit}]" in last:
            return number(last, f"BW average[{unit}]") * factor
    return math.nan


def ib_latency(text: str) -> float:
    """Read microseconds of ib_read_lat and its kin: the typical latency at the smallest message."""
    first = min(table(text, _PERFTEST, "#bytes"), key=lambda row: number(row, "#bytes"), default={})
    return number(first, "t_typical[usec]")


def babelstream(text: str) -> tuple[dict[str, float], int]:
    """Read GB/s of each function, and the number of wrong sums."""
    rates: dict[str, float] = {}
    factor = math.nan
    for line in text.splitlines():
        cells = line.split()
        if cells[:1] == ["Function"] and len(cells) > 1:
            units = {"MBytes/sec": 1e-3, "GBytes/sec": 1.0, "MiBytes/sec": 1.048576e-3, "GiBytes/sec": 1.073741824}
            factor = units.get(cells[1], math.nan)
        elif factor == factor and len(cells) >= 5 and cells[0].isalpha():
            try:
                rates[cells[0]] = float(cells[1]) * factor
            except ValueError:
                continue
    return rates, text.count("Validation failed")


def fio(text: str) -> tuple[float, float]:
    """Read GB/s and the 99th percentile in us; NaN for a job's error. Lines may precede the JSON (fio 3.33)."""
    job = json.loads(text[max(text.find("{"), 0) :])["jobs"][0]
    if job["error"]:
        return math.nan, math.nan
    read = job["read"]
    return read["bw_bytes"] / 1e9, read["clat_ns"]["percentile"]["99.000000"] / 1000


def transferbench(text: str) -> dict[str, float]:
    """Read GB/s from GPU to GPU: the averages of either direction for p2p, the average of all for a2a."""
    names = {"UniDir": "p2p.unidirectional", "BiDir": "p2p.bidirectional"}
    rates: dict[str, float] = {}
    header: list[str] = []
    for line in text.splitlines():
        if kinds := re.findall(r"[CG]PU->[CG]PU", line):
            header = kinds
        averages = re.match(r"\s*Averages \(During\s+(\w+)\):\s*(.*)", line)
        if averages and averages[1] in names:
            value = dict(zip(header, averages[2].split())).get("GPU->GPU", "N/A")  # noqa: B905
            if re.fullmatch(r"[\d.]+", value):
                rates[names[averages[1]]] = float(value)
        if average := re.match(r"\s*Average bandwidth[^:]*:\s*([\d.]+)\s*GB/s", line):
            rates["a2a.average"] = float(average[1])
    return rates


_CONF = "share/rocm-validation-suite/conf"
_KFD = Path("/sys/class/kfd/kfd/topology/nodes")


class Stress(NamedTuple):
    """A figure of an action on a GPU (RVS' own number). `missed`: the target that RVS reports as missed."""

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
    found = []
    for key, match in last.items():
        missed = "" if match["met"] == "TRUE" else f"{float(match['target']) / 1000:g} TFLOPS"
        found.append(Stress(*key, float(match["value"]) / 1000, missed))
    return found


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
