"""sysctl.d as the node will read it at its next boot, from the contents of its files."""

from shakedown.node import sysctl
from shakedown.operations.fetched import Fetched

FILE = "/etc/sysctl.d/90-shakedown.conf"
PATTERNS = [*(f"{folder}/*.conf" for folder in sysctl.FOLDERS), "/etc/sysctl.conf", "/run/systemd/system"]


def at_boot(tree: Fetched, key: str) -> tuple[str | None, str]:
    """Return the value that the key will have, and the last file that names it."""
    paths = sysctl.effective_files(tree, systemd=tree.exists("/run/systemd/system"))
    assignments = {path: sysctl.parse(tree.files[path] or []) for path in paths}
    value = sysctl.effective([item for found in assignments.values() for item in found], (key,))[key]
    named = [path for path, found in assignments.items() if sysctl.effective(found, (key,))[key] is not None]
    return value, named[-1] if named else ""
