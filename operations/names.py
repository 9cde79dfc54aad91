"""Names that an operation is given, refused where they could mean something else to a shell, a file or a path."""

import re
from collections.abc import Iterable

from pyinfra.api.exceptions import OperationValueError

from shakedown.desired.values import MODULE, SYSCTL_KEY, is_account
from shakedown.node.cmdline import kernel_name


def modules(names: Iterable[str]) -> list[str]:
    """Return the modules as the kernel names them. Raise OperationValueError."""
    return [kernel_name(_matching(MODULE, "kernel module", name)) for name in names]


def sysctl_key(name: str) -> str:
    """Return a sysctl key that leads nowhere but below /proc/sys. Raise OperationValueError."""
    return _matching(SYSCTL_KEY, "sysctl key", name)


def accounts(*names: str) -> None:
    """Raise OperationValueError for what no user or group could be called."""
    for name in names:
        if not is_account(name):
            raise OperationValueError(f"not a name of a user or group: {name!r}")


def _matching(pattern: re.Pattern[str], what: str, name: str) -> str:
    if not pattern.fullmatch(name):
        raise OperationValueError(f"not a {what}: {name!r}")
    return name
