"""The one way to the nodes: whatever pyinfra runs on a host, and whatever a host answers, is bounded here.

pyinfra 3.10 waits without end for a command that says nothing, for a channel that does not open and for a peer that is
gone, keeps all that a node prints, and drops the rest of an output at the first byte that is no UTF-8. `bind` puts each
host's connector right before anything connects; facts, operations and polls then need no limits of their own:

* a command ends within its `_timeout`, or within COMMAND_S: on the node itself by timeout(1), and here a little later;
* a connection without a sign of life is closed, and its commands fail, each on its own host only;
* an output that is too long is cut, and its command fails;
* what a node prints comes in without control characters, before pyinfra shows it or a fact reads it.

What a host does can only raise OSError here, which pyinfra takes for a failure of that host alone.
"""

import contextlib
import functools
import hmac
import logging
import math
import socket
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import gevent
import paramiko.util
from gevent.subprocess import PIPE, Popen
from paramiko import SSHException, Transport
from paramiko.ssh_exception import NoValidConnectionsError
from pyinfra.api import Host, State
from pyinfra.api.exceptions import ConnectError
from pyinfra.api.output import echo, format_text
from pyinfra.connectors import local, ssh, util
from pyinfra.connectors.base import BaseConnector
from pyinfra.connectors.sshuserclient import SSHClient
from pyinfra.connectors.util import CommandOutput, OutputLine

from shakedown.common.text import incoming, printable
from shakedown.operations.atomic import TELLS
from shakedown.runner.jobs.connection import SchedulerConnector, connecting_scheduler
from shakedown.runner.progress import FEW, progress
from shakedown.runner.pyinfra import host_keys
from shakedown.runner.pyinfra.invocation import invocation

COMMAND_S = 300.0  # for a command that names no limit of its own (`_timeout`)
KILL_S = 10  # after a command's limit on the node: from SIGTERM to SIGKILL
SLACK_S = 20.0  # after a command's limit here: the node has ended it by then, and has said so
CONNECT_S = 120.0  # for one attempt to connect, with all its hops; paramiko bounds most steps of it itself
CHANNEL_S = 10.0  # for a channel to open: a frozen sshd opens none, and paramiko waits an hour
TRANSFER_S = 900.0  # for a file that goes to a node or comes from it
IDLE_S = 5.0  # between two looks of an idle connection's thread at whether it is closed
BEAT_S = 15.0  # between two signs of life, as ServerAliveInterval of ssh_config(5)
SILENT_S = 45.0  # without a sign of life: the connection is closed
OUTPUT_BYTES = 16 << 20  # of one command
OUTPUT_LINES = 200_000  # of one command: each costs some 250 bytes here, however short it is


class NodeError(OSError):
    """What a node did wrong while it was spoken to: it fell silent, took too long, or said too much."""


def bind(state: State) -> None:
    """Give all hosts connectors that are bounded. To be called once, before the first connection."""
    logging.getLogger("paramiko").addHandler(logging.NullHandler())  # its threads' tracebacks; errors reach us as such
    ssh.read_output_buffers = util.read_output_buffers = read_output  # type: ignore[assignment]
    local.run_local_process = run_local_process
    # paramiko's own takes a step of Python for each byte of the code that authenticates a packet, for each packet.
    paramiko.util.constant_time_bytes_eq = hmac.compare_digest  # type: ignore[assignment]
    for host in state.inventory:
        scheduler = connecting_scheduler(host)
        host.connector = _made_bounded(SchedulerConnector(state, host, scheduler) if scheduler else host.connector)


def _made_bounded(connector: BaseConnector) -> BaseConnector:
    made = object.__new__(_bounded(type(connector)))
    vars(made).update(vars(connector))  # its __init__ would look for each of pyinfra's keys in the host's data again
    for inner in ("local", "ssh"):  # what @docker and its like go through
        if isinstance(getattr(made, inner, None), BaseConnector):
            setattr(made, inner, _made_bounded(getattr(made, inner)))
    return made


@functools.cache
def _bounded(kind: type[BaseConnector]) -> type[BaseConnector]:
    if issubclass(kind, _Bounded):
        return kind
    return type(f"Bounded{kind.__name__}", (_BoundedSsh if issubclass(kind, ssh.SSHConnector) else _Bounded, kind), {})


