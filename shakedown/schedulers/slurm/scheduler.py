"""Slurm as the owner of nodes."""

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence

from shakedown.schedulers import interface
from shakedown.schedulers.registry import scheduler
from shakedown.schedulers.slurm import commands, nodes
from shakedown.schedulers.slurm.commands import SlurmError, as_list, names
from shakedown.schedulers.slurm.job import Allocation
from shakedown.schedulers.slurm.settings import Settings


@functools.cache
def _range(pattern: str) -> frozenset[str]:
    return frozenset(names(pattern))


# What nodes are chosen by: the word before "=", and whether a node has the value.
CONDITIONS: dict[str, Callable[[nodes.Node, str], bool]] = {
    "partition": lambda node, value: value in node.partitions,
    "reservation": lambda node, value: node.reservation == value,
    "feature": lambda node, value: value in node.features,
    "nodes": lambda node, value: node.name in _range(value),
}


def _reserved(node: nodes.Node, reservation: str) -> str:
    """Return why a reservation keeps the node from us: the inventory does not name it. Empty: none does."""
    if not {"RESERVED", "MAINT", "MAINTENANCE"} & set(node.states) or (reservation and node.reservation == reservation):
        return ""
    name = f" {node.reservation}" if node.reservation else ""
    return f"{'+'.join(node.states).lower()}: in the reservation{name}, which the inventory does not name"


@scheduler
class Slurm(interface.Scheduler):
    """Slurm, through its commands on this machine."""

    title = "Slurm"
    of_node = frozenset({"node", "allow_allocated", "connect"})

    def read(self, names: Iterable[str] = ()) -> Sequence[nodes.Node]:
        return nodes.read(names)

    def drain(self, name: str, reason: str) -> None:
        commands.update_nodes([name], "State=DRAIN", f"Reason={reason}")

    def resume(self, name: str, reason: str) -> None:
        """Set State=RESUME, which takes the drain's reason away."""
        commands.update_nodes([name], "State=RESUME")

    def jobs_on(self, names: Iterable[str], beside: interface.Allocation | None = None) -> dict[str, list[str]]:
        """Return the jobs of others that hold each node, as "4711 of alice"."""
        return nodes.jobs_on(names, but=beside.job if isinstance(beside, Allocation) else None)

    def choose(self, conditions: Sequence[str], allow_allocated: bool) -> dict[str, str]:
        """Return the nodes of a partition, a reservation, a feature or a range, as "partition=mi300x"."""
        wanted = []
        for condition in conditions:
            key, sign, value = condition.partition("=")
            if not (sign and value) or key not in CONDITIONS:
                expected = ", ".join(f'"{name}=..."' for name in CONDITIONS)
                raise ValueError(f"{condition!r}: expected one of {expected}")
            wanted.append((key, value))
        reservation = dict(wanted).get("reservation", "")
        there = nodes.read()
        chosen = [node for node in there if all(CONDITIONS[key](node, value) for key, value in wanted)]
        named = {name for key, value in wanted if key == "nodes" for name in _range(value)}
        absent = as_list(named - {node.name for node in there})
        if absent or not chosen:
            raise SlurmError(f"Slurm has no {f'node {absent}' if absent else 'such node'}; see: scontrol show nodes")
        return {node.name: node.why_not(allow_allocated) or _reserved(node, reservation) for node in chosen}

    def allocation(self, names: Mapping[str, str], title: str) -> Allocation:
        return Allocation(names, Settings(**self.settings), title)

    def refused(self, names: Mapping[str, str]) -> dict[str, str]:
        """Return drained and lost nodes, and ask about the others with sbatch --test-only."""
        return self.allocation(names, "shakedown").ask(list(names))
