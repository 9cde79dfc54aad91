"""What pyproject.toml asks for is what the package imports, no more and no less."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

import shakedown

PACKAGE = Path(shakedown.__file__).parent
PROJECT: dict[str, Any] = tomllib.loads((PACKAGE.parent / "pyproject.toml").read_text())["project"]
# Run under the nodes' own python, from packages that are carried there or stand there.
ON_NODES = ("node", "jobs/workload", "trials/workload", "node/assets")

PLAIN = """
import sys
sys.modules["numpy"] = sys.modules["kubernetes"] = None
import shakedown.ledger.calibration, shakedown.report.page.render, shakedown.runner.stages
sys.argv = ["shakedown", "isolate", "127.0.0.1,"]
from shakedown.cli import main
main()
"""


def distribution(requirement: str) -> str:
    """The name in a requirement, in its normal form."""
    return re.sub(r"[-_.]+", "-", Requirement(requirement).name).lower()


def imported(files: list[Path]) -> set[str]:
    """The top-level modules of others that files import, wherever in them."""
    found: set[str] = set()
    for file in files:
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Import):
                found |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                found.add(node.module.split(".")[0])
    return found - set(sys.stdlib_module_names) - {"shakedown"}


def test_each_dependency_is_imported_and_each_import_is_one() -> None:
    folders = (PACKAGE, PACKAGE / "facts", PACKAGE / "operations")  # the last two are links, which `rglob` passes by
    every = [file for folder in folders for file in folder.rglob("*.py")]
    files = [file for file in every if not str(file.relative_to(PACKAGE)).startswith(ON_NODES)]
    names = packages_distributions()
    used = {distribution(names[module][0]) for module in imported(files) if module in names}
    asked = {distribution(requirement) for requirement in PROJECT["dependencies"]}
    carried = {"psutil", "pyudev", "amdsmi"}  # in the bundle, not imported here
    optional = PROJECT["optional-dependencies"]
    extra = {distribution(requirement) for requirement in [*optional["kubernetes"], *optional["isolation"]]}
    assert len(used) > 5, "the search works"
    assert used == (asked - carried) | extra and carried < asked


def test_the_lock_file_has_each_dependency_in_a_version_that_fits_and_its_hashes() -> None:
    """`make lock` writes it anew."""
    text = (PACKAGE.parent / "requirements.lock").read_text()
    locked: dict[str, str] = dict(re.findall(r"^([a-z0-9-]+)==(\S+)", text, re.MULTILINE))
    for requirement in PROJECT["dependencies"]:
        version = locked.get(distribution(requirement))
        assert version and Requirement(requirement).specifier.contains(version), requirement
    entries = re.split(r"^(?=[a-z0-9])", text, flags=re.MULTILINE)[1:]
    assert len(entries) == len(locked) > 20 and not {"numpy", "scipy", "matplotlib"} & locked.keys()
    assert [entry for entry in entries if not re.search(r"--hash=sha256:[0-9a-f]{64}\b", entry)] == []


def test_a_plain_install_trains_and_reports_and_names_the_extra_of_what_it_cannot_do() -> None:
    done = subprocess.run([sys.executable, "-c", PLAIN], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert "the search for bad nodes needs numpy: pip install 'shakedown[isolation]'" in done.stderr
