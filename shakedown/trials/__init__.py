"""Trials: short measurements of each node and between nodes, judged against the fleet.

`workload/` travels to the nodes and measures. All other modules plan, read and judge, and are pure.
"""

from shakedown.trials.workload.registry import Trial, trials

__all__ = ["Trial", "trials"]
