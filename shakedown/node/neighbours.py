"""Neighbours by LLDP, from the node's lldpd. Its json0 has one form for none, one and many; its json has three."""

from __future__ import annotations

import json
from typing import Any, Iterator, List

from .children import run_tool
from .tree import Part, Tree

_SECONDS = 5.0
_MOST, _LONGEST = 256, 120  # neighbours, characters of a text


def parse(text: str) -> List[Part]:
    """Return the neighbours in what `lldpcli -f json0 show neighbors` prints."""
    return list(_neighbours(json.loads(text)))[:_MOST]


def _neighbours(document: Any) -> Iterator[Part]:
    for interface in (entry for part in document["lldp"] for entry in part.get("interface", [])):
        chassis, port = (interface.get(key, [{}])[0] for key in ("chassis", "port"))
        yield {
            "interface": str(interface["name"])[:_LONGEST],
            "system": _text(chassis, "name") or _text(chassis, "id"),
            "chassis": _text(chassis, "id"),
            "port": _text(port, "id"),
            "port_description": _text(port, "descr"),
        }


def _text(part: Any, key: str) -> str:
    return str(part.get(key, [{}])[0].get("value", ""))[:_LONGEST]


def read(tree: Tree) -> List[Part]:
    return parse(run_tool([tree.tool("lldpcli"), "-f", "json0", "show", "neighbors"], _SECONDS))
