"""Our own commands as programs of their own: what a person would type, one run each, with its directory and its record.

Ctrl-C and SIGTERM are handed on once, so that the command ends in its own way, and are known here afterwards.
"""

import fcntl
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any

from shakedown.common import private
from shakedown.common.runs_folder import runs_folder
from shakedown.common.secrets import masked, values_of
from shakedown.common.text import load_json
from shakedown.desired.layers import Layer, merge
from shakedown.runner.pyinfra.invocation import INTERRUPTED, SIGNALS, invocation
from shakedown.runner.pyinfra.site_files import DEPLOYS

_TURN_S = 0.1
LOCK = "service.lock"  # of a folder of runs; the commands that are run hold it too, so that an orphan is not overtaken


class Busy(Exception):
    """Another process holds the lock."""


@contextmanager
def alone() -> Iterator[tuple[int, Path]]:
    """Hold the lock while this process or a command of it lives. Yield descriptor and path. Raise Busy, OSError."""
    private.make_folders(runs_folder())
    path = runs_folder() / LOCK
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Busy(f"{path} is held: another `shakedown service`, or a command of one, is at work") from None
        yield fd, path.absolute()
    finally:
        os.close(fd)


@dataclass
class Commands:
    """Commands over one inventory, as this one was called."""

    inventory: str
    data: tuple[str, ...] = ()
    parallel: int = 0
    lock: int | None = None  # a descriptor that they hold, too
    interrupted: bool = False
    _running: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    def mend(self, hosts: Sequence[str]) -> list[str]:
        """Return the command for everything but the training."""
        return [_program("shakedown"), "run", self.inventory, "--no-smoke", *self._over(hosts)]

    def deploy(self, name: str, hosts: Sequence[str], **changed: dict[str, Any]) -> list[str]:
        """Return the command for a deploy file. `changed`: sections of the desired state with other values in them."""
        return [_program("pyinfra"), self.inventory, str(DEPLOYS / f"{name}.py"), "-y", *self._over(hosts, changed)]

    def check(self, hosts: Sequence[str]) -> list[str]:
        """Return the command for a check that the ledger keeps."""
        return [_program("shakedown"), "drift", self.inventory, "--ledger", *self._over(hosts)]

    def trials(self, names: Sequence[str], hosts: Sequence[str]) -> list[str]:
        """Return the command for some trials."""
        return [_program("shakedown"), "trials", self.inventory, "--only", ",".join(names), *self._over(hosts)]

    def _over(self, hosts: Sequence[str], changed: dict[str, dict[str, Any]] | None = None) -> list[str]:
        if not hosts:  # a command without --limit would be over the whole inventory
            raise ValueError("a command over no host")
        given = dict(item.partition("=")[::2] for item in self.data)
        for section, values in (changed or {}).items():
            own = json.loads(given[section]) if section in given else {}
            given[section] = json.dumps(merge([Layer("data", own), Layer("changed", values)]).values)
            for name in values:  # a dotted key would win
                given.pop(f"{section}.{name}", None)
        words = [word for host in hosts for word in ("--limit", host)]
        words += [word for key, value in given.items() for word in ("--data", f"{key}={value}")]
        return words + (["--parallel", str(self.parallel)] if self.parallel else [])

    def run(self, argv: Sequence[str]) -> int:
        """Run a command to its end, with its output on our standard error. Return its exit code; 127 where it cannot be
        run, 130 where a signal came before it could begin."""
        if self.interrupted:
            return INTERRUPTED
        sys.stderr.write(f"\n$ {shown(argv)}\n")
        sys.stderr.flush()
        try:
            self._running = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=sys.stderr.fileno(),
                start_new_session=True,  # a terminal's Ctrl-C reaches it through us, and once
                pass_fds=[] if self.lock is None else [self.lock],
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
            )
        except OSError as error:
            sys.stderr.write(f"shakedown: {argv[0]}: {error.strerror}\n")
            return 127
        process = self._running
        try:
            if self.interrupted:  # while it was started
                process.send_signal(signal.SIGTERM)
            while process.poll() is None:
                time.sleep(_TURN_S)
        finally:
            self._running = None
        return process.returncode

    @contextmanager
    def handing_on(self) -> Iterator[None]:
        """Hand signals to the command that runs; the second signal kills it."""

        def hand_on(number: int, _frame: FrameType | None) -> None:
            process, again = self._running, self.interrupted
            self.interrupted = invocation.interrupted = True
            if process is not None and process.poll() is None:
                process.send_signal(signal.SIGKILL if again else number)

        before = {number: signal.getsignal(number) for number in SIGNALS}
        for number, handler in before.items():
            if handler != signal.SIG_IGN:
                signal.signal(number, hand_on)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def shown(argv: Sequence[str]) -> str:
    """Return a command as a person would type it, without the value of any secret that stands in its --data."""
    return str(masked(shlex.join([Path(argv[0]).name, *argv[1:]]), more=_secrets(argv)))


def _secrets(argv: Sequence[str]) -> set[str]:
    given: dict[str, Any] = {}
    for option, word in pairwise(argv):
        if option == "--data":
            name, _, value = word.partition("=")
            try:
                given[name] = load_json(value, len(value))
            except ValueError:
                given[name] = value
    return values_of(given)


def _program(name: str) -> str:
    return str(Path(sys.executable).with_name(name))
