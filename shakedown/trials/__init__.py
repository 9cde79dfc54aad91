"""Trials: short measurements of nodes and between nodes. `workload/` travels and measures; the rest is pure."""

from shakedown.trials.workload.registry import Trial, trials

__all__ = ["Trial", "trials"]
