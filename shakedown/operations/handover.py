"""One image from one node to another, past the controller: it brings the two together, and judges neither."""

from __future__ import annotations

import random
import secrets
from typing import Any

import gevent
from pyinfra.api.host import Host

from shakedown.operations.scripts import run_script

PORTS = range(20000, 30000)  # below the range of outgoing connections, as the rendezvous of a job
WAIT_S = 60  # for the other end: it may have to start its python on a busy node
SLACK = 1.2  # of what is sent over what the store says: tar's own blocks, legacy files of docker's format


def hand_over(
    giver: Host, receiver: Host, image_id: str, address: str, size_bytes: int, times: dict[str, int]
) -> tuple[bool, str]:
    """Have `receiver` take an image from `giver`, which listens on `address` for it alone. Returns whether it is there
    and what was said. `size_bytes`: of the unpacked image; `times`: stall_s and timeout_s.

    Both get a token that is used once. What is loaded is the image with that id or nothing (node/assets/archive.py).
    """
    job: dict[str, Any] = {
        "id": image_id,
        "address": address,
        "ports": random.sample(PORTS, 4),
        "token": secrets.token_hex(32),
        "wait_s": WAIT_S,
        **times,
    }
    limit = times["timeout_s"] + WAIT_S + 300
    room = {"most_bytes": int(size_bytes * SLACK) + (64 << 20), "room_bytes": int(size_bytes * 2 * SLACK)}
    giving = gevent.spawn(_gives, giver, receiver, job, limit)
    try:
        done, output = run_script(receiver, "take.py", {**job, **room}, show=True, limit_s=limit)
        if done:
            return True, " ".join(output.stdout_lines[-1:])
        said = " ".join(output.stderr_lines[-1:])
        giving.join(1.0)
        return False, f"{said}{f'; {giver.name}: {giving.value}' if giving.value else ''}"
    finally:
        giving.kill()


def _gives(giver: Host, receiver: Host, job: dict[str, Any], limit: float) -> str:
    """What was wrong at the giver's end; empty: nothing."""
    try:
        done, output = run_script(giver, "give.py", job, show=False, limit_s=limit, like=receiver)
    except OSError as error:
        return str(error)
    return "" if done else " ".join(output.stderr_lines[-1:])
