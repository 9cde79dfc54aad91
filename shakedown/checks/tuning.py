"""Kernel settings: NUMA balancing, sysctls, CPU governor, idle state C2, transparent huge pages (FIELD_NOTES, 1)."""

from __future__ import annotations

from shakedown.checks import check
from shakedown.checks.compare import compare_setting
from shakedown.desired.models import DesiredState
from shakedown.findings import Finding, Remedy, Verdict
from shakedown.state import NodeState, is_unreadable

NUMA_BALANCING = "/proc/sys/kernel/numa_balancing, sysctl.d"


@check("numa_balancing")
def numa_balancing(desired: DesiredState, state: NodeState, node: str) -> Finding | None:
    """A kernel without NUMA balancing is satisfied: there is nothing to switch off."""
    wanted = desired.tuning.numa_balancing
    if wanted is None:
        return None
    running = state.numa.balancing.running
    if not wanted and is_unreadable(running) and running.unreadable == "missing":
        evidence = "/proc/sys/kernel/numa_balancing: not there, a kernel without it"
        return Finding(
            name="numa_balancing", node=node, verdict=Verdict.OK, wanted="0", actual="absent", evidence=evidence
        )
    remedy = Remedy(
        text=f"switch automatic NUMA balancing {'on' if wanted else 'off'}, now and at boot",
        operation="tuning.numa_balancing",
        arguments={"enabled": wanted},
    )
    return compare_setting(
        "numa_balancing", node, str(int(wanted)), state.numa.balancing, evidence=NUMA_BALANCING, remedy=remedy
    )
