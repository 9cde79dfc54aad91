"""What an optional package is missing for is said before anything is changed or trained."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

PROJECT = Path(__file__).parents[2]


def test_a_search_without_numpy_ends_the_deploy_before_the_training(tmp_path: Path) -> None:
    (tmp_path / "absent").mkdir()
    (tmp_path / "absent/numpy.py").write_text("raise ModuleNotFoundError('No module named numpy', name='numpy')\n")
    smoke = {"recipe": "gpt-small", "isolate": True, "venv": sys.prefix}
    (tmp_path / "site.py").write_text(f"nodes = (['@local'], {{'gpu': 'cpu', 'smoke': {smoke!r}}})\n")
    done = subprocess.run(
        [Path(sys.executable).with_name("pyinfra"), "site.py", PROJECT / "deploy/smoke.py", "-y"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path / "absent")},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    said = done.stdout + done.stderr
    assert done.returncode == 1, said
    assert "the search for bad nodes needs numpy: pip install 'shakedown[isolation]'" in said
    assert "verdict: fail" in said and "changed: nothing" in said and "ended on" not in said
