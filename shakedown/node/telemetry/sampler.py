"""The sampler's life: begin, a sample every few seconds, an end that is written down.

{"kind": "begin", "schema": 1, "t": ..., "wall": ..., "boot_id": ..., "interval_s": ..., "channels": [...], ...}
{"t": seconds of the monotonic clock, "v": [a value for each channel, null: none this time]}
{"kind": "unreadable", "t": ..., "why": ..., "channels": [...]}     once for each channel that cannot be read
{"kind": "risen", "t": ..., "counter": ..., "from": ..., "to": ...}  an error counter of a NIC
{"kind": "end", "t": ..., "why": ..., "samples": ..., "thinned": ..., "interval_s": ..., "cpu_s": ...}
"""

from __future__ import annotations

import json
import os
import resource
import select
import signal
import sys
import time
import traceback
from typing import Any, Dict, List, Optional, Set

from ..tree import Tree, attempt_or, is_unreadable
from .gpus import Gpus, lower_priority
from .kernel import Devices, KernelLog
from .machine import Counters, Machine, Rates, Source, rounded, together

LIMIT = 4 << 20  # bytes: 8 GPUs and 8 NICs fill it in about two hours at 2 s
_RESERVE = 64 << 10  # for the last lines, and for reports of counters and readings
_SAMPLE = b'{"t":'  # how a sample begins; other lines name their kind first


class Output:
    """Appends lines; at the limit every second sample goes and `thinned` grows by one: the caller then samples half as
    often. Counts and sums are written as they stand, not as differences, so that nothing is lost with a sample."""

    def __init__(self, path: str, limit: int = LIMIT) -> None:
        self.thinned = 0
        self.samples = 0
        self._path = path
        self._limit = limit
        self._size = 0
        self._file = self._open(path)

    def sample(self, document: Dict[str, Any]) -> None:
        """Append a sample: its first key is `t`. Raises OSError."""
        data = _as_line(document)
        if self._size + len(data) > self._limit - _RESERVE:
            self._thin()
        if self._size + len(data) <= self._limit - _RESERVE:
            self._append(data)
            self.samples += 1

    def tell(self, kind: str, **fields: Any) -> None:
        """Append anything else. Raises OSError."""
        data = _as_line({"kind": kind, **fields})
        if self._size + len(data) <= self._limit:
            self._append(data)

    def close(self) -> None:
        os.close(self._file)

    def _append(self, data: bytes) -> None:
        self._size += len(data)
        while data:
            data = data[os.write(self._file, data) :]

    def _thin(self) -> None:
        with open(self._path, "rb") as file:
            lines = file.readlines()
        dropped = set([at for at, line in enumerate(lines) if line.startswith(_SAMPLE)][1::2])
        self.samples -= len(dropped)
        beside = self._path + ".partial"
        new = self._open(beside, os.O_TRUNC)
        os.close(self._file)
        self._file, self._size = new, 0
        self._append(b"".join(line for at, line in enumerate(lines) if at not in dropped))
        os.replace(beside, self._path)
        self.thinned += 1

    @staticmethod
    def _open(path: str, more: int = 0) -> int:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        return os.open(path, flags | more, 0o600)


def _as_line(document: Dict[str, Any]) -> bytes:
    return json.dumps(document, separators=(",", ":"), allow_nan=False).encode() + b"\n"


SCHEMA = 1
SHARE = 0.008  # of one core: what samples may cost; where they cost more they are taken less often
LONGEST_S = 60.0  # between two samples, whatever they cost
REPORTED = 4096  # channels whose reason is written down where they cannot be read
FIRST = 3  # samples whose cost is not yet taken for what the others will cost


