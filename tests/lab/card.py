"""A rack's card, from which `inventories/lab.py` and `make lab-ssh` work: its nodes of every kind, and its image."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.lab.hosts import Hosts
from tests.lab.registry import Reference

NAME = "rack.json"


def write(folder: Path, labs: Mapping[str, Hosts[Any]], image: Reference | None = None) -> None:
    """Put the card into the rack's folder: `labs` by kind ("nodes", "vms"). With `image`, jobs run in it, in
    containers."""
    card = {
        "hosts": {kind: {node.name: lab.host_data(node) for node in lab} for kind, lab in labs.items()},
        "ssh": {node.name: lab.ssh(node) for lab in labs.values() for node in lab},
        "image": image and image.tagged,
    }
    (folder / NAME).write_text(json.dumps(card, indent=1))


def read(folder: Path) -> dict[str, Any]:
    card: dict[str, Any] = json.loads((folder / NAME).read_text())
    return card
