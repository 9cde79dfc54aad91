"""A simulated rack: its nodes, the faults that are put into it, and what each node then is."""

from __future__ import annotations

import copy
import hashlib
import json
import random
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Any, Literal

from shakedown.catalogue import entry
from shakedown.common.data import read_toml
from shakedown.common.frozen import Frozen
from shakedown.desired.layers import HostLayers, Layer
from shakedown.desired.models import DesiredState
from shakedown.runner.features import resolve
from shakedown.state.node import NodeState

SIMULATED = "SIMULATED"
INVENTORY = f"{SIMULATED}.py"  # in commands; there is no such file
SITE = read_toml("shakedown.runner.demo", "site.toml")
DEFAULT = ("gpu_lost", "nic_slow", "numa_balancing", "memlock", "image", "disk_full", "gpu_hang")
"""The faults that are played where none is named: three causes need a person, three are repaired, one ends the job."""


class Fault(Frozen):
    """An entry of faults.toml, which explains the fields."""

    name: str
    what: str
    cause: str
    named: bool = True
    nodes: int = 1
    state: dict[str, Any] = {}
    remove: list[str] = []
    silent: bool = False
    kernel_before: str = ""
    entry: str = ""
    code: int = 1
    kernel: str = ""
    stops: bool = False
    lost: bool = False
    loss: Literal["", "nan", "rises"] = ""
    slow: float = 1.0

    @property
    def in_job(self) -> bool:
        """Return whether only the job shows the fault."""
        return bool(self.entry or self.kernel or self.stops or self.lost or self.loss or self.slow != 1)


@cache
def faults() -> dict[str, Fault]:
    """Return the faults that can be played, by name."""
    tables = read_toml("shakedown.runner.demo", "faults.toml")["fault"]
    return {table["name"]: Fault.model_validate(table) for table in tables}


@dataclass(frozen=True)
class Scenario:
    """Which nodes have which faults."""

    nodes: list[str]
    placed: dict[str, list[str]] = field(default_factory=dict)  # fault -> nodes

    @classmethod
    def of(cls, count: int, names: Collection[str], seed: int) -> Scenario:
        """Place the faults on a rack of `count` nodes, each on nodes of its own as far as there are enough."""
        dice, width = random.Random(f"demo/{seed}"), len(str(max(count, 10)))
        nodes = [f"node{number:0{width}d}" for number in range(1, count + 1)]
        free, placed = set(nodes), {}
        for name in names:
            wanted = min(faults()[name].nodes, max(count // 2, 1))
            first = [n for n in range(count - wanted + 1) if free.issuperset(nodes[n : n + wanted])] or [0]
            start = dice.choice(first) if wanted else 0
            placed[name] = nodes[start : start + wanted] if wanted else nodes
            if wanted and wanted <= 2:  # the others may share their nodes with what is rarer
                free -= set(placed[name])
        return cls(nodes, placed)

    def of_node(self, node: str) -> list[Fault]:
        """Return the faults of a node."""
        return [faults()[name] for name, nodes in self.placed.items() if node in nodes]

    def desired(self) -> dict[str, DesiredState]:
        """Return what each node should be: the README's rack."""
        layer = Layer("demo", SITE)
        return resolve([HostLayers(node, [layer], user="root") for node in self.nodes]).states

    def states(self, repaired: Mapping[str, Collection[str]]) -> dict[str, NodeState | None]:
        """Return what each node is, None where it does not answer. `repaired`: node -> findings that were repaired."""
        return {node: self._state(number, node, repaired.get(node, ())) for number, node in enumerate(self.nodes, 1)}

    def _state(self, number: int, node: str, repaired: Collection[str]) -> NodeState | None:
        document = _as_node(copy.deepcopy(_healthy()), number, node)
        for fault in self.of_node(node):
            if fault.silent:
                return None
            if fault.cause in repaired:
                continue
            for path, value in fault.state.items():
                above, last = _find(document, path)
                above[last] = value
            for path in fault.remove:
                above, last = _find(document, path)
                del above[last]
            if fault.kernel_before:
                line = {"number": 1207, "priority": 3, "seconds": 86.2, "message": line_of(fault.kernel_before)}
                document["kernel_log"]["records"].append(line)
        return NodeState.model_validate(document, strict=False)


def line_of(name: str) -> str:
    """Return the line with which the catalogue shows an entry, about a GPU that the simulated nodes have."""
    found = entry(name)
    assert found is not None, name
    return re.sub(r"\b0000:[0-9a-f]{2}:00\.0\b", _healthy()["gpus"][2]["bdf"], found.shows[0])


def _find(document: Any, path: str) -> tuple[Any, Any]:
    """Return the part that a dotted path ends in, and the last key."""
    *above, last = [int(part) if part.isdigit() else part for part in path.split(".")]
    for part in above:
        document = document[part]
    return document, last


def _as_node(document: dict[str, Any], number: int, node: str) -> dict[str, Any]:
    """Give a node what only it has: names, serial numbers, addresses."""
    serial = hashlib.sha256(node.encode()).hexdigest()
    document["system"] |= {"hostname": node, "boot_id": f"boot-{node}", "host_key": f"ssh-ed25519 {serial}"}
    document["system"] |= {"machine_id": serial[:32], "board_serial": serial[:12].upper()}
    for index, gpu in enumerate(document["gpus"]):
        gpu["serial"] = f"{serial[:14]}{index:02x}"
    for index, interface in enumerate(document["interfaces"]):
        interface["ipv4"] = [f"10.{index}.{number >> 8}.{number & 255}/16"]
        interface["mac"] = f"02:00:{index:02x}:00:{number >> 8:02x}:{number & 255:02x}"
    for index, device in enumerate(document["rdma"]):
        device["guid"] = f"b83f:d203:{number:04x}:{index:04x}"
        for gid in device["gids"]:
            if gid["ipv4"] is None:
                gid["gid"] = f"fe80:0000:0000:0000:0000:00ff:{number:04x}:{index:04x}"
            else:
                gid["ipv4"] = f"10.{index + 1}.{number >> 8}.{number & 255}"
                gid["gid"] = f"0000:0000:0000:0000:0000:ffff:0a{index + 1:02x}:{number:04x}"
    return document


@cache
def _healthy() -> dict[str, Any]:
    """Read the state of a healthy node with eight MI300X and eight Thor2; the file names its sources."""
    state: dict[str, Any] = json.loads(resources.files(__package__).joinpath("node.json").read_text("utf-8"))["state"]
    return state
