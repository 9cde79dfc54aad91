"""Where jobs run, as one small interface: over connections that are there, or within an allocation of a scheduler.

What starts, watches and ends a job on a node is the launcher, whoever brings it there (`shakedown/jobs/remote.py`).
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext

from shakedown.schedulers.interface import Allocation as Where
from shakedown.schedulers.interface import Interrupted, Remote

__all__ = ["Connected", "Interrupted", "Where"]


class Connected:
    """Over connections that are there, as pyinfra's: there is nothing to wait for and nothing to give back."""

    def __init__(self, remote: Remote) -> None:
        self._remote = remote

    def allocate(self, among: Sequence[str], say: Callable[[str], None], interrupted: Interrupted) -> None:
        """Nothing: whoever is connected is there."""

    def start(self, title: str, among: Sequence[str]) -> AbstractContextManager[Remote]:
        """Use the connections."""
        return nullcontext(self._remote)

    def lost(self) -> str | None:
        """None: a connection that is gone is one node's."""
        return None

    def end(self, cancel: bool = False) -> None:
        """Nothing."""
