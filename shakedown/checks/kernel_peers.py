"""Error lines of the kernel that no entry of the catalogue names, and that the other nodes do not have."""

from collections import Counter, defaultdict
from collections.abc import Mapping

from shakedown.catalogue.kernel import matcher
from shakedown.checks.kernel import links_in_use
from shakedown.common.text import counted, printable
from shakedown.desired.models import DesiredState
from shakedown.node.kernel_verdict import judge
from shakedown.state.findings import Finding, Remedy, Verdict
from shakedown.state.node import NodeState, is_unreadable

PEERS = 4  # fewer other nodes show nothing
SHARE = 0.1  # of the other nodes: a form that as many have is usual in the group
_SHOWN, _LONGEST = 3, 300
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
    return Finding(
        name="fleet.kernel_log",
        node=node,
        verdict=Verdict.UNKNOWN,
        wanted="no unknown error line that the other nodes lack",
        actual=f"{counted(len(lines), 'form')} of line that fewer than {SHARE:.0%} of {peers} other nodes have",
        evidence=shown,
        remedy=_REMEDY,
    )
