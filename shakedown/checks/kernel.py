"""The kernel's log since boot, held against the catalogue and, where a line has no entry, against other nodes."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping

from shakedown.catalogue.kernel import matcher
from shakedown.checks import check_wanted
from shakedown.checks.compare import comparison, unknown
from shakedown.checks.waivers import waived_lines
from shakedown.common.text import counted, printable
from shakedown.desired.hca import devices_of
from shakedown.desired.models import DesiredState
from shakedown.node.kernel_verdict import Line, judge
from shakedown.state.findings import Comparison, Finding, Remedy, Risk, Verdict
from shakedown.state.node import NodeState, is_unreadable

_WANTED = "no fault since boot"
_SHOWN, _LONGEST = 3, 300  # lines of a verdict, and characters of a line
_NO_ENTRY = "read the lines with dmesg -T: the catalogue has no entry for them; a reboot clears the log"


@check_wanted("kernel_log", "system.kernel_log_clean", follows=("gpu_*/part", "rdma_*/part"), waivable=False)
def kernel_log(desired: DesiredState, state: NodeState, _wanted: bool) -> Comparison | None:
    """No fault in the kernel's log since boot: no line that the catalogue knows as one, no unknown line of priority 0
    to 2. A corrected error warns, and so does an unknown line of priority 3. Of links those of RDMA devices count that
    are still down."""
    records = state.kernel_log.records
    if is_unreadable(records):
        return unknown(_WANTED, records)
    lines = judge(matcher(), records, links_in_use(desired, state), settled=True)
    waived, name = waived_lines(lines, desired, state)
    failed = [line for line in lines if line.verdict == "fail" and line.number not in waived]
    warned = [line for line in lines if line.verdict == "warn" or line.number in waived]
    others = [line for line in lines if line.verdict == "ok"]
    worst = failed or warned
    parts = [*dict.fromkeys(waived.values()), _shown(failed), _shown(warned), _shown(others, "a program's fault: ")]
    return Comparison(
        verdict=Verdict.FAIL if failed else Verdict.WARN if warned else Verdict.OK,
        wanted=_WANTED,
        actual=_counts(len(failed), len(warned)) if worst else _WANTED,
        evidence="\n".join(part for part in parts if part),
        remedy=Remedy(text=worst[-1].remedy or _NO_ENTRY, risk=Risk.REBOOT) if worst else None,
        waiver=name if not failed else None,
    )


def links_in_use(desired: DesiredState, state: NodeState) -> set[str] | None:
    """Return the names and PCI addresses of the ports that carry RDMA, less those whose link is up now; None where
    which they are is unknown."""
    if is_unreadable(state.rdma):
        return None
    up = set() if is_unreadable(state.interfaces) else {link.name for link in state.interfaces if link.up}
    used: set[str] = set()
    for device in devices_of(desired.rdma, state.rdma):
        names = {name for name in (device.name, device.netdev, device.bdf) if isinstance(name, str)}
        if device.state != "ACTIVE" and not names & up:
            used |= names
    return used


def _counts(failed: int, warned: int) -> str:
    parts = [counted(failed, "line") + " of a fault"] if failed else []
    return " and ".join([*parts, counted(warned, "line") + " of a warning"] if warned else parts)


def _shown(lines: list[Line], before: str = "") -> str:
    """Return the newest lines, each kind once."""
    kinds = {line.name or line.form: line for line in lines}
    newest = sorted(kinds.values(), key=lambda line: line.number)[-_SHOWN:]
    more = f"\nand {len(kinds) - len(newest)} more kinds of line" if len(kinds) > len(newest) else ""
    return "\n".join(before + printable(str(line), _LONGEST) for line in newest) + more


PEERS = 4  # fewer other nodes show nothing
SHARE = 0.1  # of the other nodes: a form that as many have is usual in the group
_REMEDY = Remedy(
    text="read the lines around it (dmesg -T); where the line is harmless, add an entry: docs/reference/catalogue.md"
)


def own_lines(
    states: Mapping[str, NodeState], groups: Mapping[str, str], desired: Mapping[str, DesiredState]
) -> list[Finding]:
    """Return a finding `fleet.kernel_log` for each node with an error line (priority 3) without an entry, of a form
    that fewer than a tenth of at least four other nodes of the group have. What such a line means is unknown."""
    members: dict[str, dict[str, dict[str, str]]] = defaultdict(dict)
    for node, state in states.items():
        if node in desired and desired[node].system.kernel_log_clean and not is_unreadable(state.kernel_log.records):
            members[groups.get(node, "")][node] = _forms(desired[node], state)
    findings = []
    for nodes in members.values():
        peers = len(nodes) - 1
        count = Counter(form for forms in nodes.values() for form in forms)
        if peers >= PEERS:
            for node, forms in nodes.items():
                alone = [line for form, line in forms.items() if (count[form] - 1) / peers < SHARE]
                findings += [_finding(node, alone, peers)] if alone else []
    return findings


def _forms(desired: DesiredState, state: NodeState) -> dict[str, str]:
    """Return the forms of the node's unknown error lines, with the newest line of each."""
    records = state.kernel_log.records
    assert not is_unreadable(records)
    lines = judge(matcher(), records, links_in_use(desired, state), settled=True)
    return {line.form: line.message for line in lines if line.verdict == "warn" and not line.known}


def _finding(node: str, lines: list[str], peers: int) -> Finding:
    shown = "\n".join(printable(line, _LONGEST) for line in lines[-_SHOWN:])
    wanted = "no unknown error line that the other nodes lack"
    actual = f"{counted(len(lines), 'form')} of line that fewer than {SHARE:.0%} of {peers} other nodes have"
    return comparison(Verdict.UNKNOWN, wanted, actual, shown, _REMEDY).finding("fleet.kernel_log", node)
