"""What pyproject.toml asks for is what the package imports, no more and no less."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tomllib
from importlib import metadata
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

import shakedown

PACKAGE = Path(shakedown.__file__).parent
ROOT = PACKAGE.parent
PROJECT: dict[str, Any] = tomllib.loads((PACKAGE.parent / "pyproject.toml").read_text())["project"]
# Run under the nodes' own python, from packages that are carried there or stand there.
ON_NODES = ("node", "jobs/workload", "trials/workload", "node/assets")

# All that a plain install brings, with what it brings in turn. An entry more is an entry of many megabytes: 110 MB of
# site-packages with byte code are the most (96 MB on 2026-11-29; SQLAlchemy, in an extra, would be 29 MB more).
PLAIN_PACKAGES = {
    "ahocorasick-rs", "amdsmi", "annotated-types", "bcrypt", "cffi", "click", "clustershell", "cryptography", "distro",
    "gevent", "greenlet", "invoke", "jinja2", "junitparser", "markdown-it-py", "markupsafe", "mdurl", "packaging",
    "paramiko", "prometheus-client", "psutil", "pycparser", "pydantic", "pydantic-core", "pygments", "pyinfra",
    "pynacl", "python-dateutil", "pyudev", "pyyaml", "rich", "six", "structlog", "typeguard", "types-paramiko",
    "typing-extensions", "typing-inspection", "zope-event", "zope-interface",
}  # fmt: skip

# What no plain install has is missing, the files of deploy/ and every command are loaded.
PLAIN = """
import ast, sys
from importlib import import_module
from pathlib import Path
sys.modules.update(dict.fromkeys(["numpy", "kubernetes", "sqlalchemy", "psycopg"]))

def load(file):
    for node in ast.parse(file.read_text()).body:
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                getattr(import_module(node.module), alias.name, None) or import_module(f"{node.module}.{alias.name}")

for file in Path(sys.argv[1]).glob("*.py"):
    try:
        load(file)
    except Exception as error:
        print("deploy", file.stem, error)
import shakedown.report.page.render
from shakedown.cli import COMMANDS, main
for command in COMMANDS:
    try:
        main.main([command, "--help"], standalone_mode=False)
    except SystemExit as end:
        print(command, "ends with", end.code)
"""
ALONE = """
import sys
sys.modules.update(dict.fromkeys(["numpy", "kubernetes", "sqlalchemy", "psycopg"]))
from shakedown.cli import main
main(sys.argv[1:])
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
    carried = {"pyudev", "amdsmi"}  # in the bundle, not imported here
    optional = PROJECT["optional-dependencies"]
    extra = {
        distribution(requirement) for name in ("kubernetes", "isolation", "ledger") for requirement in optional[name]
    }
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


def test_a_plain_install_brings_these_packages_alone() -> None:
    known, waiting = set[str](), [distribution(requirement) for requirement in PROJECT["dependencies"]]
    while waiting:
        name = waiting.pop()
        if name not in known:
            known.add(name)
            asked = map(Requirement, metadata.requires(name) or ())
            waiting += [
                distribution(str(each)) for each in asked if each.marker is None or each.marker.evaluate({"extra": ""})
            ]
    assert known == PLAIN_PACKAGES


def test_a_plain_install_loads_every_deploy_and_every_command_but_those_of_the_ledger() -> None:
    """Those say which extra they need, and end with 2."""
    done = subprocess.run([sys.executable, "-c", PLAIN, ROOT / "deploy"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    ended = re.findall(r"^(\S+) ends with (\d)$", done.stdout, re.MULTILINE)
    isolate = "deploy isolate the search for bad nodes needs numpy: pip install 'shakedown[isolation]'"
    assert [line for line in done.stdout.splitlines() if line.startswith("deploy ")] == [isolate]
    assert ended == [(name, "2") for name in ("calibrate", "history", "ledger", "reliability", "service")]
    assert done.stderr.count("the ledger needs SQLAlchemy: pip install 'shakedown[ledger]'") == len(ended)


def alone(*words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """A command in a plain install, with its runs in a folder."""
    command, environment = [sys.executable, "-c", ALONE, *words], {**os.environ, "SHAKEDOWN_RUNS": str(folder)}
    return subprocess.run(command, capture_output=True, text=True, env=environment, cwd=folder, timeout=120)


def test_a_search_names_its_extra(tmp_path: Path) -> None:
    done = alone("isolate", "127.0.0.1,", folder=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "the search for bad nodes needs numpy: pip install 'shakedown[isolation]'" in done.stderr


def test_the_ledgers_report_names_its_extra(tmp_path: Path) -> None:
    done = alone("report", "--ledger", folder=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "shakedown: the ledger needs SQLAlchemy: pip install 'shakedown[ledger]'\n"


def test_a_plain_install_keeps_a_run_reports_it_and_says_why_it_is_in_no_ledger(tmp_path: Path) -> None:
    done = alone("demo", "--nodes", "2", "--fault", "none", "--folder", str(tmp_path), folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "not in the ledger: the ledger needs SQLAlchemy: pip install 'shakedown[ledger]'" in done.stderr
    run = next(path.parent for path in tmp_path.glob("*/run.json"))
    report = alone("report", str(run), "--format", "html", "--output", "report.html", folder=tmp_path)
    assert report.returncode == 0 and "SIMULATED" in (tmp_path / "report.html").read_text(), report.stderr
