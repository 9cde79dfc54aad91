"""Every folder here is an operation, every YAML file in it a node's state and the commands that it leads to."""

from __future__ import annotations

from pathlib import Path

from pyinfra_testing.operations import make_operation_tests

for _folder in sorted(path for path in Path(__file__).parent.iterdir() if path.is_dir() and any(path.glob("*.yaml"))):
    globals()[f"Test_{_folder.name.replace('.', '_')}"] = make_operation_tests(
        "shakedown.operations", _folder.name, _folder
    )
