"""Signs of congestion: notifications and marks that RDMA devices count, pauses that interfaces send and receive."""

from __future__ import annotations

from functools import partial
from typing import Callable, Dict, List

from .. import dcb, rdma
from ..tree import Tree, attempt, is_unreadable
from ..udev import devices
from .reading import Source, Values, attempted

# Of port 1: the first of each is mlx5's and bnxt_re's, the second ionic's (tests/data/machines/counters.toml
# has the drivers' whole lists).
COUNTERS = {
    "cnp_sent": ("np_cnp_sent", "tx_rdma_cnp_pkts"),
    "cnp_received": ("rp_cnp_handled", "rx_rdma_cnp_pkts"),
    "ecn_marked": ("np_ecn_marked_roce_packets", "rx_rdma_ecn_pkts"),
}


class Congestion(Source):
    """Counts of each RDMA device that has them, and of each interface whose driver tells its priority flow control."""

    every = 5

    def __init__(self, tree: Tree, interfaces: List[str]) -> None:
        super().__init__()
        self._counters: Dict[str, Callable[[], int]] = {}
        for device in (found.name for found in devices(tree, "infiniband")):
            folder = "%s/%s/ports/1/hw_counters" % (rdma.CLASS, device)
            there = tree.names_if_permitted(folder)
            for what, names in COUNTERS.items():
                for name in names:
                    if name in there:
                        self._counters["rdma/%s/%s" % (device, what)] = partial(tree.number, folder + "/" + name)
        self._paused = [name for name in interfaces if tree.live and not is_unreadable(attempt(_pauses, name))]
        self.names = list(self._counters)
        self.names += ["net/%s/pauses_%s" % (name, way) for name in self._paused for way in ("rx", "tx")]

    def read(self) -> Values:
        values = {name: attempted(reading) for name, reading in self._counters.items()}
        for name in self._paused:
            found = attempted(partial(_pauses, name))
            for way in ("rx", "tx"):
                values["net/%s/pauses_%s" % (name, way)] = found[way] if isinstance(found, dict) else found
        return values


def _pauses(interface: str) -> Dict[str, int]:
    """Frames of all priorities together, since the interface is up."""
    return {way: sum(counts) for way, counts in dcb.ask(interface)["pauses"].items()}
