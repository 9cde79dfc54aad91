"""python standing_still.py FOLDER WAY...: for each way four ranks of gloo that stand still in it.

Each rank has its folder, FOLDER/WAY/RANK, and a parent of its own, as it would have on a node of its own; `WAY RANK
PARENT` is printed for each.

torch is imported once, and all ranks are forked from there.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from shakedown.jobs.workload.hang import listen

RANKS = 4
ODD = 2  # the rank that goes its own way


def spin() -> None:
    """Busy in Python, as a data loader that finds no end is."""
    while True:
        sum(range(1000))


def stand_still(way: str, rank: int) -> None:
    """Three collectives together, and then one that does not end."""
    pair = dist.new_group([0, 1])
    some = torch.ones(4)
    for _ in range(3):
        dist.all_reduce(some)
    if way == "in another group" and rank in (0, 1):
        if rank == 0:
            dist.all_reduce(some, group=pair)  # which rank 1 comes to late
        time.sleep(600)
    if rank == ODD and way == "stopped":
        os.kill(os.getpid(), signal.SIGSTOP)
    if rank == ODD and way == "in a loop":
        spin()
    if rank == ODD and way == "in another collective":
        dist.broadcast(some, ODD)  # which gloo lets go through on the rank that sends
    dist.all_reduce(some)
    time.sleep(600)


def be_rank(folder: Path, way: str, rank: int, store: Any) -> None:
    """One rank, to the end of the test."""
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(RANKS))
    (folder / "hang").mkdir(parents=True)
    listen(folder / "hang")
    place = dist.PrefixStore(way, dist.TCPStore("127.0.0.1", store, None, False))
    dist.init_process_group("gloo", store=place, rank=rank, world_size=RANKS, timeout=timedelta(seconds=600))
    stand_still(way, rank)


def main() -> None:
    """All ranks of all ways; they end with this process."""
    folder, ways = Path(sys.argv[1]), sys.argv[2:]
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    for way in ways:
        for rank in range(RANKS):
            parent = os.fork()
            if not parent:
                if not os.fork():
                    be_rank(folder / way / str(rank), way, rank, port)
                    os._exit(0)
                signal.pause()
            print(way.replace(" ", "_"), rank, parent, flush=True)
    store = dist.TCPStore("127.0.0.1", port, None, True, wait_for_workers=False)
    signal.pause()
    del store


if __name__ == "__main__":
    main()
