"""Imports point one way: each room imports only from those below it, also inside functions and for types."""

from __future__ import annotations

import ast
import importlib.util
import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest

import shakedown

PACKAGE = Path(shakedown.__file__).parent
ROOT = PACKAGE.parent
# From the bottom up, a line for each floor. A room is a folder or a module of the package, or a folder at the top; it
# imports only from those below it. `node.agent` runs on a node what `checks` has brought there.
LEVELS = (
    ("common",),
    ("node",),
    ("state",),
    ("catalogue",),
    ("transport",),
    ("schedulers",),
    ("hosts",),
    ("logs",),
    ("evidence",),
    ("desired",),
    ("recipes",),
    ("jobs",),
    ("checks",),
    ("gates",),
    ("agent",),
    ("trials",),
    ("facts",),
    ("operations",),
    ("runs",),
    ("service", "isolation"),
    ("ledger",),
    ("report",),
    ("runner",),
    ("cli",),
    ("deploy", "inventories", "site"),  # what a site has, too
)
LEVEL = {room: level for level, rooms in enumerate(LEVELS) for room in rooms}
WITH_PYINFRA = {"facts", "operations", "runner", "cli"}
TRANSPORT = {"pyinfra", "pyinfra_cli", "gevent", "paramiko"}
LINKS = {"facts", "operations"}  # folders at the top, and links to them in the package
FILES = sorted(
    file
    for folder in (PACKAGE, *(PACKAGE / link for link in LINKS), ROOT / "deploy", ROOT / "inventories")
    for file in folder.rglob("*.py")
)


def name_of(file: Path) -> str:
    return ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def room_of(module: str) -> str:
    """Return the room of a module; of the package's own `__init__`, which is loaded before all else, the lowest."""
    top, _, rest = module.partition(".")
    room = (rest.partition(".")[0] or LEVELS[0][0]) if top == "shakedown" else top
    assert room in LEVEL, f"{module} is in no room: enter it in LEVELS"
    return room


def imports_of(text: str, module: str, package: bool = False) -> Iterator[str]:
    """What a file imports, wherever in it: absolute names of modules, or of what is in them."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = module.split(".")[: len(module.split(".")) - node.level + package] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            yield from (f"{base}.{alias.name}" for alias in node.names)


@cache
def imports_in(file: Path) -> tuple[str, ...]:
    """The same of a file."""
    return tuple(imports_of(file.read_text("utf-8"), name_of(file), file.name == "__init__.py"))


def upwards(names: Iterable[str], module: str) -> list[str]:
    """Those of a module's imports that do not lead down."""
    room = room_of(module)
    wrong = []
    for name in names:
        if name.split(".")[0] not in ("shakedown", "deploy", "inventories", "tests", "bench"):
            continue
        if name.split(".")[0] in ("tests", "bench"):
            wrong.append(name)
            continue
        other = room_of(name)
        if other != room and LEVEL[other] >= LEVEL[room]:
            wrong.append(name)
    return wrong


def test_imports_point_one_way() -> None:
    assert len(FILES) > 200, "the search works"
    found = {file: upwards(imports_in(file), name_of(file)) for file in FILES}
    assert {file: names for file, names in found.items() if names} == {}


WRITTEN = re.compile(rf"^\s*(?:from|import)\b.*\b(?:{'|'.join(LINKS)})\b", re.MULTILINE)


def test_the_folders_at_the_top_are_imported_through_the_package() -> None:
    """`import facts` would work in a checkout alone, and make a second module of it there."""
    assert all((PACKAGE / link).resolve() == ROOT / link for link in LINKS)
    found = {
        (file, name)
        for file in [*FILES, *(ROOT / "tests").rglob("*.py"), *(ROOT / "bench").rglob("*.py")]
        if "data" not in file.parts and WRITTEN.search(file.read_text("utf-8"))
        for name in imports_in(file)
        if name.split(".")[0] in LINKS
    }
    assert found == set()


def test_only_what_runs_on_pyinfra_knows_it() -> None:
    found = {file: {name.split(".")[0] for name in imports_in(file)} & TRANSPORT for file in FILES}
    assert {room_of(name_of(file)) for file, names in found.items() if names} == WITH_PYINFRA


def test_a_module_that_is_in_no_room_is_named() -> None:
    with pytest.raises(AssertionError, match=r"shakedown\.attic"):
        room_of("shakedown.attic")


@pytest.mark.parametrize(
    ("module", "text"),
    [
        ("shakedown.state.node", "from shakedown.recipes import recipe"),
        ("shakedown.state.node", "def f():\n    import shakedown.runner.engine"),
        (
            "shakedown.desired.models",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from shakedown import runs",
        ),
        ("shakedown.node.probe", "from ..state import node"),
        ("shakedown.node.launcher.commands", "from shakedown.logs.iterations import parse"),
        ("shakedown.runner.stages", "from shakedown.cli import nodes"),
        ("shakedown.cli.commands.run", "import deploy.megatron"),
        ("shakedown.checks.gpu", "from shakedown import gates"),
        ("shakedown.checks.gpu", "from tests import states"),
    ],
)
def test_an_import_upwards_would_be_found(module: str, text: str) -> None:
    assert upwards(imports_of(text, module), module)


def test_modules_that_are_named_and_not_imported_are_there() -> None:
    """They would be named for nothing after a move."""
    from shakedown.runner.ending import _NO_CHANGE

    assert all(importlib.util.find_spec(name.removesuffix(".")) for name in _NO_CHANGE)
