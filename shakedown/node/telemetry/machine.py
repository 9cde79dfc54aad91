"""CPU and memory by psutil; pressure, which psutil leaves out, from /proc."""

from __future__ import annotations

from functools import partial
from typing import Callable, Dict, Tuple

from ..tree import Tree
from .reading import Source, Values, together

_PRESSURE = {"cpu": ("some",), "memory": ("some", "full"), "io": ("some", "full")}


class Machine(Source):
    """All CPUs together, in seconds since boot; memory in bytes; stalls (Documentation/accounting/psi.rst) in seconds
    since boot."""

    def __init__(self, tree: Tree) -> None:
        super().__init__()
        self._tree = tree
        self._groups: Dict[Tuple[str, ...], Callable[[], Values]] = {("cpu/busy_s", "cpu/iowait_s"): self._cpu}
        self._groups["memory/available_bytes", "memory/swap_used_bytes"] = self._memory
        for kind, shares in _PRESSURE.items():
            names = tuple("pressure/%s_%s_s" % (kind, share) for share in shares)
            self._groups[names] = partial(self._pressure, kind, shares)
        self.names = [name for names in self._groups for name in names]

    def read(self) -> Values:
        return {name: value for group in self._groups.items() for name, value in together(*group).items()}

    def _cpu(self) -> Values:
        """Read the CPU times. Of idle and iowait, the time in which nothing ran, only the latter is reported."""
        times = self._tree.psutil.cpu_times()
        busy = times.user + times.nice + times.system + times.irq + times.softirq + times.steal
        return {"cpu/busy_s": busy, "cpu/iowait_s": times.iowait}

    def _memory(self) -> Values:
        psutil = self._tree.psutil
        return {
            "memory/available_bytes": psutil.virtual_memory().available,
            "memory/swap_used_bytes": psutil.swap_memory().used,
        }

    def _pressure(self, kind: str, shares: Tuple[str, ...]) -> Values:
        """Parse "some avg10=0.00 ... total=123", in microseconds; older kernels have no "full" of CPUs."""
        lines = (line.split() for line in self._tree.lines("/proc/pressure/" + kind))
        totals = {words[0]: int(words[-1].partition("=")[2]) / 1e6 for words in lines}
        return {"pressure/%s_%s_s" % (kind, share): totals[share] for share in shares}
