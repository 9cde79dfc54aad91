"""One node's part in the rounds between nodes: between.py REQUEST, or `between.py --store PORT NODES SECONDS`.

A request is a JSON object: `place` in the inventory, `nodes`, `rounds` (each a list of pairs), `from`, the first round
that this process takes, `address` and `port` of the store, `seconds`, `limit_s`, `gpu`, `pass`. The store is all that
the nodes have in common: each pair makes a group of its own, so that a pair which cannot reach each other costs its
own cells.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
import types
from datetime import timedelta
from pathlib import Path
from typing import Any

if not __package__:
    sys.modules["workload"] = types.ModuleType("workload")
    sys.modules["workload"].__path__ = [str(Path(__file__).resolve().parent)]
    __package__ = "workload"

from .child import place_of
from .registry import Place, trials
from .wire import CRASHED, OK, WRONG, Voice, reading


def keep_store(port: int, nodes: int, seconds: float) -> None:
    """Hold the store until all nodes have said that they are through, or the time is over."""
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    store = TCPStore("0.0.0.0", port, is_master=True, wait_for_workers=False)
    until = time.monotonic() + seconds
    while store.add("through", 0) < nodes and time.monotonic() < until:
        time.sleep(0.2)
    time.sleep(1)


def _wait_for_all(store: Any, name: str, nodes: int, seconds: float) -> None:
    """Until all have come this far, so that no more pairs measure at once than were meant to. One that is missing is
    waited for no longer than a measurement may take."""
    store.add(name, 1)
    until = time.monotonic() + seconds
    while store.add(name, 0) < nodes and time.monotonic() < until:
        time.sleep(0.02)


def take_round(store: Any, request: dict[str, Any], number: int, place: Place, voice: Voice) -> None:
    """Measure with the partner of this round, where there is one."""
    import torch.distributed as dist
    from torch.distributed import PrefixStore  # type: ignore[attr-defined]

    mine, prefix = request["place"], f"{request['pass']}/{number}"
    pair = next((pair for pair in request["rounds"][number] if mine in pair), None)
    _wait_for_all(store, f"{prefix}/begin", request["nodes"], request["limit_s"])
    if pair is None:
        return
    voice.say({"begins": "pairs", "repetition": number, "pair": pair})
    place.rank, other = pair.index(mine), pair[1 - pair.index(mine)]
    part, repetition = f"{mine}>{other}", request["repetitions"][number]
    try:
        dist.init_process_group(
            "nccl" if place.on_gpu else "gloo",
            store=PrefixStore(f"{prefix}/{pair[0]}-{pair[1]}", store),
            rank=place.rank,
            world_size=2,
            timeout=timedelta(seconds=0.8 * request["limit_s"]),
        )
        for found in trials()["pairs"].function(place):
            state, more = WRONG if found.wrong else OK, {"value": found.value, "wrong": found.wrong}
            voice.say(reading("pairs", part, repetition, found.figure, state, **more))
    except RuntimeError:
        traceback.print_exc()
        voice.say(reading("pairs", part, repetition, state=CRASHED, note="see the node's log between.log"))
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()


def main(request: dict[str, Any]) -> None:
    """All rounds from the first one on that this process is to take."""
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    voice = Voice()
    store = TCPStore(
        request["address"], request["port"], is_master=False, timeout=timedelta(seconds=request["start_s"])
    )
    place = place_of("pair", {**request, "ranks": 2})
    for number in range(request["from"], len(request["rounds"])):
        take_round(store, request, number, place, voice)
        voice.say({"round": number})
    store.add("through", 1)
    voice.say({"ends": "pairs"})


if __name__ == "__main__":
    if sys.argv[1] == "--store":
        keep_store(int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]))
    else:
        main(json.loads(sys.argv[1]))
    sys.stderr.flush()
    os._exit(0)
