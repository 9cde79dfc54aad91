"""The rendezvous of a trial's nodes: PyTorch's TCPStore on the first node, as torchrun keeps one there.

    rendezvous.py ADDRESS PORT COUNT SECONDS    keep the store until COUNT nodes have finished, or the time is over

Nodes find each other here, and wait for each other; no figure goes through the store. The store asks no client for a
secret: docs/security.md describes the consequences on a training network.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from datetime import timedelta

from torch.distributed import Store, TCPStore  # type: ignore[attr-defined]

THROUGH = "through"


def join(address: str, port: int, seconds: float) -> TCPStore:
    """Connect to the first node's store. Raises RuntimeError where no store answers within `seconds`."""
    return TCPStore(address, port, is_master=False, timeout=timedelta(seconds=seconds), wait_for_workers=False)


def barrier(store: Store, name: str, nodes: int, seconds: float) -> None:
    """Wait for so many nodes, but no longer than `seconds`."""
    if store.add(name, 1) >= nodes:
        store.set(f"{name}/all", "here")
    with contextlib.suppress(RuntimeError):
        store.wait([f"{name}/all"], timedelta(seconds=seconds))


def keep(address: str, port: int, count: int, seconds: float) -> None:
    """Keep the store for the other nodes."""
    until = time.monotonic() + seconds
    store = TCPStore(address, port, is_master=True, wait_for_workers=False)
    while store.add(THROUGH, 0) < count and time.monotonic() < until:
        time.sleep(0.2)
    time.sleep(1)  # for the last answer to arrive


if __name__ == "__main__":
    keep(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]))
    os._exit(0)
