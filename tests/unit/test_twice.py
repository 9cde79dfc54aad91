"""How the tests run: what they compile is kept, and what failed among others is tried a second time."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.machine_state import ROOM, SOURCE_CHANGES, TAKEN, _holds_files
from tests.twice import MOST, in_line

TESTS = """
from pathlib import Path
import pytest

def test_well():
    pass

@pytest.mark.xdist_group("a group")
def test_at_the_second_try():
    mark = Path(__file__).with_name("mark")
    there = mark.exists()
    mark.touch()
    assert there

@pytest.mark.parametrize("number", range({broken}))
def test_broken(number):
    assert False
"""


def played(folder: Path, broken: int, *options: str) -> subprocess.CompletedProcess[str]:
    (folder / "test_some.py").write_text(TESTS.format(broken=broken), "utf-8")
    root = str(Path(__file__).parents[2])
    environment = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # importing them takes most of the time
    return subprocess.run(
        [sys.executable, "-m", "tests.twice", "-q", f"--rootdir={folder}", "-c", "/dev/null", *options, str(folder)],
        cwd=root, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_what_passes_alone_is_named_and_passes(tmp_path: Path) -> None:
    done = played(tmp_path, broken=0)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "passed at the second try: test_some.py::test_at_the_second_try" in done.stdout


def test_of_groups_that_ran_at_the_same_time_only_what_failed_runs_again(tmp_path: Path) -> None:
    done = played(tmp_path, 0, "-p", "xdist", "-n", "2", "--dist", "loadgroup")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "passed at the second try: test_some.py::test_at_the_second_try\n" in done.stdout
    assert "1 failed, 1 passed, 1 skipped in" in done.stdout and "\n1 passed in" in done.stdout, done.stdout


def test_what_fails_twice_has_failed(tmp_path: Path) -> None:
    done = played(tmp_path, broken=1)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "1 failed, 1 passed" in done.stdout and "not all passed at the second try" in done.stdout


def test_many_failures_are_no_accident(tmp_path: Path) -> None:
    done = played(tmp_path, broken=MOST)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "second try" not in done.stdout


def test_the_second_try_runs_one_test_at_a_time() -> None:
    given = ["-q", "-n", "4", "--dist", "loadgroup", "--no-loadscope-reorder", "-n2", "--dist=load", "tests/lab"]
    assert in_line(given) == ["-q", "tests/lab"]


def test_what_the_tests_compile_is_kept_whatever_the_machine_sets() -> None:
    """Each of some thousand processes compiled the whole product anew, where an image of a container sets this."""
    script = "import sys, tests.conftest, subprocess\nprint(sys.dont_write_bytecode, flush=True)\n"
    script += "subprocess.run([sys.executable, '-c', 'import sys; print(sys.dont_write_bytecode)'])"
    for given, kept in (({"PYTHONDONTWRITEBYTECODE": "1"}, "False"), (SOURCE_CHANGES, "True")):
        environment = {name: value for name, value in os.environ.items() if name != TAKEN} | given
        done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True)
        assert done.stdout.split() == [kept, kept], done.stderr


@pytest.mark.parametrize("may_write", [True, False])
def test_the_tests_files_are_in_memory_only_where_they_can_be_written(
    monkeypatch: pytest.MonkeyPatch, may_write: bool
) -> None:
    root = Path("/")
    with monkeypatch.context() as patched:
        patched.setattr(os, "statvfs", lambda _: SimpleNamespace(f_flag=0))
        patched.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=ROOM + 1))
        patched.setattr(os, "access", lambda *_, **__: may_write)
        found = _holds_files(root)
    assert found is may_write
