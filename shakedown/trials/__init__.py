"""Trials: short measurements of nodes and between nodes. `workload/` travels and measures; the rest is pure."""
