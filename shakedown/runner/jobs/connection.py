"""Nodes reached within an allocation of a scheduler instead of over SSH, where its section's `connect` says so.

The first host that is connected requests the allocation, for all of these hosts; the last that is disconnected gives it
back. Everything that this package and pyinfra do on a host then goes through one step over all of them.
"""

import atexit
import base64
import io
import threading
from collections.abc import Mapping
from typing import Any

import click
from pyinfra.api import Host, QuoteString, State, StringCommand
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

from shakedown.common.lists import grouped
from shakedown.desired.layers import merge
from shakedown.desired.models import DesiredState
from shakedown.hosts import named
from shakedown.runner.inventory import desired_states, layers_of
from shakedown.schedulers import registry
from shakedown.schedulers.interface import Allocation, Remote, Scheduler, SchedulerError


def allocation_of(desired: Mapping[str, DesiredState], via: str, title: str) -> Allocation:
    """Return an allocation for jobs over these hosts. Raise ValueError where it cannot be one, SchedulerError."""
    scheduler = scheduler_of(desired, via)
    for key, value, expected in scheduler.problems(scheduler.settings):
        raise ValueError(f"{via}.{key} is {value}: expected {expected}")
    if scheduler.no_containers and any(state.smoke and state.smoke.runtime != "process" for state in desired.values()):
        raise ValueError(f'smoke.runtime has to be "process" {scheduler.no_containers}')
    names = names_of(desired, via)
    for node, hosts in grouped((node, host) for host, node in names.items()).items():
        if len(hosts) > 1:  # a job on the one would speak for the other
            raise ValueError(f"{via}.node: {named(hosts)} are all {node} there")
    return scheduler.allocation(names, title)


def scheduler_of(desired: Mapping[str, DesiredState], name: str) -> Scheduler:
    """Return the scheduler of one job over these hosts. Raise ValueError where they differ in its settings."""
    kind = registry.find(name)
    sections = {host: settings_of(state, name) for host, state in desired.items()}
    for key in dict.fromkeys(key for section in sections.values() for key in section):
        if key not in kind.of_node:
            same(f"{name}.{key}", {host: repr(section.get(key)) for host, section in sections.items()})
    return kind(next(iter(sections.values()), None))


def settings_of(desired: DesiredState, scheduler: str) -> dict[str, Any]:
    """Return the values of a scheduler's section that are no defaults."""
    section = getattr(desired, scheduler, None)
    return {} if section is None else dict(section.model_dump(exclude_defaults=True))


def names_of(desired: Mapping[str, DesiredState], scheduler: str) -> dict[str, str]:
    """Return the hosts' names in a scheduler."""
    return {host: settings_of(state, scheduler).get("node") or host for host, state in desired.items()}


def same(key: str, values: Mapping[str, str]) -> str:
    """Return the one value of hosts that share a job; "ssh" for no host. Raise ValueError where they differ."""
    hosts = grouped((value, name) for name, value in values.items())
    if len(hosts) > 1:
        differing = "; ".join(f"{value} on {named(names)}" for value, names in hosts.items())
        raise ValueError(f"{key} has to be the same on all hosts of a run: {differing}")
    return next(iter(hosts), "ssh")


_LIMIT_S = 300.0  # for a command that names none


def connecting_scheduler(host: Host) -> str | None:
    """Return the scheduler through which a host is reached, by its layers: they are not typed yet at this moment."""
    for name in registry.names():
        if host.data.get(name) is None:  # most hosts of most sites
            continue
        section = merge(layer for layer in layers_of(host).layers if name in layer.values).values.get(name)
        if isinstance(section, dict) and section.get("connect") == name:
            return name
    return None


class Connected:
    """The hosts of one run that are reached within one allocation of a scheduler."""

    def __init__(self, state: State, scheduler: str) -> None:
        self._state = state
        self._scheduler = scheduler
        self._lock = threading.Lock()
        self._hosts: set[str] = set()
        self._refused: dict[str, str] = {}  # host -> why the scheduler does not give it
        self._wrong = ""  # why it gives no host
        self._commands: Remote | None = None
        self._context: Any = None
        self.allocation: Allocation | None = None

    def open(self, name: str) -> None:
        """Have the host in the allocation. Raise SchedulerError, ValueError."""
        with self._lock:
            if self.allocation is None and not self._wrong:
                try:
                    self._allocate()
                except (SchedulerError, ValueError) as error:
                    self._wrong = str(error)
            if name in self._refused:
                raise SchedulerError(self._refused[name])
            if self._commands is None:
                raise SchedulerError(self._wrong or "the allocation has ended")
            self._hosts.add(name)

    def _allocate(self) -> None:
        states, here = desired_states(self._state).states, self._scheduler
        desired = {host: state for host, state in states.items() if settings_of(state, here).get("connect") == here}
        names = names_of(desired, self._scheduler)
        nodes = {node.name: node for node in scheduler_of(desired, self._scheduler).read(names.values())}
        self._refused = {host: reason for host, name in names.items() if (reason := nodes[name].why_not(True))}
        hosts = [host for host in desired if host not in self._refused]
        self.allocation = allocation_of(desired, self._scheduler, "shakedown")
        if not hosts:
            return
        atexit.register(self.allocation.end, cancel=True)
        self.allocation.allocate(hosts, lambda text: click.echo(f"    {text}", err=True), lambda: None)
        self._context = self.allocation.start("connection", hosts)
        self._commands = self._context.__enter__()

    def commands(self) -> Remote:
        """Return the way to the hosts. Raise SchedulerError where the allocation has ended."""
        if self._commands is None:
            raise SchedulerError("the allocation has ended")
        return self._commands

    def close(self, name: str) -> None:
        """Let a host go, and with the last one the allocation."""
        with self._lock:
            self._hosts.discard(name)
            if self._hosts or self._commands is None or self.allocation is None:
                return
            self._commands = None
            self._context.__exit__(None, None, None)
            self.allocation.end()


