"""What decides about a setting at the next boot: our unit, the boot loader's kernel parameters, sysctl.d."""

from __future__ import annotations

from typing import Optional

from . import sysctl
from .bootunit import setting_at_boot
from .cmdline import argument
from .tree import Part, Tree


class NextBoot:
    """Each method answers for one key, None where nothing is written down, and raises what reading it raises."""

    def __init__(self, tree: Tree, unit: Part, parameters: object, systemd: bool) -> None:
        self._tree, self._unit, self._parameters, self._systemd = tree, unit, parameters, systemd
        self._assignments: Optional[list[sysctl.Assignment]] = None

    def unit(self, key: str) -> Optional[str]:
        return setting_at_boot(self._unit, key)

    def parameter(self, name: str) -> Optional[str]:
        """Return a parameter's value. A boot loader that cannot be read counts as one without the parameter."""
        return argument(self._parameters, name)

    def sysctl(self, key: str) -> Optional[str]:
        if self._assignments is None:
            self._assignments = sysctl.assignments(self._tree, self._systemd)
        return sysctl.effective(self._assignments, (key,))[key]
