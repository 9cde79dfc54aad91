"""Which device a node lacks, and since when: the device whose PCI address the other nodes of its group have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import datetime, timezone

from shakedown.catalogue.kernel import matcher
from shakedown.node.kernel_verdict import judge
from shakedown.state.findings import Finding, Verdict
from shakedown.state.node import NodeState, is_unreadable

MISSING = "missing beside the other nodes: "
"""In the evidence, before the addresses."""
LOGGED = "in the kernel's log: "
"""In the evidence, before what the log says of these addresses."""
_COUNTS = {"gpu_count": "gpus", "rdma_count": "rdma"}
_NOUNS = {"gpu_count": "GPUs", "rdma_count": "RDMA devices"}
_LEFT = "gpu_lost"  # the catalogue's entry of a device that has left the bus; any other fault may be the first sign


def name_missing(
    states: Mapping[str, NodeState], groups: Mapping[str, str], findings: dict[str, list[Finding]]
) -> None:
    """Add the addresses of missing devices to the evidence of the counts that failed, where the other nodes agree, and
    what the kernel's log says of them."""
    for node, state in states.items():
        for place, finding in enumerate(findings[node]):
            devices = _COUNTS.get(finding.name)
            if devices is None or finding.verdict != Verdict.FAIL:
                continue
            peers = [other for name, other in states.items() if name != node and groups.get(name) == groups.get(node)]
            held, usual = _addresses(state, devices), _usual(peers, devices, finding.wanted)
            lost = sorted(usual - held)
            if held < usual and len(lost) == finding.wanted - finding.actual:
                events = ", ".join(_events(state, lost))
                logged = f"; {LOGGED}{events}" if events else ""
                evidence = f"{finding.evidence}{logged}; {MISSING}{', '.join(lost)}"
                findings[node][place] = finding.model_copy(update={"evidence": evidence})


def missing_devices(finding: Finding) -> list[str]:
    """Return the addresses of the missing devices that the evidence of a finding names."""
    return [address for address in finding.evidence.partition(MISSING)[2].split(", ") if address]


def in_words(finding: Finding) -> str:
    """Return which devices of how many are missing, and since when: "7 of 8 GPUs: 0000:c5:00.0 left the bus at 09:41".
    The zone stands in the evidence: a line has no room for it."""
    _, there, events = finding.evidence.partition(LOGGED)
    events = events.partition(f"; {MISSING}")[0]
    others = [address for address in missing_devices(finding) if not there or address not in events]
    plain = f"{', '.join(others)} {'are' if len(others) > 1 else 'is'} missing" if others else ""
    count = f"{finding.actual} of {finding.wanted} {_NOUNS[finding.name]}"
    return f"{count}: {', '.join(part for part in (events.replace(' UTC', ''), plain) if part)}"


def _events(state: NodeState, addresses: list[str]) -> Iterator[str]:
    """Yield when a device left the bus, by the newest line that says so, else from when on it failed."""
    records, clock = state.kernel_log.records, state.system.monotonic_s
    if is_unreadable(records) or is_unreadable(clock):
        return
    seconds = {record.number: record.seconds for record in records}
    lines = [line for line in judge(matcher(), records) if line.verdict == "fail"]
    for address in addresses:
        of_device = [line for line in lines if address in line.message]
        left = [line for line in of_device if line.name == _LEFT]
        if of_device:
            at = state.system.epoch_s - clock + seconds[(left or of_device)[-1 if left else 0].number]
            yield f"{address} {'left the bus at' if left else 'has failed since'} {_clock(at, state.system.epoch_s)}"


def _clock(at: float, now: float) -> str:
    """Return a moment as people say it on the day of the reading."""
    utc = timezone.utc  # noqa: UP017 - datetime.UTC is newer than the oldest Python of a node
    moment, today = datetime.fromtimestamp(at, utc), datetime.fromtimestamp(now, utc).date()
    return f"{moment:%H:%M} UTC" if moment.date() == today else f"{moment:%Y-%m-%d %H:%M} UTC"


def _usual(peers: list[NodeState], devices: str, count: int) -> frozenset[str]:
    """Return the addresses that more than half of the nodes with all devices have; none where they do not agree."""
    full = [addresses for peer in peers if len(addresses := _addresses(peer, devices)) == count]
    usual, times = Counter(full).most_common(1)[0] if full else (frozenset[str](), 0)
    return usual if 2 * times > len(full) else frozenset()


def _addresses(state: NodeState, devices: str) -> frozenset[str]:
    found = getattr(state, devices)
    return frozenset() if is_unreadable(found) else frozenset(device.bdf for device in found if device.bdf)
