"""Jobs in a time of their own: tasks that take turns, and nodes that do what a script says, in no time at all."""

from __future__ import annotations

import base64
import heapq
import itertools
import json
import math
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import greenlet
import pytest


class Turns:
    """A `Scheduler` whose clock goes on only when all tasks sleep. One task runs at a time, so that a job takes the
    same course each time. Its time goes by eighths of a second, of which sums and differences are exact: what happens
    at a limit, and not a moment later, can be told apart."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        self._first = greenlet.getcurrent()
        self._asleep: list[tuple[float, int, greenlet.greenlet]] = []  # when it wakes, who lay down first, the task
        self._count = itertools.count()
        monkeypatch.setattr(time, "monotonic", lambda: self.now)
        monkeypatch.setattr(time, "time", lambda: 1_700_000_000.0 + self.now)

    def spawn(self, function: Callable[[], None]) -> None:
        """The task begins when the others sleep."""

        def task() -> None:
            function()
            greenlet.getcurrent().parent = self._next()  # which goes on when this one has ended

        self._lie_down(greenlet.greenlet(task, parent=self._first), self.now)

    def sleep(self, seconds: float) -> None:
        """Let the others run, until the clock says so."""
        self._lie_down(greenlet.getcurrent(), self.now + math.ceil(seconds * 8) / 8)
        self._next().switch()

    def _lie_down(self, task: greenlet.greenlet, until: float) -> None:
        heapq.heappush(self._asleep, (until, next(self._count), task))

    def _next(self) -> greenlet.greenlet:
        until, _, task = heapq.heappop(self._asleep)
        self.now = max(self.now, until)
        return task


PIECE = bytes(1000)
"""Of a log that comes in pieces."""


@dataclass
class Script:
    """What a node does. Times are seconds after its leader's start, unless said otherwise."""

    says: list[tuple[float, str]] = field(default_factory=list)
    exits: tuple[float, int] | None = None
    ready_s: float = 0.5  # after the preparation
    lost: list[tuple[float, float]] = field(default_factory=list)  # from, to
    lost_from_the_beginning: bool = False
    stops_s: float = 0.5  # from being told to stop until it is over
    more: Callable[[float], dict[str, Any]] = lambda _since: {}  # further fields of a status
    pieces: tuple[str, int, float] = ("", 0, 0.0)  # of a log: its name, how many, and how long each takes to come


class Rack:
    """A `Remote` of scripted nodes."""

    def __init__(self, turns: Turns, **nodes: Script) -> None:
        self.turns = turns
        self.nodes = nodes
        self.prepared: dict[str, float] = {}
        self.went: dict[str, float] = {}
        self.stopped: dict[str, float] = {}
        self.looked: dict[str, float] = {}
        self.why: dict[str, str] = {}
        self.removed: set[str] = set()
        self.answered: dict[str, list[float]] = {node: [] for node in nodes}

    def __call__(
        self, node: str, argv: list[str], stdin: str | None, timeout: float
    ) -> tuple[bool, list[str], list[str]]:
        script, now = self.nodes[node], self.turns.now
        since = now - self.went[node] if node in self.went else None
        if script.lost_from_the_beginning or (since is not None and any(a <= since < b for a, b in script.lost)):
            self.turns.sleep(timeout)
            return False, [], ["no route to host"]
        self.answered[node].append(now)
        if "-c" in argv:
            self.prepared[node] = now
            answer: dict[str, Any] = {"python": "/usr/bin/python3", "run_dir": "/r/run", "leftovers": {}}
            return True, [json.dumps(answer)], []
        command, text = argv[argv.index("/r/run/.launcher") + 1 :]
        arguments = json.loads(text)
        if command == "go":
            self.went[node] = now
        elif command == "stop":
            self.stopped.setdefault(node, now)
            self.why[node] = arguments["reason"]
        elif command == "fetch":
            return True, [json.dumps(self._piece(script, **arguments))], []
        elif command == "digest":
            return True, [json.dumps({"sha256": None, "size": arguments["length"]})], []
        elif command == "standstill":
            self.looked[node] = now
            return True, ['{"files": [], "processes": 1}'], []
        elif command == "remove":
            self.removed.add(node)
            return True, ['{"left": []}'], []
        return True, [json.dumps(self._status(node, arguments.get("offset", 0)))], []

    def _piece(self, script: Script, name: str, offset: int) -> dict[str, Any]:
        known, count, seconds = script.pieces
        if name != known:
            return {"missing": "no such file"}
        self.turns.sleep(seconds)
        data = PIECE if offset < count * len(PIECE) else b""
        return {
            "data": base64.b64encode(zlib.compress(data)).decode(),
            "offset": offset + len(data),
            "size": count * len(PIECE),
        }

    def _status(self, node: str, offset: int) -> dict[str, Any]:
        script, now = self.nodes[node], self.turns.now
        went, stopped = self.went.get(node), self.stopped.get(node)
        ended, code = None, None
        if went is not None and script.exits and now - went >= script.exits[0]:
            ended, code = went + script.exits[0], script.exits[1]
        if stopped is not None and (ended is None or stopped < ended):
            ended, code = (stopped + script.stops_s, -15) if now >= stopped + script.stops_s else (None, None)
        state = "setup" if now < self.prepared[node] + script.ready_s else "ready"
        state = "running" if went is not None else state
        state = "over" if ended is not None else state
        log, marks = b"", []
        for at, text in script.says if went is not None else []:
            if went + at <= (ended or now):
                log += text.encode()
                marks.append([len(log), now - went - at])
        return {
            "watchdog": True,
            "state": state,
            "exit_code": code if went is not None else None,
            "ending": self.why[node] if stopped is not None and ended is not None else None,
            "started_ago_s": None if went is None else now - went,
            "exited_ago_s": None if ended is None or went is None else now - ended,
            "marks": [mark for mark in marks if mark[0] > offset],
            "data": base64.b64encode(zlib.compress(log[offset:])).decode(),
            "offset": max(offset, len(log)),
            "size": max(offset, len(log)),
            **script.more(0.0 if went is None else now - went),
        }
