"""Nodes that play a part: the launcher's answers, without a launcher."""

import base64
import hashlib
import json
import math
import zlib
from dataclasses import dataclass, field
from typing import Any

from shakedown.evidence.telemetry import KERNEL_LOG, SAMPLES
from shakedown.logs.kept_logs import LEADER
from shakedown.runner.demo.scenario import SIMULATED
from shakedown.runner.demo.turns import Turns

_RUN = "/simulated/run"
_SAMPLER = {"kind": "begin", "schema": 1, "boot_id": SIMULATED, "interval_s": 2.0, "cpus": 192, "channels": []}
_STOPS_S = 0.5  # from the stop until the node's part is over


@dataclass
class Part:
    """What a node does in a job. Times are seconds after its start."""

    says: list[tuple[float, str]] = field(default_factory=list)  # lines of its log, in the order of time
    ends: tuple[float, int] | None = None  # when, and the exit code; None: when it is stopped
    lost_s: float = math.inf  # from then on it does not answer
    kernel: list[tuple[float, str]] = field(default_factory=list)  # lines of its kernel log


class Rack:
    """A `Remote` over nodes that play their parts."""

    def __init__(self, turns: Turns, parts: dict[str, Part]) -> None:
        self._turns = turns
        self._parts = parts
        self._started: dict[str, float] = {}
        self._stopped: dict[str, tuple[float, str]] = {}

    def __call__(
        self, node: str, argv: list[str], stdin: str | None, timeout: float
    ) -> tuple[bool, list[str], list[str]]:
        part, now = self._parts[node], self._turns.now()
        if now - self._started.get(node, now) >= part.lost_s:
            self._turns.sleep(timeout)
            return False, [], ["no route to host"]
        if f"{_RUN}/.launcher" not in argv:
            return _answer({"python": "/usr/bin/python3", "run_dir": _RUN, "leftovers": {}})
        command, *options = argv[argv.index(f"{_RUN}/.launcher") + 1 :]
        if command == "go":
            self._started[node] = now
        elif command == "stop":
            self._stopped.setdefault(node, (now, options[options.index("--why") + 1]))
        elif command in ("fetch", "digest"):
            return _answer(self._file(node, command, options))
        elif command == "standstill":
            return _answer({"files": [], "processes": 8})
        elif command == "remove":
            return _answer({"left": []})
        return _answer(self._status(node, int(options[-1]) if command == "poll" else 0))

    def _file(self, node: str, command: str, options: list[str]) -> dict[str, Any]:
        name, offset = options[options.index("--file") + 1], int(options[-1])
        if name not in (LEADER, KERNEL_LOG, SAMPLES):
            return {"missing": "no such file"}
        data = self._log(node)[0] if name == LEADER else self._sampler(node, name)
        if command == "digest":
            return {"size": len(data), "sha256": hashlib.sha256(data[:offset]).hexdigest()}
        return {"data": _packed(data[offset:]), "offset": len(data), "size": len(data)}

    def _sampler(self, node: str, name: str) -> bytes:
        """Write what the sampler writes: the node's kernel log of the job, or samples of no channel at all, since
        nothing was measured."""
        started, now = self._started[node], self._turns.now()
        wall = self._turns.at(started).timestamp()
        if name == KERNEL_LOG:
            lines = [f"<3>[{started + at:.6f}] {line}" for at, line in self._parts[node].kernel]
            begin = f"# begin monotonic={started:.6f} wall={wall:.6f} source=kmsg"
            return "\n".join([begin, *lines, f"# end monotonic={now:.6f}", ""]).encode()
        end = {"kind": "end", "t": now, "why": SIMULATED, "samples": 1, "thinned": 0, "interval_s": 2.0, "cpu_s": 0.0}
        documents = [{**_SAMPLER, "t": started, "wall": wall}, {"t": started + 1, "v": []}, end]
        return "\n".join(map(json.dumps, documents)).encode()

    def _log(self, node: str) -> tuple[bytes, list[tuple[int, float]]]:
        """Return what the node has printed by now, and for each line where it ends and how long ago it came."""
        started, log, marks = self._started.get(node), bytearray(), []
        if started is not None:
            end = min(self._turns.now(), self._end(node)[0])
            for at, line in self._parts[node].says:
                if started + at > end:
                    break
                log += line.encode() + b"\n"
                marks.append((len(log), self._turns.now() - started - at))
        return bytes(log), marks

    def _end(self, node: str) -> tuple[float, int | None]:
        """Return when the node's leader ends, and its exit code."""
        ends, started = self._parts[node].ends, self._started.get(node)
        own = (started + ends[0], ends[1]) if ends and started is not None else (math.inf, None)
        stopped = self._stopped[node][0] + _STOPS_S if node in self._stopped else math.inf
        return own if own[0] <= stopped else (stopped, -15)

    def _status(self, node: str, offset: int) -> dict[str, Any]:
        now, started = self._turns.now(), self._started.get(node)
        end, code = self._end(node)
        over = now >= end
        log, marks = self._log(node)
        state = "over" if over else "running" if started is not None else "ready"
        return {
            "watchdog": True,
            "state": state,
            "exit_code": code if over and started is not None else None,
            "ending": self._stopped[node][1] if over and node in self._stopped else None,
            "started_ago_s": None if started is None else now - started,
            "exited_ago_s": now - end if over and started is not None else None,
            "marks": [mark for mark in marks if mark[0] > offset],
            "data": _packed(log[offset:]),
            "offset": max(offset, len(log)),
            "size": max(offset, len(log)),
            "monotonic": now,
        }


def _packed(data: bytes) -> str:
    return base64.b64encode(zlib.compress(data)).decode()


def _answer(document: dict[str, Any]) -> tuple[bool, list[str], list[str]]:
    return True, [json.dumps(document)], []
