"""Which device a node lacks: the one whose PCI address the other nodes of its group have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from shakedown.state.findings import Finding, Verdict
from shakedown.state.node import NodeState, is_unreadable

MISSING = "missing beside the other nodes: "
"""In the evidence, before the addresses."""
_COUNTS = {"gpu_count": "gpus", "rdma_count": "rdma"}


def name_missing(
    states: Mapping[str, NodeState], groups: Mapping[str, str], findings: dict[str, list[Finding]]
) -> None:
    """Add the addresses of missing devices to the evidence of the counts that failed, where the other nodes agree."""
    for node, state in states.items():
        for place, finding in enumerate(findings[node]):
            devices = _COUNTS.get(finding.name)
            if devices is None or finding.verdict != Verdict.FAIL:
                continue
            peers = [other for name, other in states.items() if name != node and groups.get(name) == groups.get(node)]
            held, usual = _addresses(state, devices), _usual(peers, devices, finding.wanted)
            lost = sorted(usual - held)
            if held < usual and len(lost) == finding.wanted - finding.actual:
                evidence = f"{finding.evidence}; {MISSING}{', '.join(lost)}"
                findings[node][place] = finding.model_copy(update={"evidence": evidence})


def _usual(peers: list[NodeState], devices: str, count: int) -> frozenset[str]:
    """Return the addresses that more than half of the nodes with all devices have; none where they do not agree."""
    full = [addresses for peer in peers if len(addresses := _addresses(peer, devices)) == count]
    usual, times = Counter(full).most_common(1)[0] if full else (frozenset[str](), 0)
    return usual if 2 * times > len(full) else frozenset()


def _addresses(state: NodeState, devices: str) -> frozenset[str]:
    found = getattr(state, devices)
    return frozenset() if is_unreadable(found) else frozenset(device.bdf for device in found if device.bdf)
