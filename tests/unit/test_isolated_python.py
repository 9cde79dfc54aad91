"""Every python that is started on a node is isolated: nothing of the current folder, which may be another user's where
the connection or sudo begins, and nothing of a user's site is imported into root's process."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
STARTED = re.compile(r"""python(?:3|_?\w*)?["'})\]]*(?:[,\s"']+-\w+)*?[,\s"']+-[a-zA-Z]*[cm]\b""")
# What starts a python of the job's own, which has to import what the job will, variables of the site included: in the
# job's own folder, or in the root of its container.
OF_THE_JOB = {"shakedown/jobs/workload/train_llama.sh", "shakedown/jobs/benchmark/benchmark.sh"}


def started() -> list[tuple[str, str]]:
    """(file, line) of each."""
    files = [path for room in ("shakedown", "facts", "operations", "deploy") for path in (ROOT / room).rglob("*.*")]
    found = []
    for path in sorted(files):
        name = str(path.relative_to(ROOT))
        if path.suffix not in (".py", ".sh") or name in OF_THE_JOB:
            continue
        lines = path.read_text("utf-8").splitlines()
        found += [(name, line) for line in lines if STARTED.search(line) and "`python3 -" not in line]
    return found


def test_every_python_that_is_started_is_isolated() -> None:
    lines = started()
    assert {name for name, _ in lines} >= {
        "facts/venv.py",
        "operations/venv.py",
    }
    assert [(name, line) for name, line in lines if "-I" not in line] == []


@pytest.mark.parametrize("words", [["-m", "venv", "--help"], ["-m", "pip", "--version"], ["-c", "import json"]])
def test_what_lies_in_the_current_folder_is_not_imported(tmp_path: Path, words: list[str]) -> None:
    for module in ("json", "venv", "pip", "argparse"):
        (tmp_path / f"{module}.py").write_text("open('was_run', 'w')")
    subprocess.run([sys.executable, "-I", *words], cwd=tmp_path, capture_output=True, check=True)
    assert not (tmp_path / "was_run").exists()
    subprocess.run([sys.executable, *words], cwd=tmp_path, capture_output=True, check=False)
    assert (tmp_path / "was_run").exists(), "without -I it would be"
