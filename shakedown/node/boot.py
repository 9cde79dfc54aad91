"""Makes the settings that the kernel forgets at every boot. Runs on a node (python3 >= 3.8, standard library only),
as one text with the settings' modules in front of it, in the place that operations/boot.py gives it.

    shakedown-boot                  every line of /etc/shakedown/boot.conf, `key=value`
    shakedown-boot KEY=VALUE...     only these

Every line is tried. The exit code is 1 if one of them could not be made. SHAKEDOWN_ROOT stands for / in tests.
"""

from __future__ import annotations

import os
import sys
from typing import List, Tuple

from .bootunit import CONFIG, parse_settings
from .setting import Failed, find
from .tree import Tree, explain


def make(tree: Tree, key: str, value: str) -> str:
    """Make one setting; why it could not be made, else nothing."""
    try:
        setting, detail = find(key)
    except KeyError:
        return "no such setting: {}={}".format(key, value)
    if not setting.by_unit or not setting.accepts(value):
        return "no such setting: {}={}".format(key, value)
    try:
        setting.make(tree, detail, value)
    except Failed as error:
        return str(error)
    except Exception as error:  # one that breaks must not keep the others from being made
        failure = explain(error)
        return "{}={}: {} ({})".format(key, value, failure.detail, failure.reason)
    return ""


def pairs(tree: Tree, arguments: List[str]) -> List[Tuple[str, str]]:
    if arguments:
        return [(key, value) for key, _, value in (pair.partition("=") for pair in arguments)]
    return list(parse_settings(tree.lines(CONFIG)).items())


def main() -> int:
    root = os.environ.get("SHAKEDOWN_ROOT", "")
    if not root and os.geteuid() != 0:
        sys.stderr.write("shakedown-boot: needs root\n")
        return 1
    tree = Tree(root)
    try:
        wanted = pairs(tree, sys.argv[1:])
    except OSError as error:
        sys.stderr.write("shakedown-boot: {}: {}\n".format(error.filename, error.strerror))
        return 1
    failures = [failure for failure in (make(tree, key, value) for key, value in wanted) if failure]
    for failure in failures:
        sys.stderr.write("shakedown-boot: {}\n".format(failure))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
