"""Kernel settings: NUMA balancing, sysctls, CPU governor, idle state C2, transparent huge pages."""

from __future__ import annotations

from collections.abc import Iterator

from shakedown.checks import check
from shakedown.checks.compare import at_boot, boot_remedy, compare_setting, unknown
from shakedown.desired.models import DesiredState
from shakedown.findings import Finding, Remedy, Verdict
from shakedown.node.sysctl import proc_path
from shakedown.state import NodeState, Setting, is_unreadable

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


@check("sysctl")
def sysctl(desired: DesiredState, state: NodeState, node: str) -> Iterator[Finding]:
    """One finding per key."""
    for key, value in desired.tuning.sysctl.items():
        name, wanted = f"sysctl.{key}", " ".join(str(value).split())
        evidence = f"{proc_path(key)}, sysctl.d"
        if key not in state.sysctl:
            evidence = f"{key} is not among the keys that the probe reads"
            yield Finding(name=name, node=node, verdict=Verdict.UNKNOWN, wanted=wanted, evidence=evidence)
            continue
        remedy = Remedy(
            text=f"set {key} to {wanted}, now and at boot",
            operation="tuning.sysctl",
            arguments={"key": key, "value": wanted},
        )
        yield compare_setting(name, node, wanted, state.sysctl[key], evidence=evidence, remedy=remedy)


@check("cpu_governor")
def cpu_governor(desired: DesiredState, state: NodeState, node: str) -> Finding | None:
    """Every CPU that is online. A machine without cpufreq may be slowed by something that cannot be seen: unknown."""
    wanted = desired.tuning.cpu_governor
    if wanted is None:
        return None
    governors = state.cpu.governors
    evidence = "/sys/devices/system/cpu/cpu*/cpufreq/scaling_governor"
    if is_unreadable(governors):
        return unknown("cpu_governor", node, wanted, governors, evidence=evidence)
    others = {governor: count for governor, count in governors.items() if governor != wanted}
    if others:
        evidence += f": {', '.join(f'{count} CPUs {governor}' for governor, count in sorted(others.items()))}"
    running = wanted if not others and governors else ", ".join(sorted(governors))
    setting = Setting(running=running, persisted=at_boot(state.boot_unit, "cpu_governor"))
    right = running == wanted
    remedy = boot_remedy(f"governor {wanted} on every CPU", {"cpu_governor": wanted}, state, right_now=right)
    return compare_setting("cpu_governor", node, wanted, setting, evidence=evidence, remedy=remedy)


@check("c2")
def c2(desired: DesiredState, state: NodeState, node: str) -> Finding | None:
    """Idle state 2 is off on every CPU. Without cpuidle nobody knows what the CPUs do when idle: unknown."""
    wanted = desired.tuning.c2
    if wanted is None:
        return None
    enabled = state.cpu.c2_enabled
    evidence = "/sys/devices/system/cpu/cpu*/cpuidle/state2/disable"
    if is_unreadable(enabled):
        return unknown("c2", node, wanted, enabled, evidence=evidence)
    if enabled:
        evidence += f": enabled on {enabled} of {state.cpu.count} CPUs"
    setting = Setting(running="enabled" if enabled else "disabled", persisted=at_boot(state.boot_unit, "c2"))
    right = setting.running == wanted
    remedy = boot_remedy("disable idle state C2 on every CPU", {"c2": wanted}, state, right_now=right)
    return compare_setting("c2", node, wanted, setting, evidence=evidence, remedy=remedy)


@check("thp")
def thp(desired: DesiredState, state: NodeState, node: str) -> Finding | None:
    """Transparent huge pages."""
    wanted = desired.tuning.thp
    if wanted is None:
        return None
    evidence = "/sys/kernel/mm/transparent_hugepage/enabled"
    right = state.memory.thp.running == wanted
    remedy = boot_remedy(f"transparent huge pages: {wanted}", {"thp": wanted}, state, right_now=right)
    return compare_setting("thp", node, wanted, state.memory.thp, evidence=evidence, remedy=remedy)
