"""The thresholds of the gates over iteration lines. Data: `thresholds.toml`."""

from dataclasses import dataclass
from functools import cache

from shakedown.common.data import read_toml


@dataclass(frozen=True)
class Threshold:
    """One threshold, with the reason for its value and the source."""

    name: str
    value: float
    unit: str
    why: str
    source: str


@cache
def thresholds() -> dict[str, Threshold]:
    """Return every threshold by its name, such as `loss.rise`."""
    return {
        (full := f"{section}.{name}"): Threshold(
            full, float(entry["value"]), entry["unit"], entry["why"], entry["source"]
        )
        for section, entries in read_toml("shakedown.gates", "thresholds.toml").items()
        for name, entry in entries.items()
    }


def threshold(name: str) -> float:
    """Return the value of a threshold. Raises KeyError for a name that the data does not have."""
    return thresholds()[name].value
