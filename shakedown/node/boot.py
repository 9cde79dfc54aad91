"""Our systemd unit, and the program that makes the settings that the kernel forgets at every boot. The program runs on
a node (python3 >= 3.8, standard library only), as one text with the settings' module and files in front of it.

    shakedown-boot                  every line of /etc/shakedown/boot.conf, `key=value`
    shakedown-boot KEY=VALUE...     only these

Every line is tried. The exit code is 1 if one of them could not be made. SHAKEDOWN_ROOT stands for / in tests.
"""

from __future__ import annotations

import os
import sys
from typing import Optional

from .setting import Failed, find
from .tree import Part, Tree, attempt, attempt_or, explain, is_unreadable, pairs, pick

UNIT = "shakedown-boot.service"
CONFIG = "/etc/shakedown/boot.conf"


def _enabled(tree: Tree) -> bool:
    folder = "/etc/systemd/system"
    return any(
        tree.target("{}/{}/{}".format(folder, wants, UNIT)) is not None
        for wants in tree.names(folder)
        if wants.endswith((".wants", ".requires"))
    )


def _settings(tree: Tree) -> dict[str, str]:
    try:
        return pairs(tree.lines(CONFIG))
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


def make(tree: Tree, key: str, value: str) -> str:
    """Make one setting; why it could not be made, else nothing."""
    setting, detail = attempt_or((None, ""), find, key)
    if setting is None or not setting.by_unit or not setting.accepts(value):
        return "no such setting: {}={}".format(key, value)
    try:
        setting.make(tree, detail, value)
    except Failed as error:
        return str(error)
    except Exception as error:  # one that breaks must not keep the others from being made
        failure = explain(error)
        return "{}={}: {} ({})".format(key, value, failure.detail, failure.reason)
    return ""


def main() -> int:
    root = os.environ.get("SHAKEDOWN_ROOT", "")
    if not root and os.geteuid() != 0:
        sys.stderr.write("shakedown-boot: needs root\n")
        return 1
    tree = Tree(root)
    try:
        arguments = [argument if "=" in argument else argument + "=" for argument in sys.argv[1:]]
        wanted = pairs(arguments or tree.lines(CONFIG))
    except OSError as error:
        sys.stderr.write("shakedown-boot: {}: {}\n".format(error.filename, error.strerror))
        return 1
    failures = [failure for failure in (make(tree, key, value) for key, value in wanted.items()) if failure]
    for failure in failures:
        sys.stderr.write("shakedown-boot: {}\n".format(failure))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
