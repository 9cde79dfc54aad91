"""What a gate says, and the thresholds of the gates over iteration lines (data: `thresholds.toml`)."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from pydantic import ConfigDict, ValidationInfo, field_validator

from shakedown.common.data import read_toml
from shakedown.common.frozen import Frozen
from shakedown.desired.models import TOGETHER
from shakedown.state.findings import Verdict, worst


class Outcome(Frozen):
    """A gate's result; `ok` and `warn` pass. `evidence`: where the value is from; `remedy`: none if ok."""

    model_config = ConfigDict(ser_json_inf_nan="strings", defer_build=True)

    verdict: Literal[Verdict.OK, Verdict.WARN, Verdict.FAIL, Verdict.UNKNOWN]
    wanted: Any = None
    actual: Any = None
    unit: str | None = None
    evidence: str = ""
    remedy: str | None = None

    @field_validator("remedy")
    @classmethod
    def _of_what_is_not_ok(cls, remedy: str | None, outcome: ValidationInfo) -> str | None:
        return None if outcome.data.get("verdict") is Verdict.OK else remedy


class _Named(Frozen):
    name: str


class Gate(Outcome, _Named):
    """One condition on a smoke run, and its outcome. Its name comes first in run.json."""

    job: str = TOGETHER  # which job of the run it judges (jobs/job.py names them)
    node: str | None = None  # the node that had this job for itself


def verdict(gates: Iterable[Gate]) -> Verdict:
    """Return the worst verdict of the gates; unknown when there are none."""
    return worst([gate.verdict for gate in gates])


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
    sections = read_toml("shakedown.gates", "thresholds.toml")
    names = {f"{section}.{name}": entry for section, entries in sections.items() for name, entry in entries.items()}
    return {name: Threshold(name, **{**entry, "value": float(entry["value"])}) for name, entry in names.items()}


def threshold(name: str) -> float:
    """Return the value of a threshold. Raises KeyError for a name that the data does not have."""
    return thresholds()[name].value
