"""Kernel modules: loaded or built in now, and loaded at every boot."""

from __future__ import annotations

from collections.abc import Iterator

from shakedown.checks import check
from shakedown.checks.compare import at_boot, compare_setting, remedy_of, unknown
from shakedown.desired.models import DesiredState
from shakedown.node.cmdline import kernel_name
from shakedown.node.settings import SETTINGS
from shakedown.state.findings import Comparison, Remedy, Verdict
from shakedown.state.node import NodeState, Setting, is_unreadable


@check("modules", "tuning.modules", "gpu.modules", "rdma.modules")
def modules(desired: DesiredState, state: NodeState) -> Iterator[Comparison]:
    """One finding per module that the tuning, the GPUs or the RDMA devices need."""
    wanted = [*desired.tuning.modules, *desired.gpu.modules, *desired.rdma.modules]
    for module in dict.fromkeys(map(kernel_name, wanted)):
        yield _module(module, state).about(module)


def _module(module: str, state: NodeState) -> Comparison:
    if module in state.modules.builtin:
        evidence = "modules.builtin"
        return Comparison(verdict=Verdict.OK, wanted="loaded", actual="built in", evidence=evidence)
    if is_unreadable(state.modules.loaded):
        return unknown("loaded", state.modules.loaded, evidence="/proc/modules")
    running = "loaded" if module in state.modules.loaded else "absent"
    if module in state.modules.blacklisted:
        # systemd-modules-load obeys a blacklist, our unit loads by name.
        evidence = f"/proc/modules; {module} is blacklisted (modprobe.d or modprobe.blacklist=)"
        known = SETTINGS["module"]
        setting = Setting(running=running, persisted=at_boot(state.boot_unit, f"{known.key()}.{module}"))
        remedy = remedy_of(known, "loaded", state, right_now=running == "loaded", detail=module)
        return compare_setting("loaded", setting, evidence=evidence, remedy=remedy)
    persisted = "loaded" if module in state.modules.persisted else None
    remedy = Remedy(text=f"load {module}, now and at boot", operation="tuning.modules", arguments={"modules": [module]})
    evidence = "/proc/modules, modules-load.d"
    return compare_setting("loaded", Setting(running=running, persisted=persisted), evidence=evidence, remedy=remedy)
