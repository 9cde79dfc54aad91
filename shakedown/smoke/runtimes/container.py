"""Runtime `container`: docker or podman, with the documented options."""

from __future__ import annotations

from shakedown.smoke.launch import NodePlan
from shakedown.smoke.runtimes.job import Job, Seat


def node_plan(job: Job, seat: Seat) -> NodePlan:
    raise NotImplementedError
