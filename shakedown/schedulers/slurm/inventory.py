"""Nodes chosen by what Slurm says of them, for an inventory: which are free, and why the others are left out."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

from shakedown.schedulers.slurm.commands import SlurmError, as_list, names
from shakedown.schedulers.slurm.nodes import Node, read


@functools.cache
def _range(pattern: str) -> frozenset[str]:
    return frozenset(names(pattern))


# What nodes are chosen by: the word before "=", and whether a node has the value.
CONDITIONS: dict[str, Callable[[Node, str], bool]] = {
    "partition": lambda node, value: value in node.partitions,
    "reservation": lambda node, value: node.reservation == value,
    "feature": lambda node, value: value in node.features,
    "nodes": lambda node, value: node.name in _range(value),
}


def chosen(conditions: Sequence[str], allow_allocated: bool) -> dict[str, str]:
    """The nodes for which all conditions hold, in Slurm's order, each with why it cannot be used; empty: it can.

    Raises ValueError for a condition that cannot be read, where Slurm does not answer, and where it has no such node.
    """
    wanted = _conditions(conditions)
    reservation = dict(wanted).get("reservation", "")
    told = f"slurm({', '.join(map(repr, conditions))})"
    try:
        there = read()
        found = [node for node in there if all(CONDITIONS[key](node, value) for key, value in wanted)]
        named = {name for key, value in wanted if key == "nodes" for name in _range(value)}
        absent = as_list(named - {node.name for node in there})
    except SlurmError as error:
        raise ValueError(f"{told}: {error}") from error
    if absent:
        raise ValueError(f"{told}: Slurm has no node {absent}; what it has is shown by: scontrol show nodes")
    if not found:
        raise ValueError(f"{told}: Slurm has no such node; what it has is shown by: scontrol show nodes")
    return {node.name: node.why_not(allow_allocated) or _reserved(node, reservation) for node in found}


def _conditions(given: Sequence[str]) -> list[tuple[str, str]]:
    wanted = []
    for condition in given:
        key, sign, value = condition.partition("=")
        if not (sign and value) or key not in CONDITIONS:
            expected = ", ".join(f'"{known}=..."' for known in CONDITIONS)
            raise ValueError(f"slurm({condition!r}): expected one of {expected}")
        wanted.append((key, value))
    return wanted


def _reserved(node: Node, reservation: str) -> str:
    """Why a node of a reservation is none of ours, where the inventory does not name that reservation."""
    if not {"RESERVED", "MAINT", "MAINTENANCE"} & set(node.states) or (reservation and node.reservation == reservation):
        return ""
    name = f" {node.reservation}" if node.reservation else ""
    return f"{'+'.join(node.states).lower()}: in the reservation{name}, which is not asked for"