class _Secret(str):
    """A text that is shown as nothing."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "*MASKED*"


_speaks = threading.local()  # of each greenlet: the host whose command tells how it goes


class _Bounded:
    """Goes before a connector's own class. The methods are those that pyinfra's Host calls."""

    host: Host
    state: State

    def connect(self) -> None:
        try:
            super().connect()  # type: ignore[misc]
        except ConnectError:
            raise
        except Exception as error:  # pyinfra takes any other for the end of the run, for all hosts
            raise ConnectError(f"Could not connect ({_words(error)})") from error

    def run_shell_command(
        self, command: Any, print_output: bool = False, print_input: bool = False, **arguments: Any
    ) -> tuple[bool, CommandOutput]:
        limit = float(arguments.pop("_timeout", None) or COMMAND_S)
        shell = arguments.get("_shell_executable", "sh")
        if shell and not arguments.get("_get_pty"):  # inside sudo, which a user's own timeout(1) could not end
            arguments["_shell_executable"] = f"timeout -k {KILL_S} {math.ceil(limit)} {shell}"
        began = time.monotonic()
        _speaks.host = self.host if print_output and self.host.connector_data.get(TELLS) else None
        try:
            late = f"no answer for {limit + SLACK_S:g} s; the command's own limit is {limit:g} s"
            with _within(limit + SLACK_S, late):
                done, output = super().run_shell_command(  # type: ignore[misc]
                    command, print_output, print_input, _timeout=limit, **arguments
                )
        except Exception as error:
            raise self._failed(error) from error
        if not done:
            self._remember(last_words(output))
            if time.monotonic() - began >= limit:
                words = f"; its last words: {last_words(output)}" if output.combined_lines else ""
                raise self._failed(NodeError(f"not done within {limit:g} s, and ended there{words}"))
        return done, output

    def put_file(self, *args: Any, **arguments: Any) -> bool:
        return self._transfer("put_file", *args, **arguments)

    def get_file(self, *args: Any, **arguments: Any) -> bool:
        return self._transfer("get_file", *args, **arguments)

    def _transfer(self, way: str, *args: Any, **arguments: Any) -> bool:
        try:
            with _within(TRANSFER_S, f"a file was not transferred within {TRANSFER_S:g} s"):
                return bool(getattr(super(), way)(*args, **arguments))
        except Exception as error:
            raise self._failed(error) from error

    def _failed(self, error: Exception) -> OSError:
        """Return the error as one that pyinfra takes for this host's own."""
        made = error if isinstance(error, NodeError) else NodeError(_words(error))
        self._remember(str(made))
        return made

    def _remember(self, why: str) -> None:
        progress(self.host.state).hosts[self.host.name].message = why


class _BoundedSsh(_Bounded):
    """With a watch over the connection itself."""

    data: Any
    dead = ""  # why the connection was given up
    _client: SSHClient | None = None

    @property
    def client(self) -> SSHClient | None:
        return self._client

    @client.setter
    def client(self, client: SSHClient | None) -> None:
        """pyinfra makes a client for each attempt, and leaves those before it open."""
        if self._client is not None:
            self._client.close()
        self._client, self.dead = client, ""
        if client is not None:
            host_keys.watch(client, self.host)

    def make_paramiko_kwargs(self) -> dict[str, Any]:
        """pyinfra shows these with --debug."""
        given: dict[str, Any] = super().make_paramiko_kwargs()  # type: ignore[misc]
        return given | ({"password": _Secret(given["password"])} if "password" in given else {})

    def _connect(self) -> None:
        host_keys.apply_ssh_config(self.data, self.host)
        try:
            with _within(CONNECT_S, f"not connected within {CONNECT_S:g} s"):
                super()._connect()  # type: ignore[misc]
        except NoValidConnectionsError as error:  # its own text has the addresses alone
            reasons = dict.fromkeys(getattr(cause, "strerror", None) or str(cause) for cause in error.errors.values())
            ports = dict.fromkeys(f"port {address[1]}" for address in error.errors)
            raise OSError(printable(f"{', '.join(ports)}: {', '.join(reasons)}", 500)) from error
        transport = self._client.get_transport() if self._client else None
        if transport is not None:
            self.host.connector_data[host_keys.SHOWN] = transport.get_remote_server_key()
            _quick(transport)
            transport.channel_timeout = CHANNEL_S  # type: ignore[attr-defined]
            gevent.spawn(self._keep_watch, transport)

    def _keep_watch(self, transport: Transport) -> None:
        """Ask for a sign of life every so often: a frozen sshd, or a cable that was pulled, keeps a connection open."""
        while True:
            gevent.sleep(BEAT_S)
            if not transport.is_active() or self._client is None or self._client.get_transport() is not transport:
                return
            with gevent.Timeout(SILENT_S - BEAT_S, False):
                transport.global_request("keepalive@openssh.com", wait=True)  # refused by most, which is an answer
                continue
            self.dead = f"no sign of life for {SILENT_S:g} s: the node, its sshd or the way there is gone"
            transport.close()
            return

    def _failed(self, error: Exception) -> OSError:
        return super()._failed(NodeError(self.dead) if self.dead else error)

    def run_shell_command(self, *args: Any, **arguments: Any) -> tuple[bool, CommandOutput]:
        done, output = super().run_shell_command(*args, **arguments)
        if not done and self.dead:  # its channel was closed under it, which looks like a command that has failed
            raise self._failed(NodeError(self.dead))
        return done, output


@contextmanager
def _within(seconds: float, why: str) -> Iterator[None]:
    """Raise NodeError(why) if the block takes longer. Inside, the timeout is no Exception: it ends all tries."""
    with gevent.Timeout(seconds) as limit:
        try:
            yield
        except gevent.Timeout as timeout:
            if timeout is not limit:
                raise
            raise NodeError(why) from None


