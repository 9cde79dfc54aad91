"""Imports point one way: each component imports only from those below it, also inside functions and for types."""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Iterator
from pathlib import Path

import pytest

import shakedown

PACKAGE = Path(shakedown.__file__).parent
ROOT = PACKAGE.parent
# From the bottom up. A component is a folder or a module of the package, or a top-level folder; a new one is entered
# here, above all that it imports. Components of one line do not import each other.
LEVELS = (
    ("shakedown.node", "shakedown.node.launcher"),  # travel to the nodes
    ("shakedown.command_secrets", "shakedown.text"),
    ("shakedown.catalogue",),
    (
        "shakedown.broken_pipe",
        "shakedown.ledger.schema",
        "shakedown.log",
        "shakedown.peers",
        "shakedown.private",
        "shakedown.runs_folder",
        "shakedown.secrets",
        "shakedown.site_files",
    ),
    ("shakedown.transport", "shakedown.secret_file", "shakedown.ledger.words"),
    ("shakedown.schedulers",),
    ("shakedown.hosts",),
    ("shakedown.findings", "shakedown.hangs", "shakedown.ledger.key", "shakedown.state"),
    ("shakedown.baselines", "shakedown.isolation.model"),
    ("shakedown.gid", "shakedown.images", "shakedown.places"),
    ("shakedown.desired",),
    ("shakedown.hca", "shakedown.verbs", "shakedown.rolling"),
    ("shakedown.telemetry", "shakedown.stragglers"),
    ("shakedown.smoke.lines", "shakedown.smoke.marks", "shakedown.smoke.log_fields", "shakedown.smoke.frames"),
    ("shakedown.smoke.kept_logs", "shakedown.smoke.launch", "shakedown.smoke.log_layout", "shakedown.smoke.signatures"),
    ("shakedown.smoke.log",),
    ("shakedown.smoke.job",),
    ("shakedown.diagnosis",),  # the rule; what it is applied to is further up
    ("shakedown.smoke",),
    ("shakedown.trials",),
    ("shakedown.checks", "shakedown.copies", "shakedown.resolve"),
    ("shakedown.node.agent",),  # travels with the checks
    ("shakedown.examination", "shakedown.runs"),
    ("shakedown.diagnosis.run",),
    ("shakedown.service",),
    ("shakedown.ledger",),
    ("shakedown.compared", "shakedown.archive"),
    ("shakedown.calibration",),
    ("shakedown.isolation",),
    ("shakedown.report",),
    ("shakedown.agent",),
    ("shakedown.watch",),
    ("shakedown.facts",),
    ("shakedown.node.assets",),  # travel too, each with what it needs of shakedown.node
    ("shakedown.operations",),
    ("shakedown.runner",),
    ("shakedown.cli",),
    ("deploy", "inventories", "shakedown.site"),  # what a site has, too
)
LEVEL = {component: level for level, components in enumerate(LEVELS) for component in components}
WITH_PYINFRA = {"shakedown.facts", "shakedown.operations", "shakedown.runner", "shakedown.cli"}
TRANSPORT = {"pyinfra", "pyinfra_cli", "gevent", "paramiko"}
FILES = sorted(file for folder in (PACKAGE, ROOT / "deploy", ROOT / "inventories") for file in folder.rglob("*.py"))


def name_of(file: Path) -> str:
    return ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def component_of(module: str) -> str:
    """The innermost component that a module stands in."""
    if module == "shakedown":
        return "shakedown.node"  # its __init__ is loaded before all else, so it imports nothing
    found = [component for component in LEVEL if module == component or module.startswith(f"{component}.")]
    assert found, f"{module} is in no component: enter it in LEVELS"
    return max(found, key=len)


def imports_of(text: str, module: str, package: bool = False) -> Iterator[str]:
    """What a file imports, wherever in it: absolute names of modules, or of what is in them."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = module.split(".")[: len(module.split(".")) - node.level + package] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            yield from (f"{base}.{alias.name}" for alias in node.names)


def upwards(text: str, module: str, package: bool = False) -> list[str]:
    """The imports of a file that do not lead down."""
    component = component_of(module)
    wrong = []
    for name in imports_of(text, module, package):
        if name.split(".")[0] not in ("shakedown", "deploy", "inventories", "tests", "bench"):
            continue
        if name.split(".")[0] in ("tests", "bench"):
            wrong.append(name)
            continue
        other = component_of(name)
        if other != component and LEVEL[other] >= LEVEL[component]:
            wrong.append(name)
    return wrong


def test_imports_point_one_way() -> None:
    assert len(FILES) > 200, "the search works"
    found = {file: upwards(file.read_text(), name_of(file), file.name == "__init__.py") for file in FILES}
    assert {file: names for file, names in found.items() if names} == {}


def test_only_what_runs_on_pyinfra_knows_it() -> None:
    found = {
        file: {name.split(".")[0] for name in imports_of(file.read_text(), name_of(file))} & TRANSPORT for file in FILES
    }
    assert {component_of(name_of(file)) for file, names in found.items() if names} == WITH_PYINFRA


def test_a_module_that_is_in_no_component_is_named() -> None:
    with pytest.raises(AssertionError, match=r"shakedown\.attic"):
        component_of("shakedown.attic")


@pytest.mark.parametrize(
    ("module", "text"),
    [
        ("shakedown.state", "from shakedown.smoke import recipe"),
        ("shakedown.state", "def f():\n    import shakedown.runner.engine"),
        (
            "shakedown.desired.models",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from shakedown import runs",
        ),
        ("shakedown.node.probe", "from ..text import printable"),
        ("shakedown.node.launcher.commands", "from shakedown.smoke.log import parse"),
        ("shakedown.runner.stages", "from shakedown.cli import nodes"),
        ("shakedown.cli.nodes", "import deploy.megatron"),
        ("shakedown.checks.gpu", "from shakedown import resolve"),
        ("shakedown.checks.gpu", "from tests import states"),
    ],
)
def test_an_import_upwards_would_be_found(module: str, text: str) -> None:
    assert upwards(text, module)


def test_modules_that_are_named_and_not_imported_are_there() -> None:
    """They would be named for nothing after a move."""
    from shakedown.runner.ending import _NO_CHANGE

    assert all(importlib.util.find_spec(name.removesuffix(".")) for name in _NO_CHANGE)
