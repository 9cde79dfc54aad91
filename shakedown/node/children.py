"""Readings in child processes, with time limits: what hangs or crashes costs the reading, never the probe.

A child leads its own process group, which is killed when its time is up; one that the kernel does not let die is left
behind. A child that has computed, or waited for a CPU, most of its time is slow and not stuck: it gets up to PERIODS
times as long.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import select
import signal
import socket
import struct
import subprocess
import time
from contextlib import suppress
from typing import Any, Callable, Dict, List, Optional, Tuple

from .tree import Part, Tree, Unreadable, attempt

MOST = 60.0  # seconds of any reading; a caller may set less
PERIODS = 3  # twice, for a group and its members alone, in the 60 s of a probe

Reading = Tuple[str, float, Callable[..., Any], Tuple[Any, ...]]  # what it is about, seconds, function, its arguments
Readings = Dict[str, Reading]


class Child:
    """Readings that are taken beside the probe, one after the other in one fork; their values come over a pipe."""

    def __init__(self, readings: Readings) -> None:
        self.readings = readings
        self.seconds = min(MOST, max(seconds for _, seconds, _, _ in readings.values()))
        self.limit = min(MOST, PERIODS * self.seconds)
        self.waits = self.seconds
        self.began = time.monotonic()
        self.failed = False
        self.pipe, write_end = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            _serve(write_end, readings)
        os.close(write_end)

    def values(self) -> Dict[str, Any]:
        """Wait for the child. Return the value of each reading, or the part that says why there is none."""
        output, late = self._output()
        with suppress(OSError):
            os.killpg(self.pid, signal.SIGKILL)  # the child itself, or what it has left behind
        status = _reap(self.pid, 0.2)
        try:
            answer: Tuple[Dict[str, Any], Part] = json.loads(output)
            if Tree.book is not None:
                Tree.book.taken.update(answer[1])
            return answer[0]
        except ValueError:
            self.failed = True
        cause = "signal {}".format(status & 0x7F) if status & 0x7F else "exit {}".format(status >> 8)
        reason, words = "failed", "died ({})".format(cause)
        if late:
            reason, words = "timed out", "no answer in {:g} s".format(self.waits)
        elif output:
            words = "the answer is cut short"
        return {
            name: Unreadable(reason, "{}: {}".format(what, words)).as_part()
            for name, (what, *_) in self.readings.items()
        }

    def _output(self) -> Tuple[bytes, bool]:
        """Return all that the child writes, and whether its time was up before its end."""
        output = bytearray()
        with os.fdopen(self.pipe, "rb", buffering=0) as pipe:
            while True:
                left = self.began + self.waits - time.monotonic()
                if select.select([pipe], [], [], max(0.0, left))[0]:
                    chunk = pipe.read(65536)
                    if not chunk:
                        return bytes(output), False
                    output += chunk
                elif self.waits < self.limit and _busy_s(self.pid) > self.waits / 2:
                    self.waits = min(self.limit, self.waits + self.seconds)
                else:
                    return bytes(output), True


def start(groups: List[Readings]) -> List[Child]:
    """Begin with the readings of each group in a child of its own: a fork costs more than most readings."""
    return [Child(readings) for readings in groups if readings]


def answers(children: List[Child]) -> Dict[str, Any]:
    """Wait for the children. Return the value of each reading, or the part that says why there is none. Where one of
    several readings hangs or brings its child down, each of them gets a child of its own in the end."""
    found: Dict[str, Any] = {}
    again: List[Readings] = []
    for child in children:
        found.update(child.values())
        if child.failed and len(child.readings) > 1:
            again += [{name: reading} for name, reading in child.readings.items()]
    if again:
        found.update(answers(start(again)))
    return found


def alone(what: str, function: Callable[..., Any], *arguments: Any, patience: float = 1.0) -> Any:
    """Take a reading in this child, unless the child of an earlier probe still hangs in it. SIGKILL does not end a
    process that waits in the kernel, and a probe every minute would leave as many of them. The mark is an abstract
    socket of this user, which the kernel frees when the last holder is gone; programs that the reading starts hold it
    too. Sockets of other users, or with no room for a caller, decide nothing."""
    digest = hashlib.sha256(what.encode()).hexdigest()[:16]
    end = time.monotonic() + patience  # for a probe that runs beside this one
    mark, number = socket.socket(socket.AF_UNIX), 0
    while number < 8:
        name = "\0shakedown-{}-{}-{}".format(os.getuid(), digest, number)
        try:
            mark.bind(name)
            mark.listen(4096)
            mark.set_inheritable(True)
            break
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
        holder = _holder(name)
        if holder is None:
            number += 1
        elif time.monotonic() > end:
            raise Unreadable("timed out", "{}: process {} of an earlier check still hangs there".format(what, holder))
        else:
            time.sleep(0.05)
    return function(*arguments)


def _holder(name: str) -> Optional[int]:
    """Return the process that made a mark; None where that is not this user's, or cannot be asked."""
    with socket.socket(socket.AF_UNIX) as caller:
        caller.setblocking(False)
        try:
            caller.connect(name)
            pid, uid, _ = struct.unpack("iII", caller.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        except ConnectionRefusedError:  # freed, or not listening yet
            return 0
        except OSError:
            return None
    return int(pid) if uid == os.getuid() else None


def _serve(write_end: int, readings: Readings) -> None:
    """Live the child's whole life, with closed standard streams: a library that prints must not spoil the document."""
    try:
        os.setsid()
        null = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(null, stream)
        if Tree.book is not None:
            Tree.book.taken = {}
        values = {name: attempt(function, *arguments) for name, (_, _, function, arguments) in readings.items()}
        data = json.dumps([values, Tree.book and Tree.book.taken]).encode()
        while data:
            data = data[os.write(write_end, data) :]
    finally:
        os._exit(0)


def _busy_s(pid: int) -> float:
    """Return the seconds for which a process has computed or waited for a CPU; 0 where the kernel does not say."""
    try:
        with open("/proc/{}/schedstat".format(pid)) as file:
            computed, waited, _ = file.read().split()
    except (OSError, ValueError):
        return 0.0
    return (int(computed) + int(waited)) / 1e9


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


def run_tool(argv: List[str], seconds: float) -> str:
    """Return what a program prints; raise Unreadable where it is missing, fails, or does not answer in time."""
    answer = answers([Child({"tool": (argv[0], seconds, run_here, (argv,))})])["tool"]
    if "unreadable" in answer:
        raise Unreadable(answer["unreadable"], answer["detail"])
    if answer["code"] != 0:
        words = (answer["error"].strip() or answer["output"].strip()).splitlines()
        reason = "not permitted" if any("ermission denied" in line for line in words) else "failed"
        raise Unreadable(reason, "{}: exit {}: {}".format(argv[0], answer["code"], words[0] if words else ""))
    return str(answer["output"])


def run_here(argv: List[str], close_fds: bool = True) -> Part:
    """Run a program in this child. Without `close_fds` it holds the mark of `alone` too."""
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, close_fds=close_fds)
    texts = (text.decode("utf-8", "replace") for text in (done.stdout, done.stderr))
    return dict(zip(("output", "error"), texts), code=done.returncode)
