"""The simulated job: its own time, what each node says of it and when, and the launcher's answers."""

import base64
import hashlib
import heapq
import itertools
import json
import math
import random
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

from greenlet import getcurrent, greenlet

from shakedown.evidence.telemetry import KERNEL_LOG, SAMPLES
from shakedown.jobs.launch import Clock, LaunchPlan
from shakedown.logs.kept_logs import LEADER
from shakedown.runner.demo.scenario import SIMULATED, Fault, Scenario, line_of
from shakedown.schedulers.interface import Answer

Result = TypeVar("Result")
BEFORE_S = 3600.0  # so long ago the run begins: its last times lie in the past too


class Turns(Clock):
    """A scheduler of the supervision and its clock: tasks take turns, and hours pass in moments."""

    def __init__(self) -> None:
        super().__init__()
        self._wall -= BEFORE_S
        self._now = self._began
        self._hub = getcurrent()
        self._asleep: list[tuple[float, int, greenlet]] = []
        self._numbers = itertools.count()

    def day(self) -> float:
        """Return the time of day, in seconds."""
        return self.at(self._now).timestamp()

    def now(self) -> float:
        return self._now

    def spawn(self, function: Callable[[], None]) -> None:
        """Begin to run the function when the others sleep."""
        self._put(greenlet(function, self._hub), 0.0)

    def sleep(self, seconds: float) -> None:
        """Let the others run, until the clock says so."""
        self._put(getcurrent(), seconds)
        self._hub.switch()

    def run(self, function: Callable[[], Result]) -> Result:
        """Run a function as a task, with what it spawns, and return its result."""
        results: list[Result] = []
        main = greenlet(lambda: results.append(function()), self._hub)
        self._put(main, 0.0)
        while not main.dead:
            when, _, task = heapq.heappop(self._asleep)
            self._now = max(self._now, when)
            task.switch()
        return results[0]

    def _put(self, task: greenlet, seconds: float) -> None:
        heapq.heappush(self._asleep, (self._now + seconds, next(self._numbers), task))


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

    def __call__(self, node: str, argv: list[str], stdin: str | None, timeout: float) -> Answer:
        part, now = self._parts[node], self._turns.now()
        if now - self._started.get(node, now) >= part.lost_s:
            self._turns.sleep(timeout)
            return None, [], ["no route to host"]
        if f"{_RUN}/.launcher" not in argv:
            return _answer({"python": "/usr/bin/python3", "run_dir": _RUN, "leftovers": {}})
        command, text = argv[argv.index(f"{_RUN}/.launcher") + 1 :]
        arguments = json.loads(text)
        if command == "go":
            self._started[node] = now
        elif command == "stop":
            self._stopped.setdefault(node, (now, arguments["reason"]))
        elif command in ("fetch", "digest"):
            return _answer(self._file(node, command, **arguments))
        elif command == "standstill":
            return _answer({"files": [], "processes": 8})
        elif command == "remove":
            return _answer({"left": []})
        return _answer(self._status(node, arguments.get("offset", 0)))

    def _file(self, node: str, command: str, name: str, offset: int = 0, length: int = 0, **_: Any) -> dict[str, Any]:
        if name not in (LEADER, KERNEL_LOG, SAMPLES):
            return {"missing": "no such file"}
        data = self._log(node)[0] if name == LEADER else self._sampler(node, name)
        if command == "digest":
            return {"size": len(data), "sha256": hashlib.sha256(data[:length]).hexdigest()}
        return {"data": _packed(data[offset:]), "offset": len(data), "size": len(data)}

    def _sampler(self, node: str, name: str) -> bytes:
        """Write what the sampler writes: the job's kernel log, or samples of no channel: nothing was measured."""
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


def _answer(document: dict[str, Any]) -> Answer:
    return 0, [json.dumps(document)], []


_FIRST_S = 40.0  # from the start to the first iteration
_NOISE = 0.004  # standard deviation of an iteration's time: FIELD data of healthy MI300X runs show 0.3 to 0.6 %
_ABOVE = 1.03  # a healthy rack against the figures that are expected
_FIGURES = {"throughput_per_gpu": 600.0, "tokens_per_gpu": 12000.0}  # where nothing is expected at this size
_AT = 0.4  # of the iterations, when a fault of the job shows
_START_S = 3.0  # when a fault shows that keeps the program from starting


