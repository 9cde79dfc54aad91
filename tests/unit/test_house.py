"""The house stays simple to read: few rooms, short modules, imports at the top, nouns for names."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import shakedown

PACKAGE = Path(shakedown.__file__).parent
FILES = sorted(
    file
    for folder in (PACKAGE, PACKAGE / "facts", PACKAGE / "operations")  # the last two are links, which rglob passes by
    for file in folder.rglob("*.py")
)
# Work with the ledger or not at all: the commands say which extra they need, and the others are loaded by `service`.
OF_THE_LEDGER = {
    *(f"cli/commands/{name}.py" for name in ("calibrate", "history", "ledger", "reliability", "service")),
    *(f"runner/repair/{name}.py" for name in ("call", "drains", "escalation")),
}
NO_NOUNS = {"told", "its", "said", "asked", "each"}
ON_DISK = {"asked"}  # a field of run.json


@pytest.fixture(scope="module")
def trees() -> dict[Path, ast.AST]:
    """What Python reads in every module. No longer than these tests: so many objects slow Python's collector down."""
    return {file: ast.parse(file.read_text("utf-8")) for file in FILES}


def identifiers(tree: ast.AST) -> Iterator[str]:
    """Yield the name of every variable, argument, attribute, function and class."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.arg(arg=name) | ast.keyword(arg=str(name)):
                yield name


def late_imports(tree: ast.AST) -> set[ast.AST]:
    """Return the imports inside functions."""
    functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return {node for part in functions for node in ast.walk(part) if isinstance(node, ast.Import | ast.ImportFrom)}


def test_there_are_few_rooms() -> None:
    """A new one needs a reason in docs/developers/rooms.md."""
    entries = {path.name for path in PACKAGE.iterdir() if path.name != "__pycache__"}
    assert len(entries) <= 28, entries


def test_a_module_fits_a_readers_head() -> None:
    lengths = {file: file.read_text("utf-8").count("\n") for file in FILES}
    assert {file: length for file, length in lengths.items() if length > 400} == {}


def test_modules_import_at_the_top(trees: dict[Path, ast.AST]) -> None:
    """The others save more than 50 ms of start-up, or are optional. A workload's torch is on the nodes alone."""
    ours = {file: tree for file, tree in trees.items() if "workload" not in file.parts}
    late = {file: len(imports) for file, tree in ours.items() if (imports := late_imports(tree))}
    assert len(FILES) > 400 and sum(late.values()) <= 60, late


def test_a_plain_install_loads_no_database(trees: dict[Path, ast.AST]) -> None:
    """SQLAlchemy is an extra: `from shakedown import ledger as memory` loads what needs it on first use."""
    imports = {
        file: {node.module for node in tree.body if isinstance(node, ast.ImportFrom)}
        for file, tree in trees.items()
        if isinstance(tree, ast.Module)
    }
    ledger = {f"shakedown.ledger.{file.stem}": file for file in imports if file.parent == PACKAGE / "ledger"}
    needing = {name for name, file in ledger.items() if any("sqlalchemy" in (of or "") for of in imports[file])}
    while more := {name for name, file in ledger.items() if imports[file] & needing} - needing:
        needing |= more
    found = {
        str(file.relative_to(PACKAGE)) for file, of in imports.items() if of & needing and file not in ledger.values()
    }
    assert len(needing) > 3 and found <= OF_THE_LEDGER, found - OF_THE_LEDGER


def test_names_are_nouns(trees: dict[Path, ast.AST]) -> None:
    found = {file: names for file, tree in trees.items() if (names := NO_NOUNS & set(identifiers(tree)) - ON_DISK)}
    assert found == {}


def test_a_name_that_is_no_noun_would_be_found() -> None:
    assert set(identifiers(ast.parse("def told(its): said = its.asked; f(each=1)"))) >= NO_NOUNS
