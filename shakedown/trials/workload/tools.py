"""The field's own tools: their command lines, and the figures in their output.

Columns are found by the names in the header, never by number: rccl-tests alone has had three forms of its table. The
formats come from public logs (2026-11) of rccl-tests, perftest 4.5 to 6.2, TransferBench 1.5x, BabelStream 3.2 to 5.0;
tests/data/trials has samples. RVS has a module of its own.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from typing import NamedTuple


class Row(NamedTuple):
    """A row of a table, by the names of its columns; a name that the header has twice becomes name and name.2."""

    cells: dict[str, str]

    def number(self, name: str) -> float:
        """Return a column's number; NaN where the column is absent or holds no number."""
        try:
            return float(self.cells.get(name, "nan"))
        except ValueError:
            return math.nan


COMMANDS: dict[str, list[list[str]]] = {
    "rccl_tests": [
        ["all_reduce_perf", "-b", "8", "-e", "8G", "-f", "2", "-g", "{gpus}"],
        ["alltoall_perf", "-b", "8", "-e", "8G", "-f", "2", "-g", "{gpus}"],
    ],
    "transferbench": [["TransferBench", "p2p"], ["TransferBench", "a2a"]],
    "babelstream": [["hip-stream", "-n", "50", "-s", "268435456", "--device", "{gpu}"]],
}
"""As on AMD's acceptance pages (ROCm/system-acceptance-docs, docs/common/system-validation.md, 2026-07-10)."""


def table(text: str, names: str, first: str) -> Iterator[Row]:
    """Yield the rows below a header.

    `names`: a regular expression for the names in the header; `first`: the name of the first column, a number in each
    row.
    """
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
            yield Row(dict(zip(header, cells)))  # noqa: B905


def rccl(text: str) -> tuple[float, int]:
    """Read the bus bandwidth in GB/s at the largest message, in place, and the number of wrong results.

    The average at the end is over all sizes, and is not used.
    """
    rows = list(table(text.replace("#wrong", " wrong"), r"[a-z]+", "size"))
    wrong = [row.number(name) for row in rows for name in ("wrong", "wrong.2")]
    last = max(rows, key=lambda row: row.number("size"), default=Row({}))
    in_place = "busbw.2" if "busbw.2" in last.cells else "busbw"
    return last.number(in_place), int(sum(number for number in wrong if number == number))


_PERFTEST = r"#\w+|(?:BW \w+|MsgRate|t_\w+|[\d.]+% percentile)\[[^\]]+\]"


def ib_bandwidth(text: str) -> float:
    """Read Gb/s of ib_write_bw and its kin: the average at the largest message, from any unit."""
    last = max(table(text, _PERFTEST, "#bytes"), key=lambda row: row.number("#bytes"), default=Row({}))
    for unit, factor in (("Gb/sec", 1.0), ("MB/sec", 8 * 1.048576 / 1000), ("MiB/sec", 8 * 1.048576 / 1000)):
        if f"BW average[{unit}]" in last.cells:
            return last.number(f"BW average[{unit}]") * factor
    return math.nan


def ib_latency(text: str) -> float:
    """Read microseconds of ib_read_lat and its kin: the typical latency at the smallest message."""
    first = min(table(text, _PERFTEST, "#bytes"), key=lambda row: row.number("#bytes"), default=Row({}))
    return first.number("t_typical[usec]")


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
    """Read GB/s and the 99th percentile of the completion time in microseconds; NaN where a job reports an error.

    fio may print lines before its JSON (3.33)."""
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
