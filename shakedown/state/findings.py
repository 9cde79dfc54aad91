"""Findings: one comparison of what a node should be with what it is.

A finding is data. The terminal, JSON, JUnit, Prometheus and the report page all show the same object; a check never
prints, never changes a node and never raises for a bad one.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

from pydantic import Field, model_validator

from shakedown.common.frozen import Frozen
from shakedown.common.text import printable


class _Word(str, Enum):  # noqa: UP042 - StrEnum is newer than the oldest Python of a node, which has the checks too
    __str__ = str.__str__


class Verdict(_Word):
    """The result of a comparison. Unknown is never ok.

    `warn` is for advice alone: the comparison was made, the node may train, and no operation would change it. It is
    shown and counted, and changes neither the verdict of a node or a run nor an exit code. A reading that such a
    comparison needs and that could not be taken is `unknown` like any other.
    """

    OK = "ok"
    WARN = "warn"  # advice: nothing stands in the way, and a person may want to know
    DRIFT = "drift"  # differs from the desired state, and an operation (or a reboot) would fix it
    FAIL = "fail"  # differs, and no operation can fix it: a GPU is missing, a port is down
    UNKNOWN = "unknown"  # the reading could not be taken

    severity: int
    """Order for 'the worst wins': fail, then unknown, then drift, then ok, which advice does not change."""

    def __init__(self, word: str) -> None:
        self.severity = {"ok": 0, "warn": 0, "drift": 1, "unknown": 2, "fail": 3}[word]

    @property
    def passes(self) -> bool:
        """Tell whether nothing has to be done: ok, or ok with advice."""
        return self.severity == 0

    @property
    def exit_code(self) -> int:
        """Return the exit code of the `shakedown` command when this is the worst verdict."""
        return {"ok": 0, "warn": 0, "fail": 1, "drift": 3, "unknown": 4}[self.value]


def worst(verdicts: list[Verdict]) -> Verdict:
    """Return the worst of the verdicts, never `warn`; of none at all, unknown: nothing was seen to be right."""
    found = max(verdicts, key=lambda verdict: verdict.severity, default=Verdict.UNKNOWN)
    return Verdict.OK if found.passes else found


class Risk(_Word):
    """What fixing costs the jobs on the node."""

    SAFE = "safe"
    DISRUPTIVE = "disruptive"  # running jobs notice
    REBOOT = "reboot"  # takes effect at the next boot


class FixedBy(_Word):
    """What fixes a finding. A deploy is responsible for what its operations fix; the rest it can only report."""

    OPERATION = "operation"  # one of operations, when a deploy declares it
    LOGIN = "login"  # nothing is left to do: it is written down, and new sessions have it
    REBOOT = "reboot"  # nothing is left to do but a boot, which the desired state does not allow
    PERSON = "person"  # no operation can fix it, or not on this node


class Remedy(Frozen):
    """What would fix a finding.

    `operation` names a function of `operations` as `module.function` ("tuning.numa_balancing") and
    `arguments` are its keyword arguments; None where none is to be run, and then `text` says what to do. `as_root` says
    whether the operation needs root.
    """

    text: str
    operation: str | None = None
    arguments: dict[str, Any] = Field(default_factory=dict)
    as_root: bool = True
    risk: Risk = Risk.SAFE
    by: FixedBy = Field(default_factory=lambda given: FixedBy.OPERATION if given["operation"] else FixedBy.PERSON)


class Finding(Frozen):
    """One setting of one node: the verdict, what was wanted, what is, where that was read, and what would fix it.

    `actual` is what runs now. For a setting that can be kept across a reboot, `persisted` is what the node would come
    up with; `reboot_pending` says that the wanted value is written down and waits for a boot. `waiver` names the site's
    waiver that makes a failure or a drift advice.
    """

    name: str
    node: str
    verdict: Verdict
    wanted: Any = None
    actual: Any = None
    persisted: Any = None
    reboot_pending: bool = False
    unit: str | None = None
    evidence: str = ""
    remedy: Remedy | None = None
    waiver: str | None = Field(default=None, exclude_if=lambda waiver: waiver is None)

    @model_validator(mode="after")
    def _advice_declares_nothing(self) -> Finding:
        """Refuse advice with an operation: a deploy runs the operation of a remedy, so its finding has drifted."""
        if self.verdict == Verdict.WARN and self.remedy and self.remedy.by == FixedBy.OPERATION:
            raise ValueError(f"{self.name}: advice names no operation; what an operation fixes has drifted")
        return self

    def of(self, node: str) -> Finding:
        """Return the same finding of another node. What is valid of one node is of all."""
        other = Finding.__new__(Finding)
        object.__setattr__(other, "__dict__", {**self.__dict__, "node": node})
        object.__setattr__(other, "__pydantic_fields_set__", self.__pydantic_fields_set__)
        object.__setattr__(other, "__pydantic_extra__", None)
        object.__setattr__(other, "__pydantic_private__", None)
        return other

    @property
    def fixed_by(self) -> FixedBy | None:
        """Return what fixes it: a person where the finding does not say; None where it is ok."""
        if self.verdict == Verdict.OK:
            return None
        return self.remedy.by if self.remedy else FixedBy.PERSON

    @property
    def new_login(self) -> bool:
        """Return whether what its operation writes down counts for new sessions alone."""
        return bool(self.remedy and self.fixed_by == FixedBy.OPERATION and "next login" in self.remedy.text)

    @property
    def pending(self) -> str:
        """ "reboot pending", "login pending", or nothing."""
        if self.fixed_by == FixedBy.LOGIN:
            return "login pending"
        return "reboot pending" if self.reboot_pending else ""

    def __str__(self) -> str:
        pending = f" ({self.pending})" if self.pending else ""
        later = "" if self.persisted in (None, self.actual) else f", next boot {self.persisted}"
        text = f"{self.node}: {self.name}: {self.verdict}{pending}: wanted {self.wanted}, actual {self.actual}{later}"
        return printable(text)


@dataclass(frozen=True)
class Comparison:
    """What a check has found: a finding but for the check's own name and the node's, which are known to who asks it.
    `detail` stands behind the name where a check compares several things: "ens1" makes the finding "mtu.ens1"."""

    verdict: Verdict
    wanted: Any = None
    actual: Any = None
    persisted: Any = None
    reboot_pending: bool = False
    unit: str | None = None
    evidence: str = ""
    remedy: Remedy | None = None
    waiver: str | None = None
    detail: str = ""

    def about(self, detail: str) -> Comparison:
        """Return the same comparison, of this thing among those that the check compares."""
        other = object.__new__(Comparison)  # ten thousand nodes have 300,000, and `replace` takes four times as long
        other.__dict__.update(self.__dict__, detail=detail)
        return other

    def finding(self, check: str, node: str) -> Finding:
        """Return the finding of a check on a node."""
        values = {**self.__dict__, "name": f"{check}.{self.detail}" if self.detail else check, "node": node}
        del values["detail"]
        return Finding(**values)
