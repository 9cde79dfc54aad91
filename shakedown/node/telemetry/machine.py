"""Channels and how they are read: CPU, memory and interfaces by psutil; pressure and RDMA devices from files."""

from __future__ import annotations

from functools import partial
from typing import Any, Callable, Dict, Iterable, List, Optional, Tuple

from .. import rdma
from ..known import KNOWN
from ..tree import Tree, Unreadable, attempt, is_unreadable
from ..udev import devices

Reading = Callable[[], Any]
Values = Dict[str, Any]


class Source:
    """Channels that are read in groups. `groups`: the names of each, fixed when the sampler begins, and what gives
    their values, or an unreadable part in place of one. `every`: only each so-many-th sample."""

    every = 1

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self.groups: Dict[Tuple[str, ...], Callable[[], Values]] = {}

    @property
    def names(self) -> List[str]:
        return [name for names in self.groups for name in names]

    def add(self, name: str, reading: Reading) -> None:
        """Add a channel that is read alone."""
        self.groups[(name,)] = lambda: {name: reading()}

    def read(self) -> Values:
        return {name: value for group in self.groups.items() for name, value in together(*group).items()}


def rounded(value: Any) -> Any:
    """Return a value as it is written: others than whole numbers to the thousandth. None: no value, or not finite."""
    if isinstance(value, float):
        return round(value, 3) if abs(value) < 1e300 else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def together(names: Iterable[str], reading: Reading) -> Values:
    """Return what a reading gives for several channels, or in each of them why it gives nothing."""
    values = attempt(reading)
    return dict.fromkeys(names, values) if is_unreadable(values) else values


_PRESSURE = {"cpu": ("some",), "memory": ("some", "full"), "io": ("some", "full")}


class Machine(Source):
    """All CPUs together, and stalls (Documentation/accounting/psi.rst), in seconds since boot; memory in bytes."""

    def __init__(self, tree: Tree) -> None:
        super().__init__(tree)
        self.groups["cpu/busy_s", "cpu/iowait_s"] = self._cpu
        self.groups["memory/available_bytes", "memory/swap_used_bytes"] = self._memory
        for kind, shares in _PRESSURE.items():
            names = tuple("pressure/%s_%s_s" % (kind, share) for share in shares)
            self.groups[names] = partial(self._pressure, kind, shares)

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


_WORDS = 4  # bytes: the unit of port_rcv_data and port_xmit_data (InfiniBand specification, PortCounters)
# Counter -> psutil's name of it. Carrier errors are among the errors, and frames that were missed among those dropped
# (Linux, Documentation/networking/statistics.rst).
_NET_ERRORS = {"rx_errors": "errin", "tx_errors": "errout", "rx_dropped": "dropin", "tx_dropped": "dropout"}
# Of port 1: the name of mlx5 and bnxt_re, then ionic's.
COUNTERS: Dict[str, List[str]] = KNOWN["rdma"]["congestion_counters"]
RISEN = 500  # changes of a counter that are reported


def interfaces(tree: Tree, used: Optional[str]) -> List[str]:
    """Return interfaces with hardware behind them, and the one that the job uses."""
    found = {device.name for device in devices(tree, "net") if device.parent != "virtual"}
    return sorted(found | {used} if used else found)


class Rates(Source):
    """Bytes in and out since the counters began: of RDMA devices (port 1) and of interfaces."""

    def __init__(self, tree: Tree, used: Optional[str]) -> None:
        super().__init__(tree)
        for device in devices(tree, "infiniband"):
            for word, counter in (("rx", "port_rcv_data"), ("tx", "port_xmit_data")):
                path = "%s/%s/ports/1/counters/%s" % (rdma.CLASS, device.name, counter)
                name = "rdma/%s/%s_bytes" % (device.name, word)
                self.add(name, partial(lambda path: _WORDS * tree.number(path), path))
        fields = {"rx_bytes": "bytes_recv", "tx_bytes": "bytes_sent"}
        names = ["net/%s/%s" % (name, counter) for name in interfaces(tree, used) for counter in fields]
        self.groups[tuple(names)] = partial(io_counters, tree, names, fields)


def io_counters(tree: Tree, names: List[str], fields: Dict[str, str]) -> Values:
    """Return counters "net/<interface>/<counter>" of this network namespace. `fields`: psutil's name of a counter."""
    every, found = tree.psutil.net_io_counters(pernic=True, nowrap=False), {}
    for name in names:
        _, interface, counter = name.split("/")
        missing = Unreadable("missing", "interface " + interface).as_part()
        found[name] = getattr(every[interface], fields[counter]) if interface in every else missing
    return found


class Counters(Source):
    """The error counters of each device, added up; those that rise are reported by name. And the counts of congestion
    of the RDMA devices that have them, and of interfaces whose driver reports priority flow control. Some drivers ask
    the device for each of them, so they are read less often than bytes."""

    every = 5

    def __init__(self, tree: Tree, used: Optional[str]) -> None:
        super().__init__(tree)
        ports = [device.name for device in devices(tree, "infiniband")]
        self._files = {"rdma/" + port: rdma.error_files(tree.names_if_permitted, port) for port in ports}
        names = interfaces(tree, used)
        self._errors = {"net/" + name: ["net/%s/%s" % (name, counter) for counter in _NET_ERRORS] for name in names}
        self.groups[tuple(device + "/errors" for device in (*self._files, *self._errors))] = self._totals
        self._known: Dict[str, int] = {}
        self._risen: List[Values] = []
        self._reported = 0
        for device in ports:
            folder = "%s/%s/ports/1/hw_counters" % (rdma.CLASS, device)
            there = tree.names_if_permitted(folder)
            for channel, counter in [(channel, name) for channel, every in COUNTERS.items() for name in every]:
                if counter in there:
                    self.add("rdma/%s/%s" % (device, channel), partial(tree.number, folder + "/" + counter))
        for interface in names if tree.live else ():
            pauses = attempt(_pauses, interface)
            if not is_unreadable(pauses):
                self.groups[tuple(pauses)] = partial(_pauses, interface)

    def risen(self) -> List[Values]:
        """Return the changes since the last call."""
        found, self._risen = self._risen, []
        return found

    def _totals(self) -> Values:
        readings = {
            device: {counter: attempt(self._tree.number, path) for counter, path in files.items()}
            for device, files in self._files.items()
        }
        names = [name for group in self._errors.values() for name in group]
        counters = together(names, partial(io_counters, self._tree, names, _NET_ERRORS))
        readings.update({net: {name: counters[name] for name in group} for net, group in self._errors.items()})
        return {device + "/errors": self._sum(device, values) for device, values in readings.items()}

    def _sum(self, device: str, values: Dict[str, Any]) -> Any:
        known = {counter: value for counter, value in values.items() if not is_unreadable(value)}
        for counter, value in known.items():
            before = self._known.setdefault(counter, value)
            if value > before and self._reported < RISEN:
                self._reported += 1
                self._risen.append({"counter": counter, "from": before, "to": value})
            self._known[counter] = value
        if known:
            return sum(known.values())
        return next(iter(values.values()), Unreadable("missing", device + ": it has no error counter").as_part())


def _pauses(interface: str) -> Values:
    """Return the frames of all priorities together, since the interface is up."""
    pauses = rdma.ask_dcb(interface)["pauses"]
    return {"net/%s/pauses_%s" % (interface, way): sum(pauses[way]) for way in ("rx", "tx")}
