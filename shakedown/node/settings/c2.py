"""The CPUs' idle state C2."""

from __future__ import annotations

from typing import Any, Tuple

from ..setting import CpuSetting, NextBoot, setting
from ..tree import Tree, Unreadable, attempt


@setting
class C2(CpuSetting):
    name = "c2"
    doc = "Whether CPUs that are online may enter idle state 2, which takes hundreds of microseconds to leave"
    source = "Linux, Documentation/admin-guide/pm/cpuidle.rst; ROCm's system optimization guides want it disabled"
    example = "disabled"
    document = "system-optimization"
    values = "disabled|enabled"
    remedy = "{} idle state C2 on every CPU"
    file = "cpuidle/state2/disable"
    evidence = "/sys/devices/system/cpu/cpu*/cpuidle/state2/disable"
    place = "cpu.c2_enabled"

    def text(self, value: str, detail: str = "") -> str:
        return super().text(value[:-1])

    def raw(self, value: str) -> str:
        return "1" if value == "disabled" else "0"

    def part(self, tree: Tree, boot: NextBoot) -> Any:
        return attempt(self.enabled, tree)

    def enabled(self, tree: Tree) -> int:
        """Count the CPUs whose idle state 2 is not disabled. Unreadable without CPUs, or where one answers neither 0
        nor 1."""
        found = self.read(tree, "")
        if not found:
            raise Unreadable("missing", self.evidence)
        for path, word in found.items():
            if word not in ("0", "1"):
                raise Unreadable("malformed", "{}: {}".format(path, word))
        return list(found.values()).count("0")

    def summary(self, part: Any, wanted: str, cpus: int) -> Tuple[str, str]:
        return ("enabled", ": enabled on {} of {} CPUs".format(part, cpus)) if part else ("disabled", "")
