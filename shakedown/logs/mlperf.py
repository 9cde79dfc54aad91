"""MLPerf training's own lines, `:::MLLOG {JSON}`: when a run began and stopped, with which status, and what it reached.

The keys are those of mlcommons/logging, mlperf_logging/mllog/constants.py (read in November 2026). A line that is no
such JSON counts as damaged.
"""

import json
import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

from pydantic import ConfigDict

from shakedown.common.frozen import Frozen
from shakedown.common.text import printable

MARK = ":::MLL"  # "OG", and "ML" alone before 2019: ":::MLPv0.6.0"
_LINE = ":::MLLOG "
_LONGEST = 65536
_MOST = 10_000  # values of one kind that are kept
_PROGRESS = {"run_start", "block_start", "epoch_start", "block_stop", "epoch_stop", "eval_accuracy", "run_stop"}


class MlperfRun(Frozen):
    """What one log says. `statuses` are those of run_stop; `accuracies` those of the evaluations, in their order;
    `throughputs` in samples a second, as the submission counts them."""

    model_config = ConfigDict(ser_json_inf_nan="strings", defer_build=True)

    lines: int = 0
    damaged: int = 0
    benchmark: str = ""
    starts: int = 0
    statuses: tuple[str, ...] = ()
    accuracies: tuple[float, ...] = ()
    throughputs: tuple[float, ...] = ()
    begun_ms: int | None = None
    stopped_ms: int | None = None

    @property
    def through(self) -> bool:
        """Return whether each run that began has stopped, with success."""
        return _through(self.starts, self.statuses)


def _through(starts: int, statuses: Sequence[str]) -> bool:
    return 0 < starts <= len(statuses) and set(statuses) == {"success"}


class MlperfReader:
    """Collects it from the lines of a log."""

    def __init__(self) -> None:
        self._counts = Counter[str]()
        self._found: dict[str, Any] = {}
        self._values: dict[str, list[Any]] = {"statuses": [], "accuracies": [], "throughputs": []}

    def line(self, line: str) -> bool:
        """Take a line that holds `MARK`; return whether it shows that the program trains."""
        _, mark, text = line.partition(_LINE)
        if not mark:
            return False
        self._counts["lines"] += 1
        try:
            event = json.loads(text[:_LONGEST])
            key, value, metadata = event["key"], event.get("value"), event.get("metadata") or {}
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            self._counts["damaged"] += 1
            return False
        if not isinstance(key, str) or not isinstance(metadata, dict):
            self._counts["damaged"] += 1
            return False
        self._take(key, value, metadata, event.get("time_ms"))
        return key in _PROGRESS

    @property
    def through(self) -> bool:
        """As the run's."""
        return _through(self._counts["starts"], self._values["statuses"])

    def _take(self, key: str, value: Any, metadata: dict[str, Any], at: Any) -> None:
        at = at if isinstance(at, int) and 0 <= at < 1 << 53 else None
        statuses, accuracies, throughputs = self._values.values()
        if key == "submission_benchmark":
            self._found["benchmark"] = printable(str(value), 60)
        elif key == "run_start":
            self._counts["starts"] += 1
            self._found["begun_ms"] = self._found.get("begun_ms") or at
        elif key == "run_stop" and len(statuses) < _MOST:
            statuses.append(printable(str(metadata.get("status", value)), 60))
            self._found["stopped_ms"] = at or self._found.get("stopped_ms")
        elif key == "eval_accuracy" and len(accuracies) < _MOST:
            accuracies += [_number(number) for number in _values(value)]
        elif key == "tracked_stats" and isinstance(value, dict) and len(throughputs) < _MOST:
            throughputs += [_number(value["throughput"])] if "throughput" in value else []

    def run(self) -> MlperfRun | None:
        """Return what there was; None: not one such line."""
        return MlperfRun.model_validate(self._found | self._values | self._counts) if self._counts else None


def _values(value: Any) -> list[Any]:
    """Return the values of one evaluation: Mask R-CNN has two, of boxes and of masks."""
    return (list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else [value])[:16]


def _number(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return math.nan
