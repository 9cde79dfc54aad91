"""Reboot nodes that wait for it, a few at a time, and see each come back before the next one goes."""

from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from weakref import WeakKeyDictionary

import gevent
from gevent.lock import BoundedSemaphore
from pyinfra import logger
from pyinfra.api import FunctionCommand, Host, State, StringCommand, operation
from pyinfra.connectors.util import clear_askpass_cache, remove_any_sudo_askpass_file
from pyinfra.context import host

from shakedown.checks.tuning import missing
from shakedown.facts.settings import Contents
from shakedown.node.cmdline import parse_words
from shakedown.operations.atomic import connector
from shakedown.operations.commands import Commands, refuse, refused, verify

BOOT_ID = "/proc/sys/kernel/random/boot_id"
CMDLINE = "/proc/cmdline"
INTERVAL_S = 2.0
ATTEMPT_S = 15.0  # one attempt to connect and to ask; a host that is going down may accept and never answer

# Detached, so that the channel closes before the network goes.
_REBOOT = "( sleep 1; PATH=$PATH:/usr/sbin:/sbin; systemctl reboot || reboot ) </dev/null >/dev/null 2>&1 &"


@dataclass
class _Turn:
    """How many nodes of one run may be down together, and those that never came back."""

    free: BoundedSemaphore
    lost: list[str] = field(default_factory=list)


# What the hosts of one run share, found by pyinfra's state of that run, as in images.py.
_turns: WeakKeyDictionary[State, _Turn] = WeakKeyDictionary()


@operation()
def when_needed(parameters: list[str], at_once: int = 1, timeout_s: int = 900) -> Commands:
    """
    Reboot a node whose running kernel lacks parameters, and wait until it has come back with another boot id.

    + parameters: kernel parameters that the running kernel should have
    + at_once: how many nodes may be down together
    + timeout_s: seconds until a node counts as lost; after that no further node is rebooted

    The machine that pyinfra runs on is never rebooted.

    **Example:**

    .. code:: python

        from shakedown.operations import reboot
        reboot.when_needed(name="Boot with the IOMMU in pass-through mode", parameters=["iommu=pt"])
    """
    files = host.get_fact(Contents, patterns=[CMDLINE, BOOT_ID])
    lacking = missing(parameters, parse_words(" ".join(files.get(CMDLINE) or [])))
    if not lacking:
        host.noop(f"the running kernel has {' '.join(parameters)}")
        return
    # Containers on the controller have its kernel, and its boot id, too.
    if files.get(BOOT_ID) == [boot_id_here()]:
        yield refuse("this is the machine that runs the deploy: it is not rebooted; reboot it by hand")
        return
    yield FunctionCommand(_reboot, (), {"at_once": at_once, "timeout_s": timeout_s})

    def wrong() -> str | None:
        line = host.get_fact(Contents, patterns=[CMDLINE]).get(CMDLINE) or []
        left = missing(parameters, parse_words(" ".join(line)))
        return f"came back without {' '.join(left)}: does the boot loader have it?" if left else None

    yield verify(wrong)


@operation()
def again(at_once: int = 1, timeout_s: int = 900) -> Commands:
    """
    Reboot a node whatever its state, and wait until it has come back with another boot id.

    + at_once: how many nodes may be down together
    + timeout_s: seconds until a node counts as lost; after that no further node is rebooted

    The machine that pyinfra runs on is never rebooted.

    **Example:**

    .. code:: python

        from shakedown.operations import reboot
        reboot.again(name="Have the firmware start anew", at_once=1)
    """
    if host.get_fact(Contents, patterns=[BOOT_ID]).get(BOOT_ID) == [boot_id_here()]:
        yield refuse("this is the machine that runs the deploy: it is not rebooted; reboot it by hand")
        return
    yield FunctionCommand(_reboot, (), {"at_once": at_once, "timeout_s": timeout_s})


def _reboot(state: State, host: Host, at_once: int, timeout_s: float) -> bool:
    turn = _turns.setdefault(state, _Turn(BoundedSemaphore(at_once)))
    with turn.free:
        if turn.lost:
            return refused(state, host, f"not rebooted, because {', '.join(turn.lost)} did not come back")
        if not (before := _boot_id(host)):
            return refused(state, host, f"not rebooted, because {BOOT_ID} could not be read")
        sent, output = host.run_shell_command(StringCommand(_REBOOT), **connector(host))
        if not sent:
            return refused(state, host, f"the reboot could not be started: {output.stderr}")
        remove_any_sudo_askpass_file(host)
        clear_askpass_cache(host)
        if _came_back(host, before, timeout_s):
            return True
        turn.lost.append(host.name)
        return refused(state, host, f"did not come back with another boot id within {timeout_s:g} s")


def _came_back(host: Host, before: str, timeout_s: float) -> bool:
    deadline = monotonic() + timeout_s
    while monotonic() < deadline:
        gevent.sleep(INTERVAL_S)
        now = None
        with gevent.Timeout(ATTEMPT_S, False):
            now = _ask_anew(host)
        if now and now != before:
            return True
    return False


def _ask_anew(host: Host) -> str | None:
    """Read the boot id over a new connection; None while there is none."""
    try:
        host.disconnect()
        host.connect(show_errors=False)
        return _boot_id(host) if host.connected else None
    except Exception as error:  # a host that goes down breaks a connection in any way there is
        logger.debug("%s: %s", host.name, error)
        return None


def _boot_id(host: Host) -> str | None:
    read, output = host.run_shell_command(StringCommand(f"cat {BOOT_ID}"), print_output=False, print_input=False)
    return output.stdout.strip() if read else None


def boot_id_here() -> str:
    """Return the boot id of the machine that runs this, which its containers have, too."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