class Sampler:
    """One node's sampler. `folder` is where its files go; `serve` returns when `stop` was called."""

    def __init__(self, folder: str, interval_s: float, tree: Tree, interface: Optional[str] = None) -> None:
        self._tree = tree
        self._interval = self._shortest = interval_s
        self._reason: Optional[str] = None
        self._wake, self._waker = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._output = Output(os.path.join(folder, "telemetry.jsonl"))
        self._gpus = Gpus(tree)
        self._counters = Counters(tree, interface)
        self._sources: List[Source] = [Machine(tree), self._gpus, Rates(tree, interface), self._counters]
        self._channels = [name for source in self._sources for name in source.names]
        self._reported: Set[str] = set()
        self._turn = 0
        self._spent: List[float] = []  # CPU seconds, behind each of the last samples

    def stop(self, reason: str) -> None:
        """Have `serve` come to its end. May be called by a signal's handler."""
        self._reason = self._reason or reason
        os.write(self._waker, b"s")

    def begin(self) -> None:
        """Write what the file is about."""
        self._output.tell(
            "begin",
            schema=SCHEMA,
            t=round(time.monotonic(), 3),
            wall=round(time.time(), 3),
            boot_id=attempt_or("", self._tree.text, "/proc/sys/kernel/random/boot_id"),
            interval_s=self._interval,
            cpus=os.cpu_count() or 1,
            channels=self._channels,
        )

    def serve(self, kernel: KernelLog, devices: Devices, kmsg: Optional[int]) -> None:
        """Sample until `stop` is called or the parent is gone. Take the kernel's messages and events as they come."""
        parent, due = os.getppid(), time.monotonic()
        while self._reason is None:
            kernel.drain()
            devices.drain()
            if time.monotonic() >= due:
                self.sample()
                if self._turn == 1:
                    lower_priority()  # not before: on a node where every CPU is busy it would take half a minute
                due = time.monotonic() + self._interval
            if os.getppid() != parent:
                self._reason = "the watchdog is gone"
            watched = [self._wake, *devices.handles] + ([kmsg] if kmsg is not None else [])
            ready, _, _ = select.select(watched, [], [], max(0.0, min(due - time.monotonic(), 1.0)))
            if ready and self._wake not in ready:
                time.sleep(0.05)  # a storm of messages costs twenty turns in a second, not one for each
        self.sample()
        self.end()

    def sample(self) -> None:
        """Write one line; and of each channel that cannot be read, the first time, why."""
        now = time.monotonic()
        values: Dict[str, Any] = {}
        for source in self._sources:
            if self._turn % source.every == 0:
                values.update(together(source.names, source.read))
        self._turn += 1
        self._output.sample({"t": round(now, 3), "v": [rounded(values.get(name)) for name in self._channels]})
        self._tell_unreadable(now, values)
        for risen in self._counters.risen():
            self._output.tell("risen", t=round(now, 3), **risen)
        self._keep_cost()

    def _tell_unreadable(self, now: float, values: Dict[str, Any]) -> None:
        reasons: Dict[str, List[str]] = {}
        for name, value in values.items():
            if is_unreadable(value) and name not in self._reported and len(self._reported) < REPORTED:
                self._reported.add(name)
                reasons.setdefault(("%s: %s" % (value["unreadable"], value["detail"]))[:400], []).append(name)
        for reason, channels in reasons.items():
            self._output.tell("unreadable", t=round(now, 3), why=reason, channels=channels)

    def _cpu_s(self) -> float:
        used = resource.getrusage(resource.RUSAGE_SELF)
        return used.ru_utime + used.ru_stime + self._gpus.library.cpu_s

    def _keep_cost(self) -> None:
        """Take the next sample later where the last ones have cost more than their share of a core."""
        self._spent = [*self._spent[-FIRST * 3 :], self._cpu_s()]
        if self._turn <= FIRST:
            self._spent = self._spent[-1:]
            return
        cost = (self._spent[-1] - self._spent[0]) / (len(self._spent) - 1)
        wanted = self._shortest * (1 << min(self._output.thinned, 30))
        self._interval = min(max(wanted, cost / SHARE), max(LONGEST_S, wanted))

    def end(self) -> None:
        """Write why there are no more, and what it has cost."""
        self._output.tell(
            "end",
            t=round(time.monotonic(), 3),
            why=self._reason or "stopped",
            samples=self._output.samples,
            thinned=self._output.thinned,
            interval_s=round(self._interval, 3),
            cpu_s=round(self._cpu_s(), 4),
        )
        self._output.close()
        self._gpus.library.close()


def add_carried_packages() -> None:
    """Add psutil, pyudev and, behind the node's own, AMD's package as the probe's bundle carries them. It lies beside
    the run folders, and is its owner's alone. The run folder is RUNS/<id>, this file RUNS/<id>/.launcher/sampler/..."""
    cache = os.path.abspath(os.path.join(__file__, *[".."] * 8))
    try:
        names = [name for name in os.listdir(cache) if name.endswith("-%s" % sys.implementation.cache_tag)]
    except OSError:
        return
    for name in sorted(names, key=lambda name: os.stat(os.path.join(cache, name)).st_mtime, reverse=True):
        about = os.lstat(os.path.join(cache, name))
        if about.st_uid == os.geteuid() and not about.st_mode & 0o022:
            sys.path += [os.path.join(cache, name), os.path.join(cache, name, "fallback")]
            return


def main(arguments: List[str]) -> None:
    """Run with --folder PATH --interval SECONDS [--interface NAME] (--kmsg HANDLE | --why TEXT) [--root PATH]."""
    options = dict(zip(arguments[::2], arguments[1::2]))
    os.umask(0o077)
    add_carried_packages()
    tree = Tree(options.get("--root", "/"))
    kmsg = int(options["--kmsg"]) if "--kmsg" in options else None
    begin, wall = float(options.get("--begin", time.monotonic())), time.time() - time.monotonic()
    folder = options["--folder"]
    kernel = KernelLog(os.path.join(folder, "kernel.log"), kmsg, options.get("--why", ""), tree, begin, wall + begin)
    devices = Devices(os.path.join(folder, "devices.log"), tree, begin, wall + begin, options.get("--interface"))
    sampler = Sampler(folder, float(options["--interval"]), tree, options.get("--interface"))
    signal.signal(signal.SIGTERM, lambda _number, _frame: sampler.stop("the job is over"))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])  # blocked by the watchdog until the sampler listens
    code = 1
    try:
        sampler.begin()
        sampler.serve(kernel, devices, kmsg)
        code = 0
    except Exception:
        traceback.print_exc()
    finally:
        for window in (kernel, devices):
            window.close(time.monotonic())
        os._exit(code)  # without waiting for a process that the kernel does not let die
