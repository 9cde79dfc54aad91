"""The gates of a job: conditions that must all hold for a pass. Each is a pure function with `@gate` (`registry.py`)
over groups of evidence (`observed.py`), and is skipped without evidence."""

from shakedown.gates.judge import judge, judge_log
from shakedown.gates.model import Gate, verdict
from shakedown.gates.observed import NodeLog, Observed, read_log
from shakedown.gates.registry import rules
from shakedown.gates.speed import Recorded, recorded

__all__ = ["Gate", "NodeLog", "Observed", "Recorded", "judge", "judge_log", "read_log", "recorded", "rules", "verdict"]
