"""The gates of a smoke run: conditions that must all hold for a pass. One pure function each.

`judge_log` applies those that need nothing but the nodes' logs; `exit_codes` and `counters` take the rest of the
evidence as plain data.
"""

from shakedown.smoke.gates.evidence import counters, exit_codes, logs_complete, nothing_left
from shakedown.smoke.gates.figures import Recorded, recorded
from shakedown.smoke.gates.judge import iterations_of, judge_log, summary_of, unknown_metrics
from shakedown.smoke.gates.model import Gate, verdict
from shakedown.smoke.gates.node_log import NodeLog, read_log

__all__ = [
    "Gate",
    "NodeLog",
    "Recorded",
    "counters",
    "exit_codes",
    "iterations_of",
    "judge_log",
    "logs_complete",
    "nothing_left",
    "read_log",
    "recorded",
    "summary_of",
    "unknown_metrics",
    "verdict",
]
