"""What every operation yields, and reading again what was just changed."""

from collections.abc import Callable, Generator, Iterable

from pyinfra import context, logger
from pyinfra.api import FunctionCommand, Host, OperationValueError, State
from pyinfra.api.command import PyinfraCommand
from pyinfra.api.output import format_text
from pyinfra.operations.util.files import generate_color_diff

from shakedown.desired.values import MODULE, SYSCTL_KEY, is_account
from shakedown.facts.base import expect
from shakedown.node.cmdline import kernel_name

# What a command may take that is not done in the few minutes that `runner.connection` gives to any other, seconds.
INSTALL_S = 7200  # packages and checkouts, over the network
DATA_S = 172_800  # data sets: terabytes to download, or days of a program's work

RESTORES = "shakedown_restores"
"""Of a host's connector_data: what a rollback restores there, a line for each setting; shown at the end of the run."""

Commands = Generator[PyinfraCommand, None, None]


def show_change(what: str, before: Iterable[str] | None, after: Iterable[str]) -> None:
    """With --diff, show the change as pyinfra does. Call it before the first command: a dry run goes no further."""
    if not context.state.config.DIFF:
        return
    context.host.log(f"Will {'create' if before is None else 'modify'} {format_text(what, bold=True)}", logger.info)
    for line in generate_color_diff(list(before or []), list(after)):
        logger.info("  %s", line)
    logger.info("")


def verify(wrong: Callable[[], str | None]) -> FunctionCommand:
    """Return a command that reads the node again and fails this host with the words of `wrong`, if there are any.
    Raising in an operation's generator would end the run for all hosts, and raising here would show a traceback."""

    def verified(state: State, host: Host) -> bool:
        problem = wrong()
        return problem is None or refused(state, host, problem)

    return FunctionCommand(verified, (), {})


def refuse(reason: str) -> FunctionCommand:
    """Return a command that fails this host, because the operation cannot be done there."""
    return FunctionCommand(refused, (reason,), {})


def refused(state: State, host: Host, reason: str) -> bool:
    """Say why and fail the host."""
    host.log_styled(reason, fg="red", log_func=logger.error)
    return False


# Names that an operation is given, refused where they could mean something else to a shell, a file or a path.


def module_names(names: Iterable[str]) -> list[str]:
    """Return the modules as the kernel names them. Raise OperationValueError."""
    modules = list(names)
    expect(MODULE, "a kernel module", *modules)
    return [kernel_name(name) for name in modules]


def sysctl_key(name: str) -> str:
    """Return a sysctl key that leads nowhere but below /proc/sys. Raise OperationValueError."""
    expect(SYSCTL_KEY, "a sysctl key", name)
    return name


def check_accounts(*names: str) -> None:
    """Raise OperationValueError for what no user or group could be called."""
    for name in names:
        if not is_account(name):
            raise OperationValueError(f"not a name of a user or group: {name!r}")
