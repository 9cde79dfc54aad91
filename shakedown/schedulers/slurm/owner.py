"""Slurm as the owner of nodes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from shakedown.schedulers.slurm import commands, nodes


class Slurm:
    """Drained and resumed by scontrol."""

    title = "Slurm"

    def read(self, names: Iterable[str] = ()) -> Sequence[nodes.Node]:
        """The nodes, all or those named."""
        return nodes.read(names)

    def drain(self, name: str, reason: str) -> None:
        """State=DRAIN, with the reason."""
        commands.update_nodes([name], "State=DRAIN", f"Reason={reason}")

    def resume(self, name: str, why: str) -> None:
        """State=RESUME, which takes the reason away."""
        commands.update_nodes([name], "State=RESUME")
