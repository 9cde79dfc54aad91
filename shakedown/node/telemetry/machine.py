"""CPU, memory and pressure, from /proc."""

from __future__ import annotations

import os
from functools import partial

from ..tree import Unreadable
from .reading import Source, attempted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict

    from .reading import Files, Values

_PRESSURE = {"cpu": ("some",), "memory": ("some", "full"), "io": ("some", "full")}


class Machine(Source):
    """All CPUs together, in seconds since boot; memory in bytes; stalls (Documentation/accounting/psi.rst) in seconds
    since boot."""

    def __init__(self, files: Files) -> None:
        super().__init__()
        self._files = files
        self._tick = float(os.sysconf("SC_CLK_TCK"))
        self.names = ["cpu/busy_s", "cpu/iowait_s", "memory/available_bytes", "memory/swap_used_bytes"]
        self.names += ["pressure/%s_%s_s" % (kind, share) for kind, shares in _PRESSURE.items() for share in shares]

    def read(self) -> Values:
        found: Values = {}
        parts = (
            (self._cpu, ("cpu/busy_s", "cpu/iowait_s")),
            (self._memory, ("memory/available_bytes", "memory/swap_used_bytes")),
        )
        for reading, names in parts:
            values = attempted(reading)
            found.update(dict.fromkeys(names, values) if isinstance(values, Unreadable) else values)
        for kind, shares in _PRESSURE.items():
            values = attempted(partial(self._pressure, kind))
            for share in shares:
                name = "pressure/%s_%s_s" % (kind, share)
                found[name] = values if isinstance(values, Unreadable) else values.get(share, _none(name))
        return found

    def _cpu(self) -> Values:
        """user nice system idle iowait irq softirq steal: idle and iowait are the time in which nothing ran."""
        times = [int(word) for word in self._files.text("/proc/stat").split("\n", 1)[0].split()[1:9]]
        busy = sum(times[:3]) + sum(times[5:])
        return {"cpu/busy_s": busy / self._tick, "cpu/iowait_s": times[4] / self._tick}

    def _memory(self) -> Values:
        lines = (line.split() for line in self._files.text("/proc/meminfo").splitlines())
        kib = {words[0]: int(words[1]) for words in lines if len(words) > 1}
        return {
            "memory/available_bytes": kib["MemAvailable:"] << 10,
            "memory/swap_used_bytes": (kib["SwapTotal:"] - kib["SwapFree:"]) << 10,
        }

    def _pressure(self, kind: str) -> Dict[str, float]:
        """ "some avg10=0.00 avg60=0.00 avg300=0.00 total=123" in microseconds."""
        found = {}
        for line in self._files.text("/proc/pressure/" + kind).splitlines():
            words = line.split()
            found[words[0]] = int(words[-1].partition("=")[2]) / 1e6
        return found


def _none(name: str) -> Unreadable:
    return Unreadable("missing", name)
