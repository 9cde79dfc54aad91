"""Nodes reached within an allocation of Slurm's instead of over SSH, where `slurm.connect` says so.

The first host that is connected has the allocation made, for all of these hosts; the last that is disconnected gives it
back. Everything that this package and pyinfra do on a host then goes through one step over all of them.
"""

from __future__ import annotations

import atexit
import base64
import io
import threading
from collections.abc import Mapping
from typing import Any

import click
from pyinfra.api import Host, State, StringCommand
from pyinfra.api.command import QuoteString
from pyinfra.api.exceptions import ConnectError
from pyinfra.api.util import get_file_io
from pyinfra.connectors.base import BaseConnector
from pyinfra.connectors.util import (
    CommandOutput,
    OutputLine,
    execute_command_with_sudo_retry,
    make_unix_command_for_host,
    write_stdin,
)

from shakedown.desired.layers import merge
from shakedown.desired.models import DesiredState, Slurm
from shakedown.hosts import named
from shakedown.runner.inventory import desired_states, layers_of
from shakedown.schedulers.slurm import nodes
from shakedown.schedulers.slurm.commands import SlurmError
from shakedown.schedulers.slurm.job import Allocation, Wanted
from shakedown.schedulers.slurm.step import Step

_LIMIT_S = 300.0  # for a command that names none


def connects_by_slurm(host: Host) -> bool:
    """Whether the host's layers say so, which are not typed yet when pyinfra makes its connectors."""
    if host.data.get("slurm") is None:  # most hosts of most sites
        return False
    section = merge(layer for layer in layers_of(host).layers if "slurm" in layer.values).values.get("slurm")
    return isinstance(section, dict) and section.get("connect") == "slurm"


def allocation_of(desired: Mapping[str, DesiredState], title: str) -> Allocation:
    """One for jobs over these hosts. Raises ValueError where they differ in how it is asked for."""
    sections = {name: each.slurm or Slurm() for name, each in desired.items()}
    for key in Slurm.model_fields:
        if key not in ("node", "allow_allocated", "connect"):
            same(f"slurm.{key}", {name: repr(getattr(each, key)) for name, each in sections.items()})
    section = next(iter(sections.values()), Slurm())
    wanted = Wanted(
        partition=section.partition,
        reservation=section.reservation,
        account=section.account,
        time_min=section.time_min,
        queue_s=section.queue_s,
        gres=section.gres,
        options=section.options,
    )
    return Allocation({name: each.node or name for name, each in sections.items()}, wanted, title)


def same(key: str, values: Mapping[str, str]) -> str:
    """The one value of hosts that share one job; "ssh" for none. Raises ValueError where they differ."""
    found: dict[str, list[str]] = {}
    for name, value in values.items():
        found.setdefault(value, []).append(name)
    if len(found) > 1:
        told = "; ".join(f"{value} on {named(names)}" for value, names in found.items())
        raise ValueError(f"{key} has to be the same on all hosts of a run: {told}")
    return next(iter(found), "ssh")


