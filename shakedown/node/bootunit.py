"""Our systemd unit, and the settings that it makes at every boot."""

from __future__ import annotations

from .tree import Part, Tree, attempt, is_unreadable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional

UNIT = "shakedown-boot.service"
CONFIG = "/etc/shakedown/boot.conf"


def parse_settings(lines: list[str]) -> dict[str, str]:
    """`key=value` lines; header and comment lines start with #."""
    pairs = (line.split("=", 1) for line in lines if "=" in line and not line.lstrip().startswith("#"))
    return {key.strip(): value.strip() for key, value in pairs}


def _enabled(tree: Tree) -> bool:
    folder = "/etc/systemd/system"
    return any(
        tree.is_link("{}/{}/{}".format(folder, wants, UNIT))
        for wants in tree.names(folder)
        if wants.endswith((".wants", ".requires"))
    )


def read(tree: Tree) -> Part:
    settings = attempt(lambda: parse_settings(tree.lines(CONFIG))) if tree.exists(CONFIG) else {}
    return {"enabled": attempt(_enabled, tree), "settings": settings}


def setting_at_boot(unit: Part, key: str) -> Optional[str]:
    """The value that the unit sets at boot: None where it has none, or where the unit is not enabled."""
    if unit["enabled"] is not True or is_unreadable(unit["settings"]):
        return None
    value = unit["settings"].get(key)
    return value if value is None else str(value)
