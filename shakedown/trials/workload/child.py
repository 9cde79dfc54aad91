"""One process on one part: run.py child PART REQUEST. A request is a JSON object: `trials`, `repetitions`, `seconds`,
`cpus`, `numa`; of a process that works with others also `rank`, `ranks` and `rendezvous`, the file to connect by."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from . import programs
from .registry import ABSENT, CRASHED, Place, reading, reading_of, trials

Tell = Callable[[dict[str, Any]], None]


def own_output() -> Tell:
    """Return a writer of JSON lines to standard output; libraries' output goes to standard error from here on."""
    file = os.fdopen(os.dup(1), "w", buffering=1, encoding="utf-8")
    os.dup2(2, 1)
    return lambda document: print(json.dumps(document), file=file, flush=True)


def open_place(part: str, request: dict[str, Any]) -> Place:
    """Open the device of a part. Raises RuntimeError where torch sees no such GPU."""
    if request.get("tool"):
        tool = request["tool"]
        folders = [str(folder) for folder in tool.get("folders", ())]
        return Place(part, None, gpus=int(tool["gpus"]), model=str(tool.get("model", "")), folders=folders)
    import torch

    device = torch.device("cpu")
    if request.get("gpu") is not None:
        index = int(request["gpu"])
        if not torch.cuda.is_available() or index >= torch.cuda.device_count():
            raise RuntimeError(f"{part}: torch sees {torch.cuda.device_count()} GPUs here")
        torch.cuda.set_device(index)
        device = torch.device("cuda", index)
    return Place(
        part,
        device,
        seconds=float(request["seconds"]),
        rank=int(request.get("rank", 0)),
        ranks=int(request.get("ranks", 1)),
        numa=request.get("numa") or {},
    )


def join(place: Place, rendezvous: str) -> None:
    """Connect to the other processes of the node."""
    import torch.distributed as dist

    dist.init_process_group(
        "nccl" if place.on_gpu else "gloo",
        init_method=f"file://{rendezvous}",
        rank=place.rank,
        world_size=place.ranks,
        timeout=timedelta(minutes=10),  # the process that started this one has a shorter limit of its own
    )


def measure(place: Place, name: str, repetition: int, tell: Tell) -> None:
    """Run one repetition of one trial."""
    trial = trials()[name]
    if trial.needs_gpu and not (place.on_gpu or place.gpus):
        if repetition == 1:
            tell(reading(name, place.part, repetition, state=ABSENT, note="the trial needs a GPU, and there is none"))
        return
    tell({"begins": name, "repetition": repetition})
    measured = False
    try:
        for measurement in trial.function(place):
            measured = True
            if place.rank:
                continue  # all ranks have the same figure: the first one reports it
            tell(reading_of(measurement, name, place.part, repetition))
    except programs.Failed as error:
        measured = True
        tell(reading(name, place.part, repetition, state=CRASHED, note=str(error)[:300]))
    if not measured and not place.rank and repetition == 1:
        tell(reading(name, place.part, repetition, state=ABSENT, note="the tool is not installed"))


def main(part: str, text: str) -> None:
    """Run all trials of a request in turn, once for each repetition, so that a figure is measured at several times."""
    request, tell = json.loads(text), own_output()
    if request.get("cpus"):
        os.sched_setaffinity(0, request["cpus"])
    place = open_place(part, request)
    if request.get("rendezvous"):
        join(place, request["rendezvous"])
    for repetition in range(1, int(request["repetitions"]) + 1):
        for name in request["trials"]:
            measure(place, name, repetition, tell)
    tell({"ends": part})
