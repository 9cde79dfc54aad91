"""A folder that several nodes must share, proved and not assumed."""

from pyinfra.api import FunctionCommand, Host, State, operation
from pyinfra.context import host

from shakedown.common.text import file_name
from shakedown.operations import atomic
from shakedown.operations.commands import Commands, refused

PATIENCE_S = 15  # a network file system may take some time to show a new file


@operation(is_idempotent=False)
def write_token(folder: str, token: str) -> Commands:
    """
    Leave a token of this node's in the folder. To be followed by `see_token` and `remove_token` on the same nodes.

    + folder: made where it is missing
    + token: the run's id

    **Example:**

    .. code:: python

        from shakedown.operations import shared_folder
        shared_folder.write_token(folder="/shared/cache", token="20260101T000000-abcdef")
        shared_folder.see_token(folder="/shared/cache", token="20260101T000000-abcdef")
        shared_folder.remove_token(folder="/shared/cache", token="20260101T000000-abcdef")
    """
    yield atomic.command("token", folder=folder, name=_name(token, host.name), content=host.name)


@operation(is_idempotent=False)
def see_token(folder: str, token: str) -> Commands:
    """
    Fail this node unless it sees, in the folder, the token of the first node that is still active.

    + folder, token: as for `write_token`, whose example has this operation too
    """
    yield FunctionCommand(_see, (folder, token), {})


@operation(is_idempotent=False)
def remove_token(folder: str, token: str) -> Commands:
    """
    Take this node's token away again.

    + folder, token: as for `write_token`, whose example has this operation too
    """
    yield atomic.command("untoken", folder=folder, name=_name(token, host.name))


def _see(state: State, host: Host, folder: str, token: str) -> bool:
    active = set(state.inventory.get_active_hosts())
    first = next(active_host for active_host in state.inventory if active_host in active)
    marker = {"folder": folder, "name": _name(token, first.name), "content": first.name}
    done, _output = atomic.run_script(host, "files.py", {"do": "see", **marker, "patience_s": PATIENCE_S}, show=False)
    if done:
        return True
    atomic.run_script(host, "files.py", {"do": "untoken", **marker, "name": _name(token, host.name)}, show=False)
    return refused(state, host, f"{folder} is not the folder that {first.name} has: mount the same file system there")


def _name(token: str, node: str) -> str:
    return f".shakedown-{file_name(token)}-{file_name(node)}"
