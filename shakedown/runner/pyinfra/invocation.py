"""How this process was called, what its run has come to so far, and the signals that end it.

The one variable of the whole process that is written to from several modules. It cannot hang on pyinfra's state: a
signal and the end of the process come without one, the exit code belongs to the process, and the command line is read
before there is a state. One process runs one command over one inventory, so there is one of it.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

from shakedown.common.text import printable
from shakedown.runner.pyinfra.deploys import Deploy

if TYPE_CHECKING:  # the guard loads this module into every pyinfra process
    from shakedown.state.findings import Verdict

USAGE = 2
INTERRUPTED = 130
NO_HOSTS = "No hosts remaining!"  # pyinfra's words, of which it has no class
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True)
class Search:
    """How a search for bad nodes was asked for."""

    run: Path | None = None  # directory of the run that failed: what it has shown
    resume: Path | None = None  # directory of a search that was not finished
    seconds: float | None = None  # at most
    rounds: int | None = None  # at most
    via: str | None = None  # how its jobs are started; None: as `smoke.via` says


@dataclass(frozen=True)
class Burn:
    """How a soak was asked for."""

    time: str = ""  # under load; empty: as the desired state says
    resume: Path | None = None  # directory of a soak that was ended
    fresh: bool = False  # a new one, though one could go on


@dataclass
class Invocation:
    """How this process was called, and what it has to answer for when it exits."""

    inventory: str = ""
    group_data: tuple[str, ...] = ()  # more folders of it
    dry: bool = False
    only: tuple[str, ...] = ()  # of the trials, or stages of a soak; empty: as the desired state says
    json: bool = False
    verbose: bool = False  # each line of pyinfra is to be shown, and not the counts of each operation
    shows: bool = False  # a preview was requested, and goes to standard output
    trains: bool = False  # a smoke run is part of it
    changes: bool = False  # operations on what differs are part of it
    deploys: list[Deploy] = field(default_factory=list)  # of this project
    examined: bool = False  # a deploy has looked at every host
    interrupted: bool = False
    connecting: bool = False  # from here on, whatever ends the run, `ending.finish` reports what became of the hosts
    ending: bool = False  # it does so: a first signal is only noted, and leaves no record half written
    reported: bool = False  # it has
    unrecorded: str = ""  # why the record of the run is not on disk: then it has failed
    error: str = ""  # what ended the run before its end, and was not the failure of every host
    search: Search = field(default_factory=Search)
    soak: Burn = field(default_factory=Burn)
    local: set[Callable[[], None]] = field(default_factory=set)  # each ends a process that this machine is waited for
    finish: Callable[[], Verdict] | None = None  # reports how the run ended, and returns the verdict

    def ended_by(self, error: BaseException) -> None:
        """Keep what ended the run. pyinfra wraps what others raise; that no host is left, the hosts say themselves."""
        cause = getattr(error, "exception", error)
        if isinstance(cause, EOFError):
            cause = RuntimeError("there is no terminal to ask on: give -y to go on without a question, or --dry")
        if not isinstance(cause, SystemExit) and str(cause) != NO_HOSTS:
            self.error = self.error or printable(f"{type(cause).__name__}: {cause}", 500)


invocation = Invocation()


class _Interrupt:
    """What a signal does. pyinfra's own handler exits with 0."""

    def __call__(self, _number: int, _frame: FrameType | None) -> None:
        again = invocation.interrupted
        self.note()
        if invocation.reported or (invocation.ending and again):
            os._exit(INTERRUPTED)
        if not invocation.connecting:
            end_before_connecting()
        if not again:  # a connection that does not answer can take seconds to close
            _write("\ninterrupted: closing the connections and the record\n")
        if invocation.ending:
            return
        for end in [*invocation.local]:  # whoever waits for it may not have another turn
            end()
        import gevent
        from pyinfra.context import ctx_state

        if ctx_state.isset() and ctx_state.get().initialised:
            ctx_state.get().pool.kill(block=False)  # or pyinfra would wait for them before it disconnects
        # The handler runs in whichever greenlet has its turn. A thread of paramiko's would drop the exception.
        hub = gevent.get_hub()
        if gevent.getcurrent() not in (hub, hub.parent):
            hub.handle_system_error(SystemExit, SystemExit(INTERRUPTED))
            return
        raise SystemExit(INTERRUPTED)

    def note(self) -> None:
        """Note that the run is interrupted. (While a job runs, operations/smoke.py has taken the signals over: it notes
        the first here, and stops the job on all nodes.)"""
        invocation.interrupted = True

    def noted(self) -> bool:
        """Tell whether the run was interrupted before: no further job begins."""
        return invocation.interrupted


def install_signal_handlers() -> None:
    """Have signals end a run as its own end does, with record and words. What is ignored (nohup) stays ignored."""
    for number in SIGNALS:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, _Interrupt())


def end_before_connecting() -> NoReturn:
    """Say how a run ended that has reached no host, and end the process where it stands: an exception from a signal
    could be taken for one of the module or the inventory that is being loaded."""
    _write("\nverdict: fail (interrupted)\n  before the first connection\n")
    _write("changed: nothing\nevidence: none was kept\n")
    os._exit(INTERRUPTED)


def _write(text: str) -> None:
    """Write to standard error from a signal's handler, where a stream's lock may be held."""
    with contextlib.suppress(OSError):
        os.write(2, text.encode())
