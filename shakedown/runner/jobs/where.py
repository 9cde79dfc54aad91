"""Where the jobs of a run are started: over connections, or in an allocation of a scheduler."""

import atexit
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import cast

from pyinfra.api.exceptions import PyinfraError

from shakedown.jobs.remote import Interrupted, Where
from shakedown.runner.jobs.allocations import allocation_of, same
from shakedown.runner.jobs.connection import connected
from shakedown.runner.session import Session
from shakedown.schedulers.interface import Remote, SchedulerError


def via_of(current: Session) -> str:
    """Return how the smoke run's jobs are started. Raise PyinfraError where hosts of one job differ in that."""
    vias = {name: state.smoke.via for name, state in current.examination.desired.items() if state.smoke}
    try:
        return same("smoke.via", vias)
    except ValueError as error:
        raise PyinfraError(str(error)) from None


def where_of(current: Session, via: str) -> Where | None:
    """Return the way of all jobs of a run to their nodes; None: pyinfra's own connections. Raise PyinfraError."""
    if via == "ssh":
        return None
    title = f"shakedown-{current.record.run_id}" if current.record else "shakedown"
    desired = current.examination.desired
    try:
        if (held := connected(current.state, via).allocation) is not None:
            return _Held(held)
        return _once(current, via, lambda: allocation_of(desired, via, title))
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
    """The allocation through which the hosts are connected. It ends when the last host is disconnected."""

    def __init__(self, allocation: Where) -> None:
        self._allocation = allocation

    def allocate(self, among: Sequence[str], say: Callable[[str], None], interrupted: Interrupted) -> None:
        """Do nothing: a host outside of the allocation was not connected."""

    def start(self, title: str, among: Sequence[str]) -> AbstractContextManager[Remote]:
        """Open a step for one job."""
        return self._allocation.start(title, among)

    def lost(self) -> str | None:
        """Return what the scheduler says."""
        return self._allocation.lost()

    def end(self, cancel: bool = False) -> None:
        """Do nothing: the last host's connection ends it."""


class _UntilTheEnd(_Held):
    """One allocation for all stages of a run, made by the first: giving it back between them would queue anew."""

    def allocate(self, among: Sequence[str], say: Callable[[str], None], interrupted: Interrupted) -> None:
        """Allocate the first time, or for nodes that are missing."""
        self._allocation.allocate(among, say, interrupted)

    def end(self, cancel: bool = False) -> None:
        """End it when a person has stopped the run; otherwise the end of the run does."""
        if cancel:
            self._allocation.end(cancel=True)
