"""Each folder here is a fact, each file in it one case: the command, what it prints, what the fact makes of it."""

from __future__ import annotations

from pathlib import Path

from pyinfra_testing.facts import make_fact_tests

_FOLDER = Path(__file__).parent

for _path in sorted(path for path in _FOLDER.iterdir() if path.is_dir() and "." in path.name):
    globals()[f"Test{_path.name.replace('.', '')}"] = make_fact_tests("shakedown.facts", _path.name, _path)
