"""Readings in child processes, each with its own time limit.

A library that hangs or crashes, a file server that is gone, a driver stuck in the kernel: each costs the reading, never
the probe. A child leads its own process group, which is killed when its time is up; one that the kernel does not let
die is left behind and not waited for.
"""

from __future__ import annotations

import marshal
import os
import select
import time

from .tree import Part, Unreadable, explain

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Tuple

    Reading = Tuple[Any, ...]  # what, seconds, function, its arguments

_SIGKILL = 9  # importing signal for its name costs 1 ms of CPU


class Child:
    """One reading that runs beside the probe: `function(*arguments)` in a fork, its value over a pipe."""

    def __init__(self, what: str, seconds: float, function: Callable[..., Any], *arguments: Any) -> None:
        self.what = what
        self.deadline = time.monotonic() + seconds
        self.seconds = seconds
        self.output = bytearray()
        self.ended = False
        self.timed_out = False
        self.pipe, write_end = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            _serve(write_end, function, arguments)
        os.close(write_end)

    def _finish(self) -> None:
        self.ended = True
        os.close(self.pipe)
        try:
            os.killpg(self.pid, _SIGKILL)  # the child itself, or what it has left behind
        except OSError:
            pass

    def take(self) -> None:
        """Read what is there; at the end of the output the child has finished."""
        chunk = os.read(self.pipe, 65536)
        self.output += chunk
        if not chunk:
            self._finish()

    def expire(self) -> None:
        self.timed_out = True
        self._finish()

    def value(self) -> Any:
        """What the child's function returned; raises Unreadable where it raised, hung or died."""
        status = _reap(self.pid, 0.2)
        if self.timed_out:
            raise Unreadable("timed out", "{}: no answer in {:g} s".format(self.what, self.seconds))
        if not self.output:
            raise Unreadable("failed", "{}: died ({})".format(self.what, _cause(status)))
        try:
            outcome = _unpacked(bytes(self.output))
        except (EOFError, ValueError, TypeError) as error:
            raise Unreadable("failed", "{}: its answer is cut short: {}".format(self.what, error)) from None
        return _opened(outcome)


class Inline:
    """A reading with nothing to wait for, behind the same face as a child: a fork costs 3 ms of CPU."""

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        self.function = function
        self.arguments = arguments

    def value(self) -> Any:
        return self.function(*self.arguments)


class Together:
    """Several readings in one child, one after the other: a fork costs 5 ms of CPU, and these take less, each of them,
    where nothing hangs. Where one does, or brings the child down, every reading gets a child of its own in the end."""

    def __init__(self, seconds: float, readings: dict[str, Reading]) -> None:
        self.readings = readings
        self.child = Child("readings of devices", seconds, _in_turn, list(readings.values())) if readings else None

    def apart(self) -> dict[str, Inline | Child]:
        """What each came to, once the child was gathered."""
        if self.child is None:
            return {}
        try:
            outcomes = self.child.value()
        except Unreadable:
            children = {name: Child(*reading) for name, reading in self.readings.items()}
            gather(list(children.values()))
            return dict(children)
        return {name: Inline(_opened, outcome) for name, outcome in zip(self.readings, outcomes)}


def _in_turn(readings: list[Reading]) -> list[dict[str, Any]]:
    return [_outcome(function, arguments) for _, _, function, *arguments in readings]


def _outcome(function: Callable[..., Any], arguments: Any) -> dict[str, Any]:
    try:
        return {"value": function(*arguments)}
    except Exception as error:
        return {"error": explain(error).as_part()}


def _opened(outcome: dict[str, Any]) -> Any:
    if "error" in outcome:
        raise Unreadable(outcome["error"]["unreadable"], outcome["error"]["detail"])
    return outcome["value"]


def _serve(write_end: int, function: Callable[..., Any], arguments: Any) -> None:
    """The child's whole life. Its standard streams are closed off: a library may print, the document may not suffer."""
    try:
        os.setsid()
        null = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(null, stream)
        data = _packed(_outcome(function, arguments))
        while data:
            data = data[os.write(write_end, data) :]
    finally:
        os._exit(0)


def _packed(outcome: dict[str, Any]) -> bytes:
    """For ourselves, a fork of the same Python: marshal, which is there without an import of 10 ms. What has values of
    a library's own types, which only look like numbers and texts, goes as JSON."""
    try:
        return b"M" + marshal.dumps(outcome)
    except ValueError:
        import json

        return b"J" + json.dumps(outcome).encode()


def _unpacked(data: bytes) -> dict[str, Any]:
    if data[:1] == b"M":
        outcome: dict[str, Any] = marshal.loads(data[1:])
    else:
        import json

        outcome = json.loads(data[1:].decode())
    return outcome


def _cause(status: int) -> str:
    signalled = status & 0x7F
    return "signal {}".format(signalled) if signalled else "exit {}".format(status >> 8)


def _reap(pid: int, patience: float) -> int:
    """Wait for a child that has closed its pipe or was killed, but never for one stuck in the kernel."""
    end = time.monotonic() + patience
    while True:
        try:
            done, status = os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:
            return 0
        if done or time.monotonic() > end:
            return status
        time.sleep(0.001)


def gather(children: list[Child]) -> None:
    """Collect the output of all children until each has finished or its time is up."""
    poller = select.poll()
    by_pipe = {child.pipe: child for child in children if not child.ended}
    for pipe in by_pipe:
        poller.register(pipe, select.POLLIN | select.POLLHUP)
    while by_pipe:
        now = time.monotonic()
        wait = max(0.0, min(child.deadline for child in by_pipe.values()) - now)
        ready = {pipe for pipe, _ in poller.poll(wait * 1000 + 1)}
        for pipe, child in list(by_pipe.items()):
            if pipe in ready:
                child.take()
            elif time.monotonic() >= child.deadline:
                child.expire()
            if child.ended:
                poller.unregister(pipe)
                del by_pipe[pipe]


def run_tool(argv: list[str], seconds: float) -> str:
    """What a program prints, as text; raises Unreadable where it is missing, fails, or does not answer in time."""
    tool = Child(argv[0], seconds, _run_here, argv)
    gather([tool])
    answer: Part = tool.value()
    if answer["code"] != 0:
        words = (answer["error"].strip() or answer["output"].strip()).splitlines()
        why = "not permitted" if any("ermission denied" in line for line in words) else "failed"
        raise Unreadable(why, "{}: exit {}: {}".format(argv[0], answer["code"], words[0] if words else ""))
    return str(answer["output"])


def _run_here(argv: list[str]) -> Part:
    import subprocess  # here only: it costs 10 ms of CPU to import, and few nodes need it

    done = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    return {
        "code": done.returncode,
        "output": done.stdout.decode("utf-8", "replace"),
        "error": done.stderr.decode("utf-8", "replace"),
    }
