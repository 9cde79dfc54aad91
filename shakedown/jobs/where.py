"""Where jobs run, as one small interface: over connections that are there, or within an allocation of a scheduler.

What starts, watches and ends a job on a node is the launcher, whoever brings it there (`shakedown/jobs/remote.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

from shakedown.jobs.remote import Remote

Interrupted = Callable[[], str | None]


class Where(Protocol):
    """Nodes to run jobs on."""

    def allocate(self, among: Sequence[str], say: Callable[[str], None], interrupted: Interrupted) -> None:
        """Have these nodes, by their names in the inventory; nothing where they are had already. It may wait for them,
        and says what for. Raises an error that a person can read where they are not to be had."""

    def start(self, title: str, among: Sequence[str]) -> AbstractContextManager[Remote]:
        """A way to the nodes for one job over some of them, which collects its logs and results too; for as long as
        the context lasts. Raises an error that a person can read."""

    def lost(self) -> str | None:
        """Why all the nodes were taken away while jobs ran; None: they were not. Raises nothing."""

    def end(self, cancel: bool = False) -> None:
        """Let the nodes go, all jobs being over; `cancel`: because somebody has stopped them. Raises nothing."""


class Connected:
    """Over connections that are there, as pyinfra's: there is nothing to wait for and nothing to give back."""

    def __init__(self, remote: Remote) -> None:
        self._remote = remote

    def allocate(self, among: Sequence[str], say: Callable[[str], None], interrupted: Interrupted) -> None:
        """Nothing: whoever is connected is there."""

    def start(self, title: str, among: Sequence[str]) -> AbstractContextManager[Remote]:
        """The connections."""
        return nullcontext(self._remote)

    def lost(self) -> str | None:
        """None: a connection that is gone is one node's."""
        return None

    def end(self, cancel: bool = False) -> None:
        """Nothing."""
