"""A kernel module that is loaded by name, in spite of a blacklist that keeps it from loading automatically."""

from __future__ import annotations

from typing import Dict, List

from ..setting import Failed, Setting, run, setting
from ..tree import Tree


@setting
class Module(Setting):
    name = "module"
    doc = "One kernel module; what no blacklist keeps from loading stands in modules-load.d instead"
    source = "modprobe(8), modprobe.d(5): a blacklist holds for aliases, and not for a module's own name"
    values = "loaded"
    details = r"\w+"
    remedy = "load {1} in spite of its blacklist"
    evidence = "/sys/module"
    step = "module"

    def files(self, detail: str) -> List[str]:
        return ["/sys/module/" + detail]

    def read(self, tree: Tree, detail: str) -> Dict[str, str]:
        return {detail: "loaded" if tree.exists("/sys/module/" + detail) else "absent"}

    def make(self, tree: Tree, detail: str, value: str) -> None:
        message = run([tree.tool("modprobe"), detail])
        if message is not None:
            raise Failed(message)
