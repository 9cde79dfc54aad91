"""Where the jobs of a run are started, as the desired state or the command line says."""

from __future__ import annotations

import atexit
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import cast

from pyinfra.api.exceptions import PyinfraError

from shakedown.jobs.remote import Remote
from shakedown.jobs.where import Interrupted, Where
from shakedown.runner.jobs.slurm_connection import allocation_of, connected, same
from shakedown.runner.session import Session
from shakedown.schedulers.owner import SchedulerError


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
    title = f"shakedown-{current.record.run_id}" if current.record else "shakedown"
    desired = current.examination.desired
    try:
        if via == "kubernetes":
            from shakedown.runner.jobs.pods import pods_of

            return _once(current, via, lambda: pods_of(desired, title))
        held = connected(current.state).allocation
        return _Held(held) if held is not None else _once(current, via, lambda: allocation_of(desired, title))
    except (ValueError, SchedulerError) as error:
        raise PyinfraError(str(error)) from None


def _once(current: Session, via: str, make: Callable[[], Where]) -> Where:
    with current.lock:
        if via not in current.shared:
            made = make()
            current.shared[via] = _UntilTheEnd(made)
            current.closing.append(made.end)
            atexit.register(made.end, cancel=True)  # of a run that is never closed
        return cast(Where, current.shared[via])


class _Held:
    """What the hosts are connected through, as an allocation: it goes when the last is disconnected."""

    def __init__(self, allocation: Where) -> None:
        self._allocation = allocation

    def allocate(self, among: Sequence[str], say: Callable[[str], None], interrupted: Interrupted) -> None:
        """It is there: who is not in it was not connected."""

    def start(self, title: str, among: Sequence[str]) -> AbstractContextManager[Remote]:
        """A step of its own."""
        return self._allocation.start(title, among)

    def lost(self) -> str | None:
        """As the scheduler says."""
        return self._allocation.lost()

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
