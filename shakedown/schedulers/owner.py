"""Who owns the nodes of a site, Slurm or Kubernetes, as one small interface: read them, take one out, put it back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol


class SchedulerError(Exception):
    """A scheduler that could not be asked or would not do it; the text names what was asked, and the remedy."""


class Node(Protocol):
    """A node as its scheduler has it."""

    @property
    def name(self) -> str:
        """Its name there."""

    @property
    def states(self) -> Sequence[str]:
        """In the scheduler's own words, for a person."""

    @property
    def reason(self) -> str:
        """Why it is out of service, as whoever took it out has written; empty where nobody has."""

    @property
    def drained(self) -> bool:
        """Whether it takes no new jobs, because somebody says so."""

    @property
    def down(self) -> bool:
        """Whether it cannot take jobs now."""

    @property
    def allocated(self) -> bool:
        """Whether somebody's job is on it."""

    def why_not(self, allow_allocated: bool = False) -> str:
        """Why the node cannot be used, for a person to read; empty: it can."""


class Owner(Protocol):
    """A scheduler. All methods raise SchedulerError."""

    @property
    def title(self) -> str:
        """What people call it."""

    def read(self, names: Iterable[str] = ()) -> Sequence[Node]:
        """The nodes, all or those named."""

    def drain(self, name: str, reason: str) -> None:
        """Take a node out of service: no new job comes there, and what runs goes on."""

    def resume(self, name: str, why: str) -> None:
        """Take away what `drain` has set."""


def owner_of(kind: str, context: str | None = None) -> Owner:
    """The scheduler of this kind. `context`: of a kubeconfig."""
    if kind == "kubernetes":
        from shakedown.schedulers.kubernetes.owner import Kubernetes

        return Kubernetes(context)
    from shakedown.schedulers.slurm.owner import Slurm

    return Slurm()
