"""PCI Express access control services (ACS)."""

from __future__ import annotations

from typing import Any, List, Tuple

from ..pci import ACS_CONTROL, ACS_CONTROLS
from ..setting import NextBoot, RegisterSetting, setting
from ..tree import Tree, attempt


@setting
class PcieAcs(RegisterSetting):
    name = "pcie_acs"
    boot_key = "acs"
    doc = "Access control on PCI functions, which sends transfers between devices through the root complex"
    source = "PCI Express base specification, 7.7.8; ROCm's system optimization guides want it off"
    example = "off"
    values = "off"
    remedy = "switch PCIe ACS {} on every function"
    evidence = "PCI configuration space, ACS control"
    place = "acs.enabled"
    register = ACS_CONTROL
    absent = "off"  # a function without the capability has none to switch off
    waits = True

    def raw(self, value: str) -> str:
        return "0000"

    def part(self, tree: Tree, boot: NextBoot) -> Any:
        return attempt(self.enabled, tree)

    def enabled(self, tree: Tree) -> List[str]:
        """Return the functions (BDF) with any control on; the other bits of the register say something else."""
        return [target.split()[0] for target, word in self.read(tree, "").items() if int(word, 16) & ACS_CONTROLS]

    def summary(self, part: Any, wanted: str, cpus: int) -> Tuple[str, str]:
        more = " and {} more".format(len(part) - 4) if len(part) > 4 else ""
        return ("on", ": on at {}{}".format(", ".join(part[:4]), more)) if part else ("off", "")
