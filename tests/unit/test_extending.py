"""The examples of docs/extending.md, performed: their files are laid into a copy of the package, their commands run,
and what the page shows has to be there."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests import forks

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = Path(sys.executable).with_name("shakedown")
PAGE = (ROOT / "docs" / "extending.md").read_text("utf-8")
SECTIONS: dict[str, str] = dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE))
_FILE = re.compile(r"^In `([^`]+)`:\n\n```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_CONSOLE = re.compile(r"^```console\n(.*?)^```$", re.DOTALL | re.MULTILINE)
# How many files of the product an example may add, and how many it may change.
TOUCHED = {
    "A sysctl key": (0, 0),
    "A host setting": (1, 1),
    "A finding": (1, 0),
    "A gate": (1, 0),
    "A trial": (1, 0),
    "An output format": (1, 0),
    "A NIC family": (1, 0),
    "A recipe": (1, 0),
    "A scheduler": (3, 0),
}


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, tuple[int, int]]]:
    """A copy of the package with all examples in it, and how many files each adds and changes."""
    folder = tmp_path_factory.mktemp("extended")
    shutil.copytree(ROOT / "shakedown", folder / "shakedown")
    (folder / "deploy").symlink_to(ROOT / "deploy")
    return folder / "shakedown", {section: lay(folder, section, of_product=True) for section in SECTIONS}


@pytest.fixture
def copy(tmp_path: Path, package: tuple[Path, dict[str, tuple[int, int]]]) -> Path:
    """A checkout whose package is that copy; the rest of it is the real one."""
    for folder in (package[0], ROOT / "tests", ROOT / "deploy"):
        (tmp_path / folder.name).symlink_to(folder)
    return tmp_path


def lay(copy: Path, section: str, of_product: bool = False) -> tuple[int, int]:
    """Write a section's files, of the product or all others: how many are new, and how many are changed."""
    added = changed = 0
    for name, language, text in _FILE.findall(SECTIONS[section]):
        path = copy / name
        if name.startswith("shakedown/") != of_product:
            continue
        if language == "diff":
            lines = text.splitlines(keepends=True)
            before = "".join(line[1:] for line in lines if line[0] in " -")
            whole = path.read_text("utf-8")
            assert whole.count(before) == 1, f"{name} has no such lines"
            path.write_text(whole.replace(before, "".join(line[1:] for line in lines if line[0] in " +")))
            changed += 1
        else:
            assert not path.exists()
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
            added += 1
    return added, changed


def run(copy: Path, *command: str) -> tuple[int, str]:
    environment = {
        **os.environ,
        "PYTHONPATH": str(copy),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HOME": str(copy),
        "COLUMNS": "10000",
    }
    if command[0] == "shakedown":
        argv = [str(PROGRAM), *command[1:]]
        code, out, err = forks.run(argv, copy, environment, 300, checkout=(copy / "shakedown").resolve().parent)
        return code, out + err
    done = subprocess.run(
        command, cwd=copy, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300
    )
    return done.returncode, done.stdout + done.stderr


def shown(output: str, line: str) -> bool:
    """Whether a line of a page is in an output, however wide its columns are; "..." stands for anything."""
    words = [re.escape(word).replace(r"\.\.\.", ".*") for word in line.split()]
    return re.search(r"^\s*" + r"\s+".join(words) + r"\s*$", output, re.MULTILINE) is not None


@pytest.mark.parametrize("section", SECTIONS)
def test_an_example_works_as_the_page_shows_it(
    section: str, copy: Path, package: tuple[Path, dict[str, tuple[int, int]]]
) -> None:
    assert package[1][section] == TOUCHED[section]
    lay(copy, section)
    commands = 0
    for block in _CONSOLE.findall(SECTIONS[section]):
        for command, lines in re.findall(r"^\$ (.+)\n((?:(?!\$ ).*\n)*)", block, re.MULTILINE):
            code, output = run(copy, *command.split())
            assert code != 2 and "Traceback" not in output, output
            assert [line for line in lines.splitlines() if not shown(output, line)] == [], output
            commands += 1
    assert commands


COUNT = """
from shakedown.checks import evaluate
from shakedown.desired.cvs.tables import known_parameters
from tests.states import desired, healthy, with_
state = healthy()
there = with_(state, {f"rdma.{n}.vendor": "8086" for n in range(8)} | {f"rdma.{n}.name": f"irdma{n}" for n in range(8)})
for name, each in (("ours", there), ("others", state)):
    (count,) = [found for found in evaluate(desired(nic="e810"), each, "n") if found.name == "rdma_count"]
    print(name, count.verdict, count.actual)
print(known_parameters()["config.nic_type"].parse("e810"))
"""


def test_a_new_trial_measures_on_a_node(copy: Path) -> None:
    lay(copy, "A trial")
    request = {"trials": ["reduction"], "gpus": 0, "ranks": 1, "repetitions": 2, "seconds": 0.01}
    (copy / "request.json").write_text(json.dumps({**request, "limit_s": 120, "start_s": 120}))
    program = copy / "shakedown/trials/workload/run.py"
    code, output = run(copy, sys.executable, str(program), str(copy / "request.json"))
    assert code == 0, output
    found = [json.loads(line.removeprefix("trial ")) for line in output.splitlines() if line.startswith("trial ")]
    assert [(each["figure"], each["state"], each["wrong"]) for each in found] == [("dot", "ok", 0)] * 2


def test_the_devices_of_a_new_nic_family_are_counted_and_a_cvs_file_may_name_it(copy: Path) -> None:
    lay(copy, "A NIC family")
    code, output = run(copy, sys.executable, "-c", COUNT)
    assert (code, output.splitlines()) == (0, ["ours ok 8", "others fail 0", "e810"])


def test_a_nic_family_without_a_library_of_its_own_leaves_it_to_the_site(copy: Path) -> None:
    profile = copy / "shakedown/desired/profiles/nic/e810.toml"
    whole = profile.read_text("utf-8")
    profile.write_text(whole.partition("[rdma.provider]")[0])
    (copy / "site.py").write_text('n = (["node1"], {"gpu": "cpu", "nic": "e810", "rdma": {"provider": {"name": "x"}}})')
    code, output = run(copy, str(PROGRAM), "show", "site.py", "node1")  # not of a process that has read the profile
    profile.write_text(whole)
    assert code == 0, output
    assert shown(output, 'rdma.provider.name  "x"  group n')


BOOK = """
from shakedown.runner.jobs.connection import allocation_of
from tests.states import desired
job = allocation_of({"@local": desired("cpu", None)}, "bookings", "run")
job.allocate(["@local"], print, lambda: None)
with job.start("smoke", ["@local"]) as remote:
    print(remote("@local", ["cat"], "text", 60), remote("@local", ["false"], None, 60)[0])
print(open("bookings.txt").readline().strip())
job.end()
print(open("bookings.txt").readline().strip())
"""


def test_a_new_scheduler_starts_jobs(copy: Path) -> None:
    lay(copy, "A scheduler")
    code, output = run(copy, sys.executable, "-c", BOOK)
    assert (code, output.splitlines()) == (0, ["(0, ['text'], []) 1", "@local shakedown", "@local free"]), output


def test_a_page_that_shows_what_is_not_so_is_seen() -> None:
    output = "node    finding  verdict\n@local  ksm      drift  0 (next boot: not set)\n"
    assert shown(output, "@local  ksm  drift  0 ...")
    assert shown(output, "node finding verdict")
    assert not shown(output, "@local  ksm  ok  0 ...")
    assert not shown(output, "finding verdict")
