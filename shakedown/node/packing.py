"""Compiles the sources in a folder, and puts the code of all our modules into one file: to find and read fifty of them
costs a check more than to run what is in them. Done by the very Python that will read it: whoever has made such a
folder runs the text of this file there.

The file has Python's magic number, and then how it is read (`packed.py`) and what there is to read: name of a module
-> its path, whether it is a package, its code.
"""

from __future__ import annotations

import ast
import marshal
import os
import py_compile
from _frozen_importlib_external import MAGIC_NUMBER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CodeType
    from typing import Dict, Iterable, Tuple

NAME = "modules"
_READER = "shakedown/node/packed.py"


def compiled(folder: str, name: str) -> CodeType:
    """The code of a source file. That annotations are not evaluated is asked of the compiler: as a statement it would
    load a module at every start."""
    with open(os.path.join(folder, name), "rb") as file:
        tree = ast.parse(file.read(), name)
    tree.body = [each for each in tree.body if not (isinstance(each, ast.ImportFrom) and each.module == "__future__")]
    code: CodeType = compile(tree, name, "exec", annotations.compiler_flag, dont_inherit=True, optimize=2)
    return code


def write(folder: str, names: Iterable[str]) -> None:
    """Compile these sources of a folder: our own into the one file, those of packages each into one beside it."""
    found: Dict[str, Tuple[str, bool, bytes]] = {}
    for name in names:
        if not name.endswith(".py"):
            continue
        if name.startswith("shakedown/"):
            package = name.endswith("/__init__.py")
            module = name[: -12 if package else -3].replace("/", ".")
            found[module] = (name, package, marshal.dumps(compiled(folder, name)))
        else:
            unchecked = py_compile.PycInvalidationMode.UNCHECKED_HASH
            py_compile.compile(os.path.join(folder, name), dfile=name, doraise=True, invalidation_mode=unchecked)
    with open(os.path.join(folder, NAME), "xb") as file:
        file.write(MAGIC_NUMBER + marshal.dumps((compiled(folder, _READER), found)))
