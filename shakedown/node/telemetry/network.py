"""RDMA devices and network interfaces: bytes, and errors."""

from __future__ import annotations

from functools import partial

from .. import rdma
from ..tree import Unreadable, attempt
from .reading import Each, Source

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List, Optional, Tuple

    from .reading import Files, Reading, Values

_NET = "/sys/class/net"
_WORDS = 4  # bytes: the unit of port_rcv_data and port_xmit_data (InfiniBand specification, PortCounters)
_NET_ERRORS = ("rx_errors", "tx_errors", "rx_dropped", "tx_dropped", "rx_missed_errors", "tx_carrier_errors")
RISEN = 500  # changes of a counter that are told


def interfaces(files: Files, used: Optional[str]) -> List[str]:
    """Interfaces with hardware behind them, and the one that the job uses."""
    tree = files.tree
    return [name for name in tree.names(_NET) if name == used or tree.exists("%s/%s/device" % (_NET, name))]


def rates(files: Files, used: Optional[str]) -> Each:
    """Bytes in and out since the counters began: of RDMA devices (port 1) and of interfaces."""
    readings: List[Tuple[str, Reading]] = []
    for name in files.tree.names(rdma.CLASS):
        for word, counter in (("rx", "port_rcv_data"), ("tx", "port_xmit_data")):
            path = "%s/%s/ports/1/counters/%s" % (rdma.CLASS, name, counter)
            readings.append(("rdma/%s/%s_bytes" % (name, word), partial(_times, files, path, _WORDS)))
    for name in interfaces(files, used):
        for word in ("rx", "tx"):
            path = "%s/%s/statistics/%s_bytes" % (_NET, name, word)
            readings.append(("net/%s/%s_bytes" % (name, word), partial(_times, files, path, 1)))
    return Each(readings)


def _times(files: Files, path: str, unit: int) -> int:
    return unit * files.number(path)


class Errors(Source):
    """The error counters of each device, added up; those that rise are told by name. Some drivers ask the device for
    each of them, so they are read less often than bytes."""

    every = 5

    def __init__(self, files: Files, used: Optional[str]) -> None:
        super().__init__()
        tree = self._tree = files.tree
        self._paths: Dict[str, List[str]] = {}
        for name in tree.names(rdma.CLASS):
            port = "%s/%s/ports/1/" % (rdma.CLASS, name)
            self._paths["rdma/" + name] = [
                port + folder + "/" + counter
                for folder in ("counters", "hw_counters")
                for counter in tree.names_if_permitted(port + folder)
                if rdma.ERROR_NAME.search(counter)
            ]
        for name in interfaces(files, used):
            self._paths["net/" + name] = ["%s/%s/statistics/%s" % (_NET, name, each) for each in _NET_ERRORS]
        self.names = [device + "/errors" for device in self._paths]
        self._known: Dict[str, int] = {}
        self._risen: List[Values] = []
        self._told = 0

    def risen(self) -> List[Values]:
        """The changes since this was last asked."""
        found, self._risen = self._risen, []
        return found

    def read(self) -> Values:
        return {device + "/errors": self._sum(device, paths) for device, paths in self._paths.items()}

    def _sum(self, device: str, paths: List[str]) -> object:
        total, why = 0, Unreadable("missing", device + ": it has no error counter")
        read = False
        for path in paths:
            value = attempt(self._tree.number, path)
            if not isinstance(value, int):
                why = Unreadable(value["unreadable"], value["detail"])
                continue
            read = True
            total += value
            before = self._known.setdefault(path, value)
            if value > before and self._told < RISEN:
                self._told += 1
                self._risen.append({"counter": device + "/" + path.rpartition("/")[2], "from": before, "to": value})
            self._known[path] = value
        return total if read else why
