"""What the processes of a trial run say to each other and to the controller: one JSON object a line.

The controller reads them in the job's log, behind a mark. What a program says of a failure stands in a log of its own:
in the job's log it would be taken for the failure of the job.
"""

from __future__ import annotations

import json
import math
import os
from typing import Any

MARK = "trial "
OK, WRONG, ABSENT, TIMEOUT, CRASHED = STATES = ("ok", "wrong", "absent", "timeout", "crashed")


def reading(trial: str, part: str, repetition: int, figure: str = "", state: str = OK, **more: Any) -> dict[str, Any]:
    """One reading as it travels. Of a part that gave none, `figure` is empty and `state` says why."""
    value = more.pop("value", None)
    known = value if value is not None and math.isfinite(value) else None
    found = {"trial": trial, "part": part, "repetition": repetition, "figure": figure, "state": state, "value": known}
    return {**found, **{name: each for name, each in more.items() if each not in (None, "")}}


class Voice:
    """Lines to whoever started this process, on what was its standard output. What libraries print goes to standard
    error from here on, and cannot come between."""

    def __init__(self) -> None:
        self._file = os.fdopen(os.dup(1), "w", buffering=1, encoding="utf-8")
        os.dup2(2, 1)

    def say(self, document: dict[str, Any]) -> None:
        """One object, on one line."""
        self._file.write(json.dumps(document) + "\n")
        self._file.flush()
