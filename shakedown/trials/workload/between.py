"""One node's part in the rounds between nodes.

    run.py between REQUEST                           measure with the partner of each round
    run.py between keep ADDRESS PORT COUNT SECONDS   keep the store until COUNT nodes have finished, or the time is over

Nodes find each other in PyTorch's TCPStore on the first node; no figure goes through it, and it asks no client for a
secret (docs/security.md). A request is a JSON object: `trial`, `place` in the inventory, `nodes`, `rounds` (lists of
pairs), `from` (first round), `address` and `port` of the rendezvous, `seconds`, `limit_s`, `start_s`, `gpu`, `pass`,
`own` (address), `device` and `gid_index` of the rail. Each pair makes its own group, and loses only its own cells.
"""

from __future__ import annotations

import contextlib
import json
import time
import traceback
from datetime import timedelta
from typing import Any

from torch import distributed
from torch.distributed import Store, TCPStore  # type: ignore[attr-defined]

from .child import Tell, open_place, own_output
from .programs import Link
from .registry import CRASHED, Place, Trial, reading, reading_of, trials

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


def take_round(store: Store, request: dict[str, Any], number: int, place: Place, tell: Tell) -> None:
    """Measure with the partner of this round, where there is one."""
    mine, prefix, trial = request["place"], f"{request['trial']}/{request['pass']}/{number}", trials()[request["trial"]]
    pair = next((pair for pair in request["rounds"][number] if mine in pair), None)
    # Between two nodes a tool runs several times, and each run may take its time.
    barrier(store, f"{prefix}/begin", request["nodes"], request["limit_s"] * (1 if trial.needs_torch else 4))
    if pair is None:
        return
    tell({"begins": trial.name, "repetition": number, "pair": pair})
    place.rank, other = pair.index(mine), pair[1 - pair.index(mine)]
    part, repetition = f"{mine}>{other}", request["repetitions"][number]
    try:
        _meet(store, f"{prefix}/{pair[0]}-{pair[1]}", request, place, trial)
        for measured in trial.function(place):
            tell(reading_of(measured, trial.name, part, repetition))
    except RuntimeError as error:
        traceback.print_exc()
        reason = str(error) if trial.needs_torch is False else "see the node's log"
        tell(reading(trial.name, part, repetition, state=CRASHED, note=f"{reason[:150]}: between.log"))
    finally:
        if trial.needs_torch and distributed.is_initialized():
            distributed.destroy_process_group()


def _meet(store: Store, prefix: str, request: dict[str, Any], place: Place, trial: Trial) -> None:
    pair = distributed.PrefixStore(prefix, store)  # type: ignore[attr-defined]
    if not trial.needs_torch:
        rates = place.link.rates if place.link else {}
        rail = request["own"], request.get("device"), request.get("gid_index")
        place.link = Link(pair, place.rank, *rail, request["limit_s"], rates)
        return
    limit = timedelta(seconds=0.8 * request["limit_s"])
    backend = "nccl" if place.on_gpu else "gloo"
    distributed.init_process_group(backend, store=pair, rank=place.rank, world_size=2, timeout=limit)


def main(first: str, *more: str) -> None:
    """Keep the store, or take all rounds of a request that are left to this process."""
    if first == "keep":
        address, port, count, seconds = more
        keep(address, int(port), int(count), float(seconds))
        return
    request = json.loads(first)
    tell, trial = own_output(), trials()[request["trial"]]
    place = open_place("pair", {**request, "ranks": 2}) if trial.needs_torch else Place("pair", None, ranks=2)
    store = join(request["address"], request["port"], request["start_s"])
    store.set_timeout(timedelta(seconds=request["limit_s"]))
    tell({"begins": ""})  # the start is over: waiting for a node that starts later is no silence
    for number in range(request["from"], len(request["rounds"])):
        take_round(store, request, number, place, tell)
        tell({"round": number})
    store.add(THROUGH, 1)
    tell({"ends": trial.name})
