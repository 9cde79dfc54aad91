"""What every operation yields, and reading again what was just changed."""

from __future__ import annotations

from collections.abc import Callable, Generator

from pyinfra.api.command import FunctionCommand, PyinfraCommand
from pyinfra.api.exceptions import OperationError

Commands = Generator[PyinfraCommand, None, None]


def verify(wrong: Callable[[], str | None]) -> FunctionCommand:
    """A command that reads the node again and fails this host with what `wrong` says, if it says anything.

    An exception inside a FunctionCommand fails one host; in an operation's generator it would end the run for all.
    """

    def verified() -> None:
        problem = wrong()
        if problem:
            raise OperationError(problem)

    return FunctionCommand(verified, (), {})


def refuse(reason: str) -> FunctionCommand:
    """A command that fails this host because the operation cannot be done there."""
    return verify(lambda: reason)
