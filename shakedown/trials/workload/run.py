"""A node's trials: run.py REQUEST.json. Starts one process on each part, and says what they measured.

Nothing here imports torch: what hangs is another process, which is ended when it has said nothing for its time, and
costs its own figures only. The exit code is 0 when every process was started and waited for, whatever came of it: what
a figure is worth, and that one is missing, is for the controller to judge.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

if not __package__:
    sys.modules["workload"] = types.ModuleType("workload")
    sys.modules["workload"].__path__ = [str(Path(__file__).resolve().parent)]
    __package__ = "workload"

from .registry import CRASHED, DEVICE, HOST, MARK, NODE, TIMEOUT, TOOL, reading, trials

FOLDER = Path(__file__).resolve().parent
LINE_LIMIT = 4096
_NUMA = Path("/sys/devices/system/node")
_NOTHING: dict[str, Any] = {"begins": "", "repetition": 1}
_saying = threading.Lock()


def say(document: dict[str, Any]) -> None:
    """A reading, in the job's log."""
    with _saying:
        sys.stdout.write(f"{MARK}{json.dumps(document)}\n")
        sys.stdout.flush()


def cpus_of(text: str) -> list[int]:
    """The kernel's notation of CPUs: 0-3,8."""
    found: list[int] = []
    for part in text.strip().split(","):
        low, _, high = part.partition("-")
        if low:
            found += range(int(low), int(high or low) + 1)
    return found


def numa_nodes() -> dict[str, list[int]]:
    """NUMA node -> its CPUs, as far as this process may use them; one of all where the kernel tells none."""
    usable = os.sched_getaffinity(0)
    found = {}
    for folder in sorted(_NUMA.glob("node[0-9]*"), key=lambda path: int(path.name[4:])):
        cpus = [cpu for cpu in cpus_of((folder / "cpulist").read_text()) if cpu in usable]
        if cpus:
            found[f"numa{folder.name[4:]}"] = cpus
    return found or {"numa0": sorted(usable)}


class Process:
    """A process of this job, with a limit to its silence. `begun`: what it is at."""

    def __init__(self, words: list[str], log: Path, limit_s: float, start_s: float) -> None:
        self._limit_s, self.begun = limit_s, _NOTHING
        self.ended, self.timed_out = False, False
        self._file = log.open("ab")
        self._process = subprocess.Popen(
            [sys.executable, *words], stdout=subprocess.PIPE, stderr=self._file, start_new_session=True
        )
        self._lines: queue.Queue[bytes | None] = queue.Queue()
        self._start_s = start_s
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        while line := self._process.stdout.readline(LINE_LIMIT):
            self._lines.put(line)
        self._lines.put(None)

    def watch(self, tell: Callable[[dict[str, Any]], None]) -> int:
        """Hand on what it says until its end. Returns the exit code."""
        limit = self._start_s
        while True:
            try:
                line = self._lines.get(timeout=limit)
            except queue.Empty:
                self.timed_out = True
                break
            if line is None:
                break
            limit = self._limit_s
            try:
                document = json.loads(line)
            except ValueError:
                continue
            if not isinstance(document, dict):
                continue
            if "begins" in document:
                self.begun = document
                known = trials().get(document["begins"])
                limit = max(limit, 4 * known.seconds) if known else limit
            self.ended |= "ends" in document
            if not {"begins", "ends"} & set(document):
                tell(document)
        return self.end()

    def end(self) -> int:
        """Its exit code; ended with all that it started where it has not."""
        if not self.ended:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        code = self._process.wait()
        self._file.close()
        return code


def on_part(part: str, names: list[str], request: dict[str, Any], told: bool = True, **more: Any) -> None:
    """Run trials in a process on a part, and say what becomes of them. `told`: this process tells what is missing."""
    asked = {"trials": names, "repetitions": request["repetitions"], "seconds": request["seconds"], **more}
    log = logs() / f"{part}{more.get('rank', '')}.log"
    process = Process([str(FOLDER / "child.py"), part, json.dumps(asked)], log, request["limit_s"], request["start_s"])
    code = process.watch(say)
    if process.ended or not told:
        return
    state = TIMEOUT if process.timed_out else CRASHED
    at = process.begun["begins"]
    note = f"nothing for {request['limit_s']:g} s" if process.timed_out else f"exit code {code}"
    for name in names[names.index(at) :] if at in names else names:
        if name == at or not at:
            say(reading(name, part, process.begun["repetition"], state=state, note=f"{note}: see its log {log.name}"))
        elif process.begun["repetition"] == 1:
            say(reading(name, part, 1, state=state, note=f"{at} before it gave {note}"))


def logs() -> Path:
    """Where each process has its log; the run's folder is the one above this one."""
    folder = FOLDER.parent / "logs"
    folder.mkdir(exist_ok=True)
    return folder


