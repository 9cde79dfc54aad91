"""What every operation yields, and reading again what was just changed."""

from __future__ import annotations

from collections.abc import Callable, Generator

from pyinfra import logger
from pyinfra.api.command import FunctionCommand, PyinfraCommand
from pyinfra.api.host import Host
from pyinfra.api.state import State

Commands = Generator[PyinfraCommand, None, None]


def verify(wrong: Callable[[], str | None]) -> FunctionCommand:
    """A command that reads the node again and fails this host with what `wrong` says, if it says anything.

    Raising in an operation's generator would end the run for all hosts, and raising here would show a traceback.
    """

    def verified(state: State, host: Host) -> bool:
        problem = wrong()
        if problem:
            host.log_styled(problem, fg="red", log_func=logger.error)
        return problem is None

    return FunctionCommand(verified, (), {})


def refuse(reason: str) -> FunctionCommand:
    """A command that fails this host because the operation cannot be done there."""
    return verify(lambda: reason)
