"""The gates of a smoke run, a benchmark and a log from anywhere: conditions that must all hold for a pass.

One pure function each, registered with `@gate` (`registry.py`); `judge` asks those for which there is evidence.
"""

from shakedown.gates.figures import Recorded, recorded
from shakedown.gates.judge import iterations_of, judge, judge_log, of_logs, unknown_metrics
from shakedown.gates.model import Gate, verdict
from shakedown.gates.node_log import NodeLog, read_log
from shakedown.gates.registry import Observed, rules

__all__ = [
    "Gate",
    "NodeLog",
    "Observed",
    "Recorded",
    "iterations_of",
    "judge",
    "judge_log",
    "of_logs",
    "read_log",
    "recorded",
    "rules",
    "unknown_metrics",
    "verdict",
]
