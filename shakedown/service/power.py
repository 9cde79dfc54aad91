"""A node's power, through the site's own command."""

import os
import re
import signal
import socket
import subprocess
import tempfile

from shakedown.common.secret_file import SecretError, read_secret
from shakedown.common.text import printable
from shakedown.desired.models import Bmc

_NODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}", re.ASCII)
_KEPT = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "TZ")
_OUTPUT = 2000  # bytes of the command's output that an error shows
OWN_POWER = "{node} is the machine that runs this command, which never cuts its own power: do it by hand"


class PowerError(Exception):
    """The node's power could not be cycled. The text has the reason, and never the password."""


def command_for(bmc: Bmc, node: str) -> list[str]:
    """Return the command for a node. Raises PowerError for a name that looks like an option or a path."""
    if not _NODE.fullmatch(node):
        raise PowerError(f"{printable(node, 100)!r} is no safe name for a command")
    return [part.replace("{node}", node) for part in bmc.command]


def is_here(node: str) -> bool:
    """Return whether a name or address is of this machine: a silent node has no boot id to compare."""
    own, name = socket.gethostname().lower(), node.lower()
    if name == own or (("." not in name or "." not in own) and name.partition(".")[0] == own.partition(".")[0]):
        return True
    try:
        addresses = socket.getaddrinfo(node, None, type=socket.SOCK_DGRAM)
    except (OSError, UnicodeError):
        return False
    return any(_is_local(family, place) for family, *_, place in addresses)


def _is_local(family: int, place: tuple[object, ...]) -> bool:
    """Return whether an address is this machine's own: no process can bind another's."""
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((place[0], 0, *place[2:]))
    except OSError:
        return False
    return True


def cycle(bmc: Bmc, node: str, lock: int | None = None, address: str = "") -> None:
    """Cycle a node's power. Raises PowerError. The command gets password, PATH and HOME, and holds `lock`, too.
    `address`: where the inventory connects to, if not to the name."""
    argv = command_for(bmc, node)
    if is_here(node) or (address and is_here(address)):
        raise PowerError(OWN_POWER.format(node=node))
    env = {name: os.environ[name] for name in _KEPT if name in os.environ}
    password = _password(bmc)
    if password:
        env[bmc.password_as] = password
    held = () if lock is None else (lock,)
    with tempfile.TemporaryFile() as out:
        try:
            process = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=env, start_new_session=True, pass_fds=held
            )
        except OSError as error:
            raise PowerError(f"service.bmc: {argv[0]}: {error.strerror}") from None
        try:
            code = process.wait(bmc.timeout_s)
        except subprocess.TimeoutExpired:
            raise PowerError(f"service.bmc: {argv[0]} took more than {bmc.timeout_s} s, and was killed") from None
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        if code:
            raise PowerError(f"service.bmc: {argv[0]} ended with {code}: {_output(out.fileno(), password)}")


def _password(bmc: Bmc) -> str:
    if bmc.password_file:
        try:
            return read_secret(bmc.password_file)
        except SecretError as error:
            raise PowerError(f"service.bmc.password_file: {error}") from None
    if bmc.password_env:
        if bmc.password_env not in os.environ:
            raise PowerError(f"service.bmc.password_env: the variable {bmc.password_env} is not set")
        return os.environ[bmc.password_env]
    return ""


def _output(fd: int, password: str) -> str:
    size, more = os.fstat(fd).st_size, len(password.encode())
    begin = max(size - _OUTPUT - more, 0)
    text = os.pread(fd, _OUTPUT + more, begin).decode("utf-8", "replace")
    if password:
        text = text.replace(password, "***")[more if begin else 0 :]  # a cut password is removed too
    return printable(text, 400).strip() or "no output"
