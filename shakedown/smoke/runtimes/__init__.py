"""How a node's part of the job is started: in a container, or as processes in a virtual environment.

Both take the same job and answer with a NodePlan; nothing is started here.
"""

from __future__ import annotations

from collections.abc import Callable

from shakedown.smoke.launch import NodePlan
from shakedown.smoke.runtimes import container, process
from shakedown.smoke.runtimes.job import Equipment, Job, Seat

RUNTIMES: dict[str, Callable[[Job, Seat], NodePlan]] = {"container": container.node_plan, "process": process.node_plan}

__all__ = ["RUNTIMES", "Equipment", "Job", "Seat"]
