"""Transparent huge pages."""

from __future__ import annotations

from typing import Dict, Optional

from ..setting import FileSetting, NextBoot, setting
from ..tree import Tree, Unreadable


@setting
class Thp(FileSetting):
    name = "thp"
    doc = "Whether the kernel backs anonymous memory with huge pages by itself"
    source = "Linux, Documentation/admin-guide/mm/transhuge.rst; ROCm's system optimization guides want `always`"
    example = "always"
    values = "always|madvise|never"
    remedy = "set transparent huge pages to {}"
    path = evidence = "/sys/kernel/mm/transparent_hugepage/enabled"
    place = "memory.thp"

    def read(self, tree: Tree, detail: str) -> Dict[str, str]:
        found, text = super().read(tree, detail), tree.text(self.path)
        if "[{}]".format(found[self.path]) not in text:
            raise Unreadable("malformed", "{}: {}".format(self.path, text))
        return found

    def at_boot(self, boot: NextBoot) -> Optional[str]:
        return boot.unit("thp") or boot.parameter("transparent_hugepage")
