"""The agent's program: the probe's bundle, the checks with all that they import of this package, and what runs them.
The checks travel as they are; `shakedown/node/agent/models.py` stands for what is written with pydantic."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from shakedown import checks
from shakedown.catalogue.kernel import compiled
from shakedown.node.agent.models import KERNEL, STANDS_FOR
from shakedown.transport import bundle
from shakedown.transport.program import ROOT

_NODE = Path(bundle.__file__).parents[1] / "node"
_CHECKS = Path(checks.__file__).parent
# They compare nodes with each other.
ONLY_ON_THE_CONTROLLER = {"examination", "fleet", "fleet_facts", "machines"}
# Of shakedown/node, besides what the probe consists of; and what the agent imports besides the checks.
_MORE = ("safe_files.py",)
_START = ("shakedown/agent/__init__.py", "shakedown/agent/on_node.py")
_CALLED = ("shakedown.state.findings", "shakedown.common.text")


@cache
def build() -> bundle.Bundle:
    """All files by path, with their digest. Raise BundleError, and ValueError for a check that no node could import."""
    files = dict(bundle.build().files)
    start = [ROOT / name for name in _START]
    for path in [
        *start,
        *(_NODE / name for name in _MORE),
        *sorted((_NODE / "agent").glob("*.py")),
        *carried(),
        *_CHECKS.glob("*.json"),
    ]:
        files[str(path.relative_to(ROOT))] = path.read_bytes()
    files[f"shakedown/node/agent/{KERNEL}"] = json.dumps(compiled(), sort_keys=True).encode()
    return bundle.Bundle(files, bundle.files_digest(files))


@cache
def carried() -> tuple[Path, ...]:
    """Return the modules of the checks, and those that they import."""
    found: set[Path] = set()
    waiting = {path for path in _CHECKS.glob("*.py") if path.stem not in ONLY_ON_THE_CONTROLLER}
    waiting |= {path for name in _CALLED if (path := _path(name))}
    while waiting:
        found |= waiting
        names = {name for path in waiting for name in _imports(ast.parse(path.read_text("utf-8")).body)}
        if "typing_extensions" in names:
            raise ValueError("a check imports typing_extensions, which no node has")
        own = {name for name in names if name.startswith("shakedown.") and not _is_there(name)}
        waiting = {path for name in own if (path := _path(name))} - found
    return tuple(sorted(found))


def _is_there(module: str) -> bool:
    """Tell whether a node has a module anyway: it is one of the probe's, or `models.py` stands for it."""
    return f"{module}.".startswith("shakedown.node.") or module in STANDS_FOR


def _imports(statements: list[ast.stmt]) -> Iterator[str]:
    """Yield the modules that statements import, inside functions too, but not those for the type checker."""
    for statement in statements:
        if isinstance(statement, ast.If) and isinstance(statement.test, ast.Name):
            continue  # TYPE_CHECKING
        for node in ast.walk(statement):
            if isinstance(node, ast.ImportFrom) and node.module:
                yield node.module
                yield from (f"{node.module}.{alias.name}" for alias in node.names)
            elif isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)


def _path(module: str) -> Path | None:
    """Return the file of a module of this package; None: the name is no module's."""
    path = ROOT / module.replace(".", "/")
    return next((file for file in (path.with_suffix(".py"), path / "__init__.py") if file.exists()), None)
