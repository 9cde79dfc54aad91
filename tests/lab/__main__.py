"""A rack for a person (make lab-up, lab-ssh, lab-down): it stays when the command ends."""

from __future__ import annotations

import argparse
import os
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from shakedown.common.text import counted
from tests.lab import card, images, registry, slots
from tests.lab.hosts import Hosts
from tests.lab.machine import LabError, require_root
from tests.lab.namespaces import rack
from tests.lab.node_spec import NodeSpec
from tests.lab.vms import vms

INVENTORY = "inventories/lab.py"


def up(wanted: argparse.Namespace) -> None:
    """Leave a rack standing, or say where the one is that stands."""
    if slots.RUN_DIR.exists() and (slot := slots.standing()):
        print("a rack stands already; to have another: make lab-down")
        return _describe(slot.folder)
    spec = NodeSpec(user="ops", sudo=True, docker=wanted.docker)
    with slots.place() as slot, ExitStack() as stack:
        labs: dict[str, Hosts[Any]] = {}
        labs["nodes"] = stack.enter_context(rack(wanted.nodes, spec, stay=True, beside=slot))
        if wanted.vms:
            labs["vms"] = stack.enter_context(vms(wanted.vms, spec, stay=True, beside=slot))
        image = None
        if wanted.docker:
            store = stack.enter_context(registry.serve(labs["nodes"], stay=True))
            image = store.publish(images.training())
        card.write(slot.folder, labs, image)
        slot.leave_standing()
        return _describe(slot.folder)


def ssh(wanted: argparse.Namespace) -> None:
    """Become ssh to a node of the standing rack: by its name, or by its number among all nodes, from 1."""
    lines: dict[str, list[str]] = card.read(_standing().folder)["ssh"]
    names = dict(enumerate(lines, start=1))
    name = names.get(int(wanted.node)) if wanted.node.isdigit() else wanted.node
    if name not in lines:
        raise LabError(f"no node {wanted.node!r}; the rack has {', '.join(lines)}")
    os.execvp("ssh", [*lines[name], *wanted.command])


def down(_: argparse.Namespace) -> None:
    """End the standing rack: its nodes, engines and registry."""
    _standing().clear()
    print("the rack is gone")


def _standing() -> slots.Slot:
    slot = slots.standing() if slots.RUN_DIR.exists() else None
    if slot is None:
        raise LabError("no rack is standing; make one with: make lab-up")
    return slot


def _describe(folder: Path) -> None:
    rack_card = card.read(folder)
    lines = rack_card["ssh"]
    print(f"{counted(len(lines), 'node stands', 'nodes stand')}: {', '.join(lines)}")
    print(f"image:     {rack_card['image'] or 'none: jobs run as processes'}")
    print(f"inventory: {INVENTORY}")
    print(f"try:       pyinfra {INVENTORY} deploy/megatron.py -y")
    print(f"ssh:       make lab-ssh N=1    (that is: {' '.join(next(iter(lines.values())))})")
    print("end:       make lab-down")


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.lab", description=__doc__)
    verbs = parser.add_subparsers(required=True)
    verb = verbs.add_parser("up", help=up.__doc__)
    verb.add_argument("--nodes", type=int, default=3, help="namespace nodes: node1, node2, ...")
    verb.add_argument("--vms", type=int, default=0, help="virtual machines, with a kernel of their own: vm1, vm2, ...")
    verb.add_argument("--docker", action="store_true", help="an engine in each node, a registry, the training image")
    verb.set_defaults(do=up)
    verb = verbs.add_parser("ssh", help=ssh.__doc__)
    verb.add_argument("node")
    verb.add_argument("command", nargs=argparse.REMAINDER)
    verb.set_defaults(do=ssh)
    verbs.add_parser("down", help=down.__doc__).set_defaults(do=down)
    wanted = parser.parse_args(arguments)
    try:
        require_root()
        wanted.do(wanted)
    except LabError as error:
        print(f"lab: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
