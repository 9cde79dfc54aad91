"""A rack for a person: `python -m tests.lab up [NODES]`, `ssh NODE [COMMAND]`, `down` (make lab-up and so on)."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

from tests.lab import slots
from tests.lab.machine import LabError, require_root
from tests.lab.namespaces import rack
from tests.lab.node_spec import NodeSpec

CARD = "rack.json"
"""The standing rack's own description: {node: ssh argv}."""


def up(nodes: str = "3") -> None:
    """Leave a rack standing, or say where the one is that stands."""
    if slots.RUN_DIR.exists() and (slot := slots.standing()):
        return _describe(slot.folder)
    with rack(int(nodes), NodeSpec(user="ops", sudo=True), stay=True) as lab:
        lab.inventory(lab.slot.folder / "lab.py")
        lines = {node.name: lab.ssh(node) for node in lab}
        (lab.slot.folder / CARD).write_text(json.dumps(lines, indent=1))
        return _describe(lab.slot.folder)


def ssh(node: str, *command: str) -> None:
    """Become ssh to a node of the standing rack; a bare number N means nodeN."""
    lines = json.loads((_standing().folder / CARD).read_text())
    name = f"node{node}" if node.isdigit() else node
    if name not in lines:
        raise LabError(f"no node {name!r}; the rack has {', '.join(lines)}")
    os.execvp("ssh", [*lines[name], *command])


def down() -> None:
    """End the standing rack, if there is one."""
    _standing().clear()
    print("the rack is gone")


def _standing() -> slots.Slot:
    slot = slots.standing() if slots.RUN_DIR.exists() else None
    if slot is None:
        raise LabError("no rack is standing; make one with: make lab-up")
    return slot


def _describe(folder: Path) -> None:
    lines = json.loads((folder / CARD).read_text())
    print(f"{len(lines)} nodes stand: {', '.join(lines)}")
    print(f"inventory: {folder / 'lab.py'}")
    print(f"try:       pyinfra {folder / 'lab.py'} exec -- hostname")
    print(f"ssh:       make lab-ssh N=1    (that is: {' '.join(next(iter(lines.values())))})")
    print("end:       make lab-down")


def main(arguments: list[str]) -> int:
    verbs: dict[str, Callable[..., None]] = {"up": up, "ssh": ssh, "down": down}
    if not arguments or arguments[0] not in verbs:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        require_root()
        verbs[arguments[0]](*arguments[1:])
    except LabError as error:
        print(f"lab: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
