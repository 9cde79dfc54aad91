"""Slurm as the owner of nodes."""

from collections.abc import Iterable, Mapping, Sequence

from shakedown.schedulers import interface
from shakedown.schedulers.registry import scheduler
from shakedown.schedulers.slurm import commands, inventory, nodes
from shakedown.schedulers.slurm.job import Allocation
from shakedown.schedulers.slurm.settings import Settings


@scheduler
class Slurm(interface.Scheduler):
    """Slurm, through its commands on this machine."""

    title = "Slurm"
    of_node = frozenset({"node", "allow_allocated", "connect"})

    def read(self, names: Iterable[str] = ()) -> Sequence[nodes.Node]:
        """Return all nodes, or the named ones."""
        return nodes.read(names)

    def drain(self, name: str, reason: str) -> None:
        """Set State=DRAIN, with the reason."""
        commands.update_nodes([name], "State=DRAIN", f"Reason={reason}")

    def resume(self, name: str, reason: str) -> None:
        """Set State=RESUME, which takes the drain's reason away."""
        commands.update_nodes([name], "State=RESUME")

    def jobs_on(self, names: Iterable[str], beside: interface.Allocation | None = None) -> dict[str, list[str]]:
        """Return the jobs of others that hold each node, as "4711 of alice"."""
        return nodes.jobs_on(names, but=beside.job if isinstance(beside, Allocation) else None)

    def choose(self, conditions: Sequence[str], allow_allocated: bool) -> dict[str, str]:
        """Return the nodes of a partition, a reservation, a feature or a range, as "partition=mi300x"."""
        return inventory.choose(conditions, allow_allocated)

    def allocation(self, names: Mapping[str, str], title: str) -> Allocation:
        """Return one job over these nodes, which is submitted when it is needed."""
        return Allocation(names, Settings(**self.settings), title)

    def refused(self, names: Mapping[str, str]) -> dict[str, str]:
        """Return drained and lost nodes, and ask about the others with sbatch --test-only."""
        return self.allocation(names, "shakedown").ask(list(names))
