"""Writes pyinfra inventories for the lab's nodes, of whatever kind."""

from __future__ import annotations

import pprint
from collections.abc import Mapping, Sequence
from pathlib import Path

Member = tuple[str, Mapping[str, object]]


def write(path: Path, group: str, members: Sequence[Member], data: Mapping[str, object]) -> Path:
    """An inventory file with one group: hosts with their data, and the group's data. Values are Python literals."""
    hosts = pprint.pformat([(name, dict(host_data)) for name, host_data in members], width=118, sort_dicts=False)
    shared = pprint.pformat(dict(data), width=118, sort_dicts=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{group} = (\n{hosts},\n{shared},\n)\n")
    return path
