"""Readings out of a node's log: input, bounded in number and size, and typed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from pydantic import ValidationError

from shakedown.common.text import load_json, printable
from shakedown.trials.models import Reading
from shakedown.trials.workload.registry import MARK

LINES = 200_000  # 8 GPUs, 40 figures, 100 repetitions are 32,000
PARTS = 128  # of one node by itself: GPUs and memory. Each is held against all others
_LINE = 4096


@dataclass
class Read:
    """What a log says."""

    readings: list[Reading] = field(default_factory=list)
    over: bool = False  # the program says that it came to its end
    wrong: str = ""  # why not all of it could be read


def read_log(node: str, lines: Iterable[str]) -> Read:
    """The readings of one node's log. A line that is none is told in `wrong`, and never read as one."""
    found, parts = Read(), set[str]()
    for number, line in enumerate(lines, 1):
        if line.startswith("trials: over after "):
            found.over = True
        if not line.startswith(MARK):
            continue
        if len(found.readings) >= LINES:
            found.wrong = f"more than {LINES} readings"
            break
        try:
            if len(line) > _LINE:
                raise ValueError("too long")
            document = load_json(line[len(MARK) :], _LINE)
            reading = Reading.model_validate(document)
            if ">" not in reading.part:
                parts.add(reading.part)
            if len(parts) > PARTS:
                found.wrong = f"more than {PARTS} parts"
                break
            clean = {"node": node, "note": printable(reading.note, 200)}
            found.readings.append(reading.model_copy(update=clean))
        except (ValidationError, ValueError) as error:
            if not found.wrong:
                why = error.errors()[0]["msg"] if isinstance(error, ValidationError) else str(error)
                found.wrong = f"line {number} is no reading: {printable(why, 120)}"
    return found
