"""Our systemd unit, and the settings that it makes at every boot."""

from __future__ import annotations

from typing import Optional

from .tree import Part, Tree, attempt, is_unreadable, pick

UNIT = "shakedown-boot.service"
CONFIG = "/etc/shakedown/boot.conf"


def parse_settings(lines: list[str]) -> dict[str, str]:
    """Parse `key=value` lines; header and comment lines start with #."""
    pairs = (line.split("=", 1) for line in lines if "=" in line and not line.lstrip().startswith("#"))
    return {key.strip(): value.strip() for key, value in pairs}


def _enabled(tree: Tree) -> bool:
    folder = "/etc/systemd/system"
    return any(
        tree.target("{}/{}/{}".format(folder, wants, UNIT)) is not None
        for wants in tree.names(folder)
        if wants.endswith((".wants", ".requires"))
    )


def _settings(tree: Tree) -> dict[str, str]:
    try:
        return parse_settings(tree.lines(CONFIG))
    except FileNotFoundError:
        return {}


def read(tree: Tree) -> Part:
    return {"enabled": attempt(_enabled, tree), "settings": attempt(_settings, tree)}


def setting_at_boot(unit: Part, key: str) -> Optional[str]:
    """Return the value that the unit sets at boot; None where it has none, or where the unit is absent or not enabled.
    Raises Unreadable where a file cannot be read."""
    for part in (unit["enabled"], unit["settings"]):
        if part is False or (is_unreadable(part) and part["unreadable"] == "missing"):
            return None
        pick(part)
    value = unit["settings"].get(key)
    return value if value is None else str(value)