def _quick(transport: Transport) -> None:
    """Send small packets at once: paramiko's default costs 44 ms for each command. And let its thread sleep while the
    node says nothing: it looks ten times a second whether it is closed, which closing the socket tells it by itself."""
    transport.sock.settimeout(IDLE_S)
    try:
        transport.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # type: ignore[union-attr]
    except (AttributeError, OSError):  # a channel or a ProxyCommand's pipe: there is nothing to set
        return


def _words(error: BaseException) -> str:
    if isinstance(error, SSHException) and "Timeout opening channel" in str(error):
        return f"its sshd opened no channel within {CHANNEL_S:g} s"
    return printable(str(error), 500) or type(error).__name__


def last_words(output: CommandOutput) -> str:
    """Return the last line of a failed command, of its standard error or else of its output."""
    lines = [line for line in output.stderr_lines or output.stdout_lines if line.strip()]
    return printable(lines[-1].strip(), 300) if lines else ""


class _Taken:
    def __init__(self) -> None:
        self.lines: list[OutputLine] = []
        self._bytes = 0

    def count(self, chunk: bytes) -> None:
        self._bytes += len(chunk)
        if self._bytes > OUTPUT_BYTES:
            raise NodeError(f"printed more than {OUTPUT_BYTES >> 20} MiB, and was cut off")

    def add(self, stream: str, line: bytes) -> str:
        if len(self.lines) >= OUTPUT_LINES:
            raise NodeError(f"printed more than {OUTPUT_LINES:,} lines, and was cut off")
        text = incoming(line.decode("utf-8", "replace"))
        self.lines.append(OutputLine(stream, text))
        return text


def read_output(stdout: Any, stderr: Any, timeout: Any, print_output: bool, print_prefix: str) -> CommandOutput:
    """pyinfra's `read_output_buffers`, bounded. The time is its caller's affair. Raises NodeError for an output that is
    too long; whatever ends the reading early, what is left of the output is closed, so that its writer ends."""
    taken, host = _Taken(), getattr(_speaks, "host", None)

    def read(stream: str, buffer: Any) -> None:
        for line in _lines(_chunks(stream, buffer), taken):
            text = taken.add(stream, line)
            shows = print_output
            if host is not None and stream == "stdout":  # of hundreds of hosts it is told with what the run waits for
                saying = progress(host.state).saying
                saying[host.name] = text
                shows = len(saying) <= FEW
            if shows:
                echo(f"{print_prefix}{text if stream == 'stdout' else format_text(text, 'red')}", err=True)

    readers = [gevent.spawn(read, stream, buffer) for stream, buffer in (("stdout", stdout), ("stderr", stderr))]
    whole = False
    try:
        gevent.joinall(readers, raise_error=True)
        whole = True
    finally:
        if not whole:
            gevent.killall(readers)  # and wait: a pipe cannot be closed under its reader
            for buffer in (stdout, stderr):
                getattr(buffer, "channel", buffer).close()
    return CommandOutput(taken.lines)


def run_local_process(
    command: str, stdin: Any = None, timeout: Any = None, print_output: bool = False, print_prefix: str = ""
) -> tuple[int, CommandOutput]:
    """pyinfra's function of this name, over `read_output`: the process does not outlive whoever waits for it."""
    process = Popen(f"exec {command}", shell=True, stdin=PIPE, stdout=PIPE, stderr=PIPE)
    end = functools.partial(_end, process.pid)
    invocation.local.add(end)
    try:
        if stdin:
            util.write_stdin(stdin, process.stdin)
        process.stdin.close()
        output = read_output(process.stdout, process.stderr, timeout, print_output, print_prefix)
        return process.wait(), output
    finally:
        invocation.local.discard(end)
        if process.poll() is None:
            end()


def _end(number: int) -> None:
    """End a process and all that it started: each timeout(1) among them leads a group of its own."""
    import psutil  # 20 ms that a run without an interrupt does not need

    with contextlib.suppress(psutil.Error):
        first = psutil.Process(number)
        for process in [first, *first.children(recursive=True)]:
            with contextlib.suppress(psutil.Error):  # of sudo: it has its limit
                process.terminate()


def _chunks(stream: str, buffer: Any) -> Iterator[bytes]:
    channel = getattr(buffer, "channel", None)
    read = buffer.read1 if channel is None else channel.recv if stream == "stdout" else channel.recv_stderr
    while chunk := read(1 << 16):
        yield chunk


def _lines(chunks: Iterable[bytes], taken: _Taken) -> Iterator[bytes]:
    parts: list[bytes] = []
    for chunk in chunks:
        taken.count(chunk)
        *ended, rest = chunk.split(b"\n")
        for line in ended:
            yield b"".join([*parts, line])
            parts = []
        parts.append(rest)
    if last := b"".join(parts):
        yield last
