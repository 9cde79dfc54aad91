"""Finds and loads the modules that stand in one file (`packing.py`). Its own code stands at that file's beginning."""

from __future__ import annotations

import gc
import marshal
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any, Dict, Optional, Tuple


class Packed:
    """An importer of what was found in the file of a folder."""

    def __init__(self, folder: str, found: Dict[str, Tuple[str, bool, bytes]]) -> None:
        self.folder, self.found = folder, found

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name not in self.found:
            return None
        from _frozen_importlib import ModuleSpec

        file, package, _ = self.found[name]
        origin = self.folder + "/" + file
        spec = ModuleSpec(name, self, origin=origin, is_package=package)  # type: ignore[arg-type]
        if package:
            spec.submodule_search_locations = [origin.rpartition("/")[0]]
        return spec

    def create_module(self, spec: Any) -> Optional[ModuleType]:
        return None

    def exec_module(self, module: ModuleType) -> None:
        file, _, code = self.found[module.__name__]
        module.__file__ = self.folder + "/" + file
        exec(marshal.loads(code), module.__dict__)


def use(folder: str, found: Dict[str, Tuple[str, bool, bytes]]) -> None:
    """Have imports find them, before all others."""
    gc.disable()  # the process lives for a moment
    sys.meta_path.insert(0, Packed(folder, found))
