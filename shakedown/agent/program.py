"""The agent's program: the probe's bundle, the checks as they travel, and what runs them."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from shakedown.agent.carried import modules
from shakedown.transport import bundle

_NODE = Path(bundle.__file__).parents[1] / "node"
# Of shakedown/node, besides what the probe consists of.
_MORE = ("safe_files.py", "owners.py")


@cache
def build() -> bundle.Bundle:
    """All files by their path, and the digest over them. Raises BundleError and CannotTravel."""
    files = dict(bundle.build().files)
    files.update((path, text.encode()) for path, text in modules().items())
    for path in [*(_NODE / name for name in _MORE), *sorted((_NODE / "agent").glob("*.py"))]:
        files[f"shakedown/node/{path.relative_to(_NODE)}"] = path.read_bytes()
    return bundle.Bundle(files, bundle.files_digest(files))