def connected(state: State, scheduler: str) -> Connected:
    """Return the connected hosts of a run, made on the first call."""
    allocations: dict[str, Connected] = vars(state).setdefault("shakedown_allocations", {})
    return allocations.setdefault(scheduler, Connected(state, scheduler))


class SchedulerConnector(BaseConnector):
    """A connector of pyinfra's whose commands run in an allocation. Files travel in commands."""

    handles_execution = True

    def __init__(self, state: State, host: Host, scheduler: str) -> None:
        super().__init__(state, host)
        self._scheduler = scheduler

    @staticmethod
    def make_names_data(name: str) -> Any:
        raise ValueError("no connector by name: `connect` of the scheduler's section chooses it")

    def connect(self) -> None:
        try:
            connected(self.state, self._scheduler).open(self.host.name)
        except (SchedulerError, ValueError) as error:
            title = registry.find(self._scheduler).title
            raise ConnectError(f"not connected through {title}: {error}") from error

    def disconnect(self) -> None:
        connected(self.state, self._scheduler).close(self.host.name)

    def run_shell_command(
        self, command: StringCommand, print_output: bool = False, print_input: bool = False, **arguments: Any
    ) -> tuple[bool, CommandOutput]:
        arguments.pop("_get_pty", None)
        limit = float(arguments.pop("_timeout", None) or _LIMIT_S)
        stdin = _text(arguments.pop("_stdin", None))
        fine = arguments.pop("_success_exit_codes", None) or [0]

        def execute() -> tuple[int, CommandOutput]:
            words = make_unix_command_for_host(self.state, self.host, command, **arguments)
            if print_input:
                click.echo(f"{self.host.print_prefix}>>> {words}", err=True)
            argv = ["sh", "-c", words.get_raw_value()]
            commands = connected(self.state, self._scheduler).commands()
            code, out, err = commands(self.host.name, argv, stdin, limit)
            if code is None:
                raise OSError(err[-1] if err else "no answer")
            lines = [OutputLine("stdout", line) for line in out] + [OutputLine("stderr", line) for line in err]
            for line in lines if print_output else []:
                click.echo(f"{self.host.print_prefix}{line.line}", err=True)
            return code, CommandOutput(lines)

        code, output = execute_command_with_sudo_retry(self.host, arguments, execute)  # type: ignore[arg-type]
        return code in fine, output

    def put_file(self, filename_or_io: Any, remote_filename: str, *_: Any, **arguments: Any) -> bool:
        with get_file_io(filename_or_io) as file:
            data = file.read()
        data = data.encode() if isinstance(data, str) else data
        command = StringCommand("base64", "-d", ">", QuoteString(remote_filename))
        arguments = _quiet(arguments) | {"_stdin": base64.b64encode(data).decode()}
        done, output = self.run_shell_command(command, **arguments)
        if not done:
            raise OSError(output.stderr)
        return True

    def get_file(self, remote_filename: str, filename_or_io: Any, *_: Any, **arguments: Any) -> bool:
        command = StringCommand("base64", QuoteString(remote_filename))
        done, output = self.run_shell_command(command, **_quiet(arguments))
        if not done:
            raise OSError(output.stderr)
        with get_file_io(filename_or_io, "wb") as file:
            file.write(base64.b64decode(output.stdout))
        return True

    def check_can_rsync(self) -> None:
        raise NotImplementedError(f"rsync needs SSH: {self._scheduler}.connect is {self._scheduler}")


def _quiet(arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of a transfer for its command, whose output is the file and is not shown."""
    return {name: value for name, value in arguments.items() if name.startswith("_")}


def _text(stdin: Any) -> str | None:
    """Return a command's standard input, as pyinfra writes it."""
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
