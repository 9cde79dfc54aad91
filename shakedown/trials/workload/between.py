"""One node's part in the rounds between nodes: between.py REQUEST.

A request is a JSON object: `trial`, `place` in the inventory, `nodes`, `rounds` (each a list of pairs), `from`, the
first round that this process takes, `address` and `port` of the meeting, `seconds`, `limit_s`, `gpu`, `pass`, `own`
(this node's address), `device` and `gid_index` of the rail. The meeting is all that the nodes have in common: each pair
makes a group of its own, so that a pair which cannot reach each other costs its own cells.
"""

from __future__ import annotations

import json
import os
import sys
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
from .link import Link
from .meeting import SECRET, Meeting
from .registry import Place, Trial, trials
from .wire import ABSENT, CRASHED, OK, WRONG, Voice, reading


def take_round(meeting: Meeting, request: dict[str, Any], number: int, place: Place, voice: Voice) -> None:
    """Measure with the partner of this round, where there is one."""
    mine, prefix, trial = request["place"], f"{request['trial']}/{request['pass']}/{number}", trials()[request["trial"]]
    pair = next((pair for pair in request["rounds"][number] if mine in pair), None)
    # Between two nodes a tool is run several times, each of which may take its time.
    meeting.together(f"{prefix}/begin", request["nodes"], request["limit_s"] * (1 if trial.needs_torch else 4))
    if pair is None:
        return
    voice.say({"begins": trial.name, "repetition": number, "pair": pair})
    place.rank, other = pair.index(mine), pair[1 - pair.index(mine)]
    part, repetition = f"{mine}>{other}", request["repetitions"][number]
    try:
        _meet(meeting, f"{prefix}/{pair[0]}-{pair[1]}", request, place, trial)
        for found in trial.function(place):
            state = WRONG if found.wrong else OK if found.value == found.value else ABSENT
            more = {"value": found.value, "wrong": found.wrong, "note": found.note}
            voice.say(reading(trial.name, part, repetition, found.figure, state, **more))
    except RuntimeError as error:
        traceback.print_exc()
        why = str(error) if trial.needs_torch is False else "see the node's log"
        voice.say(reading(trial.name, part, repetition, state=CRASHED, note=f"{why[:150]}: between.log"))
    finally:
        _part(trial)


def _meet(meeting: Meeting, prefix: str, request: dict[str, Any], place: Place, trial: Trial) -> None:
    if not trial.needs_torch:
        rates = place.link.rates if place.link else {}
        rail = request["own"], request.get("device"), request.get("gid_index")
        place.link = Link(meeting, prefix, place.rank, *rail, request["limit_s"], rates)
        return
    import torch.distributed as dist

    from .store import MeetingStore

    limit_s = 0.8 * request["limit_s"]
    dist.init_process_group(
        "nccl" if place.on_gpu else "gloo",
        store=MeetingStore(meeting, prefix, limit_s),
        rank=place.rank,
        world_size=2,
        timeout=timedelta(seconds=limit_s),
    )


def _part(trial: Trial) -> None:
    if trial.needs_torch:
        import torch.distributed as dist

        if dist.is_initialized():
            dist.destroy_process_group()


def main(request: dict[str, Any]) -> None:
    """All rounds from the first one on that this process is to take."""
    voice, trial = Voice(), trials()[request["trial"]]
    place = place_of("pair", {**request, "ranks": 2}) if trial.needs_torch else Place("pair", None, ranks=2)
    meeting = Meeting(request["address"], request["port"], os.environ.pop(SECRET), request["place"], request["start_s"])
    for number in range(request["from"], len(request["rounds"])):
        take_round(meeting, request, number, place, voice)
        voice.say({"round": number})
    voice.say({"ends": trial.name})


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
    sys.stderr.flush()
    os._exit(0)