def gather(kept: int = 1 << 14) -> None:
    """The end of what each process said, in one log: how many there are depends on the node."""
    with (logs() / "parts.log").open("wb") as gathered:
        for path in sorted(logs().glob("*.log")):
            text = path.read_bytes()[-kept:] if path.name != "parts.log" else b""
            if text:
                gathered.write(b"== %s\n%s\n" % (path.name.encode(), text))


def together(jobs: list[Callable[[], None]]) -> None:
    """All at once."""
    threads = [threading.Thread(target=job) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def by_itself(request: dict[str, Any]) -> None:
    """The trials of this node by itself: devices, then the host, then all devices together."""
    chosen = [each for each in trials().values() if each.name in request["trials"]]
    names = {on: [each.name for each in chosen if each.on == on] for on in (DEVICE, HOST, NODE, TOOL)}
    gpus, numa = range(request["gpus"]), numa_nodes()
    if names[DEVICE]:
        parts: dict[str, dict[str, Any]] = {f"gpu{gpu}": {"gpu": gpu, "numa": numa} for gpu in gpus} or {"cpu": {}}
        together([lambda p=p, m=m: on_part(p, names[DEVICE], request, **m) for p, m in parts.items()])  # type: ignore[misc]
    if names[HOST]:
        together([lambda p=p, c=c: on_part(p, names[HOST], request, cpus=c) for p, c in numa.items()])  # type: ignore[misc]
    for name in names[TOOL]:
        on_part("node", [name], request, tool={"gpus": len(gpus), "model": request.get("model", "")})
    ranks = len(gpus) or request["ranks"]
    if names[NODE] and ranks > 1:
        with tempfile.TemporaryDirectory() as folder:
            group = {"rendezvous": f"{folder}/rendezvous", "ranks": ranks}
            more = [{"rank": rank, **({"gpu": rank} if gpus else {}), **group} for rank in range(ranks)]
            together([lambda m=m: on_part("node", names[NODE], request, not m["rank"], **m) for m in more])  # type: ignore[misc]


def between(request: dict[str, Any]) -> None:
    """This node's part in the rounds of each trial. A process that is silent for too long is ended, and another one
    takes the rounds that are left."""
    keeper, passes = None, [(name, rail) for name in request["trials"] for rail in rails_of(request, name)]
    if request["place"] == 0:
        words = [str(FOLDER / "rendezvous.py"), request["own"], str(request["port"])]
        words += [str(request["nodes"] * len(passes)), str(request["total_s"])]
        keeper = Process(words, logs() / "rendezvous.log", request["total_s"], request["total_s"])
    for name, rail in passes:
        more: dict[str, Any] = {"trial": name, "pass": rail["number"], **rail}
        if request["gpus"]:
            more["gpu"] = rail["number"]
        if rail["device"]:
            os.environ["NCCL_IB_HCA"] = rail["device"]
        at = 0
        while at <= len(request["rounds"]):  # behind the last round a process only says that this node is through
            at = _rounds_from(at, {**request, **more}, rail["name"])
    if keeper is not None:
        keeper.watch(lambda _document: None)


def rails_of(request: dict[str, Any], name: str) -> list[dict[str, Any]]:
    """The rails that a trial is taken over, as many on each node: torch's is held to devices where GPUs are, a tool of
    the RDMA devices always. One without a device where there are none."""
    devices = request["rails"] if request["gpus"] or not trials()[name].needs_torch else []
    numbered = [{"number": n, "device": each, "name": f"rail{n}"} for n, each in enumerate(devices)]
    return numbered or [{"number": 0, "device": None, "name": None}]


def _rounds_from(first: int, request: dict[str, Any], rail: str | None) -> int:
    """Take the rounds from the first one on. Returns the first that is left."""
    done = [first]

    def tell(document: dict[str, Any]) -> None:
        if "round" in document:
            done[0] = document["round"] + 1
        else:
            say({**document, "rail": rail} if rail else document)

    words = [str(FOLDER / "between.py"), json.dumps({**request, "from": first})]
    known = trials()[request["trial"]]
    # For the others, for the measurement itself, and for some slack; a tool has a limit for each of its runs.
    limit_s = (3 if known.needs_torch else 12) * request["limit_s"]
    process = Process(words, logs() / "between.log", limit_s, request["start_s"])
    code = process.watch(tell)
    if process.ended:
        return len(request["rounds"]) + 1
    state = TIMEOUT if process.timed_out else CRASHED
    note = f"nothing for {limit_s:g} s" if process.timed_out else f"exit code {code}: see the log between.log"
    lost = request["rounds"][done[0]] if done[0] < len(request["rounds"]) else []
    for pair in lost:
        if request["place"] in pair:
            other = next(each for each in pair if each != request["place"])
            part = f"{request['place']}>{other}"
            say(reading(known.name, part, request["repetitions"][done[0]], state=state, note=note, rail=rail))
    return done[0] + 1


def main(path: str) -> int:
    """The exit code."""
    request = json.loads(Path(path).read_text())
    began = time.monotonic()
    if "rounds" in request:
        between(request)
    else:
        by_itself(request)
    gather()
    print(f"trials: over after {time.monotonic() - began:.1f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