class Connected:
    """The hosts of one run that are reached within one allocation."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._lock = threading.Lock()
        self._hosts: set[str] = set()
        self._why: dict[str, str] = {}  # host -> why Slurm does not give it
        self._wrong = ""  # why it gives none
        self._step: Step | None = None
        self._context: Any = None
        self.allocation: Allocation | None = None

    def open(self, name: str) -> None:
        """Have the host in the step. Raises SlurmError, ValueError."""
        with self._lock:
            if self.allocation is None and not self._wrong:
                try:
                    self._allocate()
                except (SlurmError, ValueError) as error:
                    self._wrong = str(error)
            if name in self._why:
                raise SlurmError(self._why[name])
            if self._step is None:
                raise SlurmError(self._wrong or "the allocation has ended")
            self._hosts.add(name)

    def _allocate(self) -> None:
        desired = desired_states(self._state).states
        mine = {name: each for name, each in desired.items() if each.slurm and each.slurm.connect == "slurm"}
        names = {name: (each.slurm.node if each.slurm else None) or name for name, each in mine.items()}
        found = {node.name: node for node in nodes.read(names.values())}
        self._why = {name: why for name, of_slurm in names.items() if (why := found[of_slurm].why_not(True))}
        there = {name: each for name, each in mine.items() if name not in self._why}
        self.allocation = allocation_of(mine, "shakedown")
        if not there:
            return
        atexit.register(self.allocation.end, cancel=True)
        self.allocation.allocate(list(there), lambda text: click.echo(f"    {text}", err=True))
        self._context = self.allocation.start("connection", list(there))
        self._step = self._context.__enter__()

    def step(self) -> Step:
        """Raises SlurmError where it has ended."""
        if self._step is None:
            raise SlurmError("the allocation has ended")
        return self._step

    def close(self, name: str) -> None:
        """The host needs it no longer."""
        with self._lock:
            self._hosts.discard(name)
            if self._hosts or self._step is None or self.allocation is None:
                return
            self._step = None
            self._context.__exit__(None, None, None)
            self.allocation.end()


def connected(state: State) -> Connected:
    """Those of a run, made when the first is asked for."""
    found = getattr(state, "shakedown_slurm", None)
    if found is None:
        found = Connected(state)
        state.shakedown_slurm = found  # type: ignore[attr-defined]
    assert isinstance(found, Connected)
    return found


class SlurmConnector(BaseConnector):
    """Runs commands through the step; files travel in them."""

    handles_execution = True

    @staticmethod
    def make_names_data(name: str) -> Any:
        raise ValueError("no connector by name: slurm.connect chooses it")

    def connect(self) -> None:
        try:
            connected(self.state).open(self.host.name)
        except (SlurmError, ValueError) as error:
            raise ConnectError(f"not connected through Slurm: {error}") from error

    def disconnect(self) -> None:
        connected(self.state).close(self.host.name)

    def run_shell_command(
        self, command: StringCommand, print_output: bool = False, print_input: bool = False, **arguments: Any
    ) -> tuple[bool, CommandOutput]:
        for key in ("_get_pty",):
            arguments.pop(key, None)
        limit = float(arguments.pop("_timeout", None) or _LIMIT_S)
        stdin = _text(arguments.pop("_stdin", None))
        fine = arguments.pop("_success_exit_codes", None) or [0]

        def execute() -> tuple[int, CommandOutput]:
            words = make_unix_command_for_host(self.state, self.host, command, **arguments)
            if print_input:
                click.echo(f"{self.host.print_prefix}>>> {words}", err=True)
            argv = ["sh", "-c", words.get_raw_value()]
            code, out, err = connected(self.state).step().run(self.host.name, argv, stdin, limit)
            if code is None:
                raise OSError(err[-1] if err else "no answer")
            lines = [OutputLine("stdout", line) for line in out] + [OutputLine("stderr", line) for line in err]
            for line in lines if print_output else []:
                click.echo(f"{self.host.print_prefix}{line.line}", err=True)
            return code, CommandOutput(lines)

        code, output = execute_command_with_sudo_retry(self.host, arguments, execute)  # type: ignore[arg-type]
        return code in fine, output

    def put_file(
        self,
        filename_or_io: Any,
        remote_filename: str,
        remote_temp_filename: str | None = None,
        print_output: bool = False,
        print_input: bool = False,
        **arguments: Any,
    ) -> bool:
        with get_file_io(filename_or_io) as file:
            data = file.read()
        data = data.encode() if isinstance(data, str) else data
        done, output = self.run_shell_command(
            StringCommand("base64", "-d", ">", QuoteString(remote_filename)),
            **{**arguments, "_stdin": base64.b64encode(data).decode()},
        )
        if not done:
            raise OSError(output.stderr)
        return True

    def get_file(
        self,
        remote_filename: str,
        filename_or_io: Any,
        remote_temp_filename: str | None = None,
        print_output: bool = False,
        print_input: bool = False,
        **arguments: Any,
    ) -> bool:
        done, output = self.run_shell_command(StringCommand("base64", QuoteString(remote_filename)), **arguments)
        if not done:
            raise OSError(output.stderr)
        with get_file_io(filename_or_io, "wb") as file:
            file.write(base64.b64decode(output.stdout))
        return True

    def check_can_rsync(self) -> None:
        raise NotImplementedError("rsync needs SSH: slurm.connect is slurm")


def _text(stdin: Any) -> str | None:
    """A command's standard input, as pyinfra writes it."""
    if not stdin:
        return None
    taken = _Kept()
    write_stdin(stdin, taken)
    return taken.data.decode()


class _Kept(io.BytesIO):
    data = b""

    def close(self) -> None:
        self.data = self.getvalue()
        super().close()
