"""The CPUs' frequency governor."""

from __future__ import annotations

from typing import Any, Dict, Tuple

from ..setting import CpuSetting, NextBoot, setting
from ..tree import Tree, attempt


@setting
class CpuGovernor(CpuSetting):
    name = "cpu_governor"
    doc = "Governor of every CPU that is online; which there are depends on the kernel's cpufreq driver"
    source = "Linux, Documentation/admin-guide/pm/cpufreq.rst; ROCm's system optimization guides want `performance`"
    example = "performance"
    values = r"\w+"
    remedy = "set the governor {} on every CPU"
    file = "cpufreq/scaling_governor"
    evidence = "/sys/devices/system/cpu/cpu*/cpufreq/scaling_governor"
    place = "cpu.governors"

    def part(self, tree: Tree, boot: NextBoot) -> Any:
        return attempt(self.counts, tree)

    def counts(self, tree: Tree) -> Dict[str, int]:
        """Map each governor to its number of CPUs."""
        governors = list(self.read(tree, "").values())
        return {governor: governors.count(governor) for governor in dict.fromkeys(governors)}

    def summary(self, part: Any, wanted: str, cpus: int) -> Tuple[str, str]:
        others = [
            "{} CPUs {}".format(count, governor) for governor, count in sorted(part.items()) if governor != wanted
        ]
        running = wanted if part and not others else ", ".join(sorted(part))
        return running, ": " + ", ".join(others) if others else ""
