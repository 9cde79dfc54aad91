"""Readings from a node's log: bounded in number and size, and typed."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from pydantic import ValidationError

from shakedown.common.text import load_json, printable
from shakedown.trials.models import Reading
from shakedown.trials.workload.registry import MARK

LINES = 200_000  # 8 GPUs, 40 figures, 100 repetitions are 32,000
PARTS = 128  # of one node: GPUs and memory. Each part is compared with all others
_LINE = 4096


@dataclass
class Read:
    """The readings of a log."""

    readings: list[Reading] = field(default_factory=list)
    over: bool = False  # the program reports its own end
    wrong: str = ""  # why some readings could not be read


def read_log(node: str, lines: Iterable[str]) -> Read:
    """Read the readings of one node's log. `wrong` reports the first invalid line."""
    result, parts = Read(), set[str]()
    for number, line in enumerate(lines, 1):
        if line.startswith("trials: over after "):
            result.over = True
        if not line.startswith(MARK):
            continue
        if len(result.readings) >= LINES:
            result.wrong = f"more than {LINES} readings"
            break
        try:
            if len(line) > _LINE:
                raise ValueError("too long")
            document = load_json(line[len(MARK) :], _LINE)
            reading = Reading.model_validate(document)
            if ">" not in reading.part:
                parts.add(reading.part)
            if len(parts) > PARTS:
                result.wrong = f"more than {PARTS} parts"
                break
            clean = {"node": node, "note": printable(reading.note, 200)}
            result.readings.append(reading.model_copy(update=clean))
        except (ValidationError, ValueError) as error:
            if not result.wrong:
                reason = error.errors()[0]["msg"] if isinstance(error, ValidationError) else str(error)
                result.wrong = f"line {number} is no reading: {printable(reason, 120)}"
    return result
