"""sysctl.d as the node will read it at its next boot, from the contents of its files."""

from __future__ import annotations

from collections.abc import Mapping

from shakedown.node import sysctl

OURS = "/etc/sysctl.d/90-shakedown.conf"
PATTERNS = [*(f"{folder}/*.conf" for folder in sysctl.FOLDERS), "/etc/sysctl.conf", "/run/systemd/system"]

Files = Mapping[str, list[str] | None]


def at_boot(files: Files, key: str) -> tuple[str | None, str]:
    """The value that the key will have, and the last file that names it."""
    tree = _Tree(files)
    paths = sysctl.effective_files(tree, systemd="/run/systemd/system" in files)  # type: ignore[arg-type]
    assignments = {path: sysctl.parse(files.get(path) or []) for path in paths}
    value = sysctl.settle([item for found in assignments.values() for item in found], (key,))[key]
    named = [path for path, found in assignments.items() if sysctl.settle(found, (key,))[key] is not None]
    return value, named[-1] if named else ""


class _Tree:
    """What `effective_files` asks of a node's files."""

    def __init__(self, files: Files) -> None:
        self.files = files

    def names(self, folder: str) -> list[str]:
        return sorted(path.rpartition("/")[2] for path in self.files if path.rpartition("/")[0] == folder)

    def exists(self, path: str) -> bool:
        return path in self.files
