"""Trials: short measurements of each node and between nodes, judged against the fleet.

`workload/` travels and measures; everything else here plans, reads and judges, and is pure.
"""

from shakedown.trials.workload.registry import Trial, trials

__all__ = ["Trial", "trials"]
