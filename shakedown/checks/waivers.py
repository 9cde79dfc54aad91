"""Waivers: what a site accepts for a time. A waived finding is advice, until the day passes or the part is replaced.

Only a known deviation is waived. What could not be read stays unknown, and what stands in `NOT_WAIVABLE`, or in a check
with `waivable=False`, stays a failure.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase

from shakedown.common.text import plain
from shakedown.desired.models import DesiredState, Waiver
from shakedown.node.kernel_verdict import Line
from shakedown.state.findings import Finding, Remedy, Verdict
from shakedown.state.node import NodeState, is_unreadable

NOT_WAIVABLE = (
    "fleet.machine", "fleet.address.*", "fleet.guid.*", "fleet.mac.*", "fleet.gpu_count", "fleet.kernel_log",
    "fleet.image*",
)  # fmt: skip
"""Findings beside the other nodes: a node is not what the inventory takes it for, lacks a GPU, or has other files."""
_MORE = re.compile(r"\b\d+ (?:more|others?)\b")
GRAVE = re.compile(
    r"uncorrect|unrecover|uncorr\b|not correctable|\bunc\b|\bDED \d|two bits|poison|\bfatal|corrupt|damaged"
    r"|medi(?:a|um) error|data ?loss|lost async page write|data integrity|sct 0x2\b",
    re.IGNORECASE,
)
"""Words of errors that no site can accept, in a line of the kernel's log or in what the catalogue says of it."""


def today() -> str:
    """Return the day in UTC, "2026-12-31"."""
    return time.strftime("%Y-%m-%d", time.gmtime())


def on_node(desired: DesiredState, node: str) -> DesiredState:
    """Return the desired state with those waivers alone that have not ended and that name this node, or parts, and with
    the node's own cables."""
    desired = own_cables(desired, node)
    if not desired.waivers:
        return desired
    day = today()
    held = {
        name: waiver
        for name, waiver in desired.waivers.items()
        if waiver.until >= day and (not waiver.hosts or any(fnmatchcase(node, host) for host in waiver.hosts))
    }
    return desired if held == desired.waivers else desired.model_copy(update={"waivers": held})


def first_to_end(states: Iterable[DesiredState]) -> dict[str, Waiver]:
    """Return the waivers of all nodes by name; of several with one name, the first to end."""
    every = [entry for desired in states for entry in desired.waivers.items()]
    return dict(sorted(every, key=lambda entry: entry[1].until, reverse=True))


def own_cables(desired: DesiredState, node: str) -> DesiredState:
    """Return the desired state with the cables of this node alone."""
    if desired.rdma.cabling is None:
        return desired
    own = {node: desired.rdma.cabling.get(node, {})}
    return desired.model_copy(update={"rdma": desired.rdma.model_copy(update={"cabling": own})})


def waive(
    findings: Iterable[Finding], desired: DesiredState, state: NodeState | None, fixed: Iterable[str]
) -> list[Finding]:
    """Return a node's findings with the waived ones as advice. `desired`: from `on_node`. `fixed`: checks that no site
    can waive."""
    return [_waived(finding, desired.waivers, state, frozenset(fixed)) for finding in findings]


def covers(waiver: Waiver, state: NodeState | None, text: str) -> bool:
    """Return whether a text is about the waiver's parts alone: it names one of them that is in the node, and no other
    part. A waiver without parts covers all of its hosts."""
    if not waiver.parts:
        return True
    if state is None:
        return False
    serials = {plain(serial) for serial in waiver.parts}
    owners = parts(state)
    held = {name for name, serial in owners.items() if serial in serials}
    if not is_unreadable(state.system.board_serial) and plain(state.system.board_serial) in serials:
        return True
    named = {name for name in owners if re.search(rf"(?<![\w.:-]){re.escape(name)}(?![\w-]|[:.]\w)", text)}
    return bool(named) and named <= held and not _MORE.search(text)


def waived_lines(lines: Iterable[Line], desired: DesiredState, state: NodeState) -> tuple[dict[int, str], str | None]:
    """Return the failed lines of the kernel's log that waivers of their entry cover, by their numbers with the waivers'
    notes, and the name of the first waiver. A line of an uncorrected error, and one whose event is graver than the
    entry itself, are never waived."""
    found: dict[int, str] = {}
    first = None
    for line in lines:
        for name, waiver in desired.waivers.items():
            own = line.verdict == "fail" and not line.raised and line.name == waiver.entry
            own = own and not GRAVE.search(line.message.replace("non-fatal", ""))
            if own and covers(waiver, state, line.message):
                found.setdefault(line.number, note(name, waiver))
                first = first or name
    return found, first


def parts(state: NodeState) -> Mapping[str, str]:
    """Return the names and addresses of a node's devices, each with the serial number; "" where none was read."""
    found: dict[str, str] = {}
    gpus = [] if is_unreadable(state.gpus) else [((gpu.bdf,), gpu.serial) for gpu in state.gpus]
    nics = [] if is_unreadable(state.rdma) else [((nic.name, nic.netdev, nic.bdf), nic.guid) for nic in state.rdma]
    disks = [] if is_unreadable(state.nvme) else [((disk.name, disk.bdf), disk.serial) for disk in state.nvme]
    for names, serial in (*gpus, *nics, *disks):
        found.update({name: "" if is_unreadable(serial) else plain(serial) for name in names if isinstance(name, str)})
    return found


def note(name: str, waiver: Waiver) -> str:
    """Return what a report shows of a waiver."""
    return f"waived until {waiver.until} by {waiver.owner}: {waiver.reason} (waivers.{name})"


def _waived(finding: Finding, waivers: Mapping[str, Waiver], state: NodeState | None, fixed: frozenset[str]) -> Finding:
    if finding.verdict not in (Verdict.FAIL, Verdict.DRIFT) or not waivable(finding.name, fixed):
        return finding
    for name, waiver in waivers.items():
        text = f"{finding.name}\n{finding.actual}\n{finding.evidence}"
        if waiver.finding in (finding.name, finding.name.partition(".")[0]) and covers(waiver, state, text):
            values = {key: getattr(finding, key) for key in FIELDS}
            remedy = Remedy(text=finding.remedy.text) if finding.remedy else None
            evidence = "\n".join(filter(None, (note(name, waiver), finding.evidence)))
            return Finding(
                **{**values, "verdict": Verdict.WARN, "remedy": remedy, "evidence": evidence, "waiver": name}
            )
    return finding


FIELDS = ("name", "node", "wanted", "actual", "persisted", "reboot_pending", "unit")


def waivable(name: str, fixed: Iterable[str]) -> bool:
    """Return whether a site may waive a finding of this name."""
    return name.partition(".")[0] not in fixed and not any(fnmatchcase(name, pattern) for pattern in NOT_WAIVABLE)
