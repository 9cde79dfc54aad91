"""
A folder that several nodes must share, proved and not assumed.
"""

from __future__ import annotations

import re

from pyinfra.api.command import FunctionCommand, QuoteString, StringCommand
from pyinfra.api.host import Host
from pyinfra.api.operation import operation
from pyinfra.api.state import State
from pyinfra.context import host

from operations.commands import Commands, refused

PATIENCE_S = 15  # a network file system may take some time to show a new file


@operation(is_idempotent=False)
def write_token(folder: str, token: str) -> Commands:
    """
    Leave a token of this node's in the folder. To be followed by `see_token` and `remove_token` on the same nodes.

    + folder: made where it is missing
    + token: the run's id

    **Example:**

    .. code:: python

        from operations import shared_folder
        shared_folder.write_token(folder="/shared/cache", token="20260101T000000-abcdef")
        shared_folder.see_token(folder="/shared/cache", token="20260101T000000-abcdef")
        shared_folder.remove_token(folder="/shared/cache", token="20260101T000000-abcdef")
    """
    path = _path(folder, token, host.name)
    yield StringCommand("mkdir -p", QuoteString(folder), "&& echo", QuoteString(host.name), ">", QuoteString(path))


@operation(is_idempotent=False)
def see_token(folder: str, token: str) -> Commands:
    """
    Fail this node unless it sees, in the folder, the token of the first node that is still active.

    + folder: as for `write_token`
    + token: as for `write_token`

    **Example:**

    .. code:: python

        from operations import shared_folder
        shared_folder.see_token(folder="/shared/cache", token="20260101T000000-abcdef")
    """
    yield FunctionCommand(_see, (folder, token), {})


@operation(is_idempotent=False)
def remove_token(folder: str, token: str) -> Commands:
    """
    Take this node's token away again.

    + folder: as for `write_token`
    + token: as for `write_token`

    **Example:**

    .. code:: python

        from operations import shared_folder
        shared_folder.remove_token(folder="/shared/cache", token="20260101T000000-abcdef")
    """
    yield StringCommand("rm -f", QuoteString(_path(folder, token, host.name)))


def _see(state: State, host: Host, folder: str, token: str) -> bool:
    active = set(state.inventory.get_active_hosts())
    first = next(each for each in state.inventory if each in active)
    path = QuoteString(_path(folder, token, first.name))
    wait = StringCommand(
        "for i in $(seq", str(PATIENCE_S), "); do cat", path, "2>/dev/null && exit 0; sleep 1; done; exit 1"
    )
    done, output = host.run_shell_command(wait, print_output=False, print_input=False)
    if done and output.stdout_lines[-1:] == [first.name]:
        return True
    host.run_shell_command(StringCommand("rm -f", QuoteString(_path(folder, token, host.name))))
    return refused(state, host, f"{folder} is not the folder that {first.name} has: mount the same file system there")


def _path(folder: str, token: str, node: str) -> str:
    return f"{folder}/.shakedown-{token}-{re.sub(r'[^A-Za-z0-9._-]', '_', node)}"
