"""Where the jobs of a run are started, as the desired state or the command line says."""

from __future__ import annotations

import atexit
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

from pyinfra.api.exceptions import PyinfraError

from shakedown.runner.session import Session
from shakedown.runner.slurm_connection import allocation_of, connected, same
from shakedown.schedulers.slurm.job import Allocation
from shakedown.smoke.remote import Remote
from shakedown.smoke.where import Interrupted, Where


def via_of(current: Session) -> str:
    """How the smoke run's jobs are started. Raises PyinfraError where hosts are to train together and differ in it."""
    wanted = {name: each.smoke.via for name, each in current.examination.desired.items() if each.smoke}
    try:
        return same("smoke.via", wanted)
    except ValueError as error:
        raise PyinfraError(str(error)) from None


def where_of(current: Session, via: str) -> Where | None:
    """What brings jobs to the nodes, one for the whole run; None: pyinfra's own connections. Raises PyinfraError."""
    if via == "ssh":
        return None
    held = connected(current.state).allocation
    if held is not None:
        return _Held(held)
    with current.lock:
        if "slurm" not in current.shared:
            title = f"shakedown-{current.record.run_id}" if current.record else "shakedown"
            try:
                made = allocation_of(current.examination.desired, title)
            except ValueError as error:
                raise PyinfraError(str(error)) from None
            current.shared["slurm"] = _UntilTheEnd(made)
            current.closing.append(made.end)
            atexit.register(made.end, cancel=True)  # of a run that is never closed
    where = current.shared["slurm"]
    assert isinstance(where, _UntilTheEnd)
    return where


class _Held:
    """The allocation that the hosts are connected through: it goes when the last is disconnected."""

    def __init__(self, allocation: Allocation) -> None:
        self._allocation = allocation

    def allocate(self, among: Sequence[str], say: Callable[[str], None], interrupted: Interrupted) -> None:
        """It is there: who is not in it was not connected."""

    def start(self, title: str, among: Sequence[str]) -> AbstractContextManager[Remote]:
        """A step of its own."""
        return self._allocation.start(title, among)

    def end(self, cancel: bool = False) -> None:
        """Later."""


class _UntilTheEnd(_Held):
    """One allocation for all stages of a run, made by the first: who gave it back between them would queue anew."""

    def allocate(self, among: Sequence[str], say: Callable[[str], None], interrupted: Interrupted) -> None:
        """The first time, or for nodes that are not in it."""
        self._allocation.allocate(among, say, interrupted)

    def end(self, cancel: bool = False) -> None:
        """When somebody has stopped the run; otherwise when it is closed."""
        if cancel:
            self._allocation.end(cancel=True)