def parts_of(plan: LaunchPlan, scenario: Scenario, seed: int) -> dict[str, Part]:
    """Return what each node does in a job of the plan."""
    nodes = [node.name for node in plan.nodes]
    active = {node: [fault for fault in scenario.of_node(node) if fault.in_job] for node in nodes}
    every = [fault for found in active.values() for fault in found]
    iterations = list(_iterations(plan, every, random.Random(f"demo/job/{seed}")))
    at = iterations[int(_AT * len(iterations))][0] - 1.0
    common = next((fault for fault in every if fault.nodes == 0 and fault.entry), None)
    if common is not None:
        last = (_START_S, line_of(common.entry))
        return {node: Part([*_begins(node), last], (_START_S + 0.3, common.code)) for node in nodes}
    bad = {node: fault for node, found in active.items() for fault in found if fault.entry or fault.stops or fault.lost}
    parts = {node: Part(_begins(node)) for node in nodes}
    parts[nodes[-1]].says += [(when, line) for when, line in iterations if not bad or when < at]
    for node, part in parts.items():
        if fault := bad.get(node):
            part.kernel += [(at - 0.2, line_of(fault.kernel))] if fault.kernel else []
            part.lost_s = at if fault.lost else math.inf
            if fault.entry:
                part.says.append((at, line_of(fault.entry)))
                part.ends = (at + 0.3, fault.code)
        elif any(not fault.stops for fault in bad.values()):
            part.says.append((at + 0.8, line_of("peer_lost")))
        elif not bad:
            part.ends = (iterations[-1][0] + 2.0, 0)
    return parts


def _begins(node: str) -> list[tuple[float, str]]:
    rccl = f"{node}:1201:1201 [0] NCCL INFO NET/IB : Using [0]bnxt_re0:1/RoCE [1]bnxt_re1:1/RoCE [RO]; OOB eth0"
    return [(0.1, f"{SIMULATED} by shakedown demo: no hardware was used"), (1.0, rccl)]


def _iterations(plan: LaunchPlan, every: list[Fault], dice: random.Random) -> Iterator[tuple[float, str]]:
    """Yield the iteration lines in Megatron-LM's form, with the times at which they come."""
    expect = _FIGURES | {name: value for name, value in plan.expect.items() if name in _FIGURES}
    tokens = plan.seq_length * plan.global_batch / plan.world_size
    slow = max([1.0, *(fault.slow for fault in every)])
    loss_kind = next((fault.loss for fault in every if fault.loss), "")
    at = _FIRST_S
    for number in range(1, plan.iterations + 1):
        factor = slow * math.exp(dice.gauss(0, _NOISE)) / _ABOVE * (3.0 if number == 1 else 1.0)
        seconds = tokens / expect["tokens_per_gpu"] * factor
        at += seconds
        loss, norm = _loss(number / plan.iterations, loss_kind, dice)
        yield (
            at,
            f" iteration {number:8d}/{plan.iterations:8d} | consumed samples: {number * plan.global_batch:12d} |"
            f" elapsed time per iteration (ms): {seconds * 1000:.1f} | mem usages: 0.7412 |"
            f" throughput per GPU (TFLOP/s/GPU): {expect['throughput_per_gpu'] / factor:.1f} |"
            f" learning rate: 1.000000E-05 | global batch size: {plan.global_batch:5d} | lm loss: {loss} |"
            f" loss scale: 1.0 | grad norm: {norm:.3f} | number of skipped iterations:   0 |"
            f" number of nan iterations:   {int(loss == 'nan')} |",
        )


def _loss(share: float, kind: str, dice: random.Random) -> tuple[str, float]:
    loss = 6.2 + 5.7 * math.exp(-3 * share) + dice.gauss(0, 0.02)
    if kind == "nan" and share > _AT:
        return "nan", math.nan
    if kind == "rises" and share > _AT:
        loss += 18 * (share - _AT)
    return f"{loss:.6E}", 1.2 + 2 * math.exp(-4 * share)
