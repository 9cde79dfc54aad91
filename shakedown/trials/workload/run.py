"""A node's trials: run.py REQUEST.json. It starts itself again on each part (run.py child, run.py between), without
torch here: a hang loses only its own figures. The exit code is 0 when every process was waited for; the controller
judges figures, and missing ones."""

from __future__ import annotations

import contextlib
import importlib
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

if not __package__:  # run by its path: the folder is then no package yet, whatever its name on the node is
    sys.modules["workload"] = types.ModuleType("workload")
    sys.modules["workload"].__path__ = [str(Path(__file__).resolve().parent)]
    __package__ = "workload"

from .registry import CRASHED, DEVICE, HOST, MARK, NODE, TIMEOUT, TOOL, reading, trials

FOLDER = Path(__file__).resolve().parent
LINE_LIMIT = 4096
_NUMA = Path("/sys/devices/system/node")
_NOTHING: dict[str, Any] = {"begins": "", "repetition": 1}
_output = threading.Lock()


def say(document: dict[str, Any]) -> None:
    """Write a reading to the job's log."""
    with _output:
        sys.stdout.write(f"{MARK}{json.dumps(document)}\n")
        sys.stdout.flush()


def parse_cpus(text: str) -> list[int]:
    """Read the kernel's notation of CPUs: 0-3,8."""
    cpus: list[int] = []
    for part in text.strip().split(","):
        low, _, high = part.partition("-")
        if low:
            cpus += range(int(low), int(high or low) + 1)
    return cpus


def numa_nodes() -> dict[str, list[int]]:
    """Return NUMA node -> its CPUs that this process may use; all in numa0 where the kernel lists no nodes."""
    usable = os.sched_getaffinity(0)
    nodes = {}
    for folder in sorted(_NUMA.glob("node[0-9]*"), key=lambda path: int(path.name[4:])):
        cpus = [cpu for cpu in parse_cpus((folder / "cpulist").read_text()) if cpu in usable]
        if cpus:
            nodes[f"numa{folder.name[4:]}"] = cpus
    return nodes or {"numa0": sorted(usable)}


class Process:
    """A process of this job, with a limit to its silence. `begun`: its current trial; `limit_s`: the limit now."""

    def __init__(self, words: list[str], log: Path, limit_s: float, start_s: float) -> None:
        self._limit_s, self.begun = limit_s, _NOTHING
        self.ended, self.timed_out = False, False
        self._file = log.open("ab")
        self._process = subprocess.Popen(
            [sys.executable, str(FOLDER / "run.py"), *words],
            stdout=subprocess.PIPE,
            stderr=self._file,
            start_new_session=True,
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
        """Pass on the readings of the process until its end. Returns the exit code."""
        self.limit_s = self._start_s
        while True:
            try:
                line = self._lines.get(timeout=self.limit_s)
            except queue.Empty:
                self.timed_out = True
                break
            if line is None:
                break
            self.limit_s = self._limit_s
            try:
                document = json.loads(line)
            except ValueError:
                continue
            if not isinstance(document, dict):
                continue
            if "begins" in document:
                self.begun = document
                trial = trials().get(document["begins"])
                self.limit_s = max(self.limit_s, 4 * trial.seconds) if trial else self.limit_s
            self.ended |= "ends" in document
            if not {"begins", "ends"} & set(document):
                tell(document)
        return self.end()

    def end(self) -> int:
        """Return the exit code; a process that has not finished is killed with all its children."""
        if not self.ended:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        code = self._process.wait()
        self._file.close()
        return code


def on_part(part: str, names: list[str], request: dict[str, Any], reports_missing: bool = True, **more: Any) -> None:
    """Run trials in a process on a part, and report readings, also of missing figures if `reports_missing`."""
    wanted = {"trials": names, "repetitions": request["repetitions"], "seconds": request["seconds"], **more}
    log = logs() / f"{part}{more.get('rank', '')}.log"
    process = Process(["child", part, json.dumps(wanted)], log, request["limit_s"], request["start_s"])
    code = process.watch(say)
    if process.ended or not reports_missing:
        return
    state = TIMEOUT if process.timed_out else CRASHED
    at = process.begun["begins"]
    note = f"nothing for {process.limit_s:g} s" if process.timed_out else f"exit code {code}"
    for name in names[names.index(at) :] if at in names else names:
        if name == at or not at:
            say(reading(name, part, process.begun["repetition"], state=state, note=f"{note}: see the log {log.name}"))
        elif process.begun["repetition"] == 1:
            say(reading(name, part, 1, state=state, note=f"the trial {at} before it: {note}"))


def logs() -> Path:
    """Return the folder of the processes' logs, beside this one in the run's folder."""
    folder = FOLDER.parent / "logs"
    folder.mkdir(exist_ok=True)
    return folder


def gather(kept: int = 1 << 14) -> None:
    """Join the ends of the processes' logs in one log: the number of processes depends on the node."""
    with (logs() / "parts.log").open("wb") as gathered:
        for path in sorted(logs().glob("*.log")):
            text = path.read_bytes()[-kept:] if path.name != "parts.log" else b""
            if text:
                gathered.write(b"== %s\n%s\n" % (path.name.encode(), text))


def together(jobs: list[Callable[[], None]]) -> None:
    """Run jobs at the same time, and wait for them."""
    threads = [threading.Thread(target=job) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def alone(request: dict[str, Any]) -> None:
    """Run the trials of this node alone: devices, then the host, then all devices together."""
    chosen = [trial for trial in trials().values() if trial.name in request["trials"]]
    names = {on: [trial.name for trial in chosen if trial.on == on] for on in (DEVICE, HOST, NODE, TOOL)}
    gpus, numa = range(request["gpus"]), numa_nodes()
    if names[DEVICE]:
        parts: dict[str, dict[str, Any]] = {f"gpu{gpu}": {"gpu": gpu, "numa": numa} for gpu in gpus} or {"cpu": {}}
        together([lambda p=p, m=m: on_part(p, names[DEVICE], request, **m) for p, m in parts.items()])  # type: ignore[misc]
    if names[HOST]:
        together([lambda p=p, c=c: on_part(p, names[HOST], request, cpus=c) for p, c in numa.items()])  # type: ignore[misc]
    for name in names[TOOL]:
        about = {"gpus": len(gpus), "model": request.get("model", ""), "folders": request.get("folders", [])}
        on_part("node", [name], request, tool=about)
    ranks = len(gpus) or request["ranks"]
    if names[NODE] and ranks > 1:
        with tempfile.TemporaryDirectory() as folder:
            group = {"rendezvous": f"{folder}/rendezvous", "ranks": ranks}
            more = [{"rank": rank, **({"gpu": rank} if gpus else {}), **group} for rank in range(ranks)]
            together([lambda m=m: on_part("node", names[NODE], request, not m["rank"], **m) for m in more])  # type: ignore[misc]


def between(request: dict[str, Any]) -> None:
    """Take this node's part in each trial's rounds; after a silent process another takes the rounds that are left."""
    keeper, passes = None, [(name, rail) for name in request["trials"] for rail in list_rails(request, name)]
    if request["place"] == 0:
        words = ["between", "keep", request["own"], str(request["port"])]
        words += [str(request["nodes"] * len(passes)), str(request["total_s"])]
        keeper = Process(words, logs() / "rendezvous.log", request["total_s"], request["total_s"])
    for name, rail in passes:
        more: dict[str, Any] = {"trial": name, "pass": rail["number"], **rail}
        if request["gpus"]:
            more["gpu"] = rail["number"]
        if rail["device"]:
            os.environ["NCCL_IB_HCA"] = rail["device"]
        at = 0
        while at <= len(request["rounds"]):  # after the last round a process only reports that this node has finished
            at = _rounds_from(at, {**request, **more}, rail["name"])
    if keeper is not None:
        keeper.watch(lambda _document: None)


def list_rails(request: dict[str, Any], name: str) -> list[dict[str, Any]]:
    """Return a trial's rails, or one without device: torch uses devices only with GPUs, RDMA tools always."""
    devices = request["rails"] if request["gpus"] or not trials()[name].needs_torch else []
    numbered = [{"number": n, "device": device, "name": f"rail{n}"} for n, device in enumerate(devices)]
    return numbered or [{"number": 0, "device": None, "name": None}]


def _rounds_from(first: int, request: dict[str, Any], rail: str | None) -> int:
    """Take the rounds from the first one on. Returns the first round that is left."""
    done = [first]

    def tell(document: dict[str, Any]) -> None:
        if "round" in document:
            done[0] = document["round"] + 1
        else:
            say({**document, "rail": rail} if rail else document)

    words = ["between", json.dumps({**request, "from": first})]
    trial = trials()[request["trial"]]
    # For the other nodes, for the measurement, and for some slack; a tool has a limit for each of its runs.
    limit_s = (3 if trial.needs_torch else 12) * request["limit_s"]
    process = Process(words, logs() / "between.log", limit_s, request["start_s"])
    code = process.watch(tell)
    if process.ended:
        return len(request["rounds"]) + 1
    state = TIMEOUT if process.timed_out else CRASHED
    note = f"nothing for {process.limit_s:g} s" if process.timed_out else f"exit code {code}: see the log between.log"
    lost = request["rounds"][done[0]] if done[0] < len(request["rounds"]) else []
    for pair in lost:
        if request["place"] in pair:
            other = next(node for node in pair if node != request["place"])
            part = f"{request['place']}>{other}"
            say(reading(trial.name, part, request["repetitions"][done[0]], state=state, note=note, rail=rail))
    return done[0] + 1


def main(path: str) -> int:
    """Run the trials of a request. Returns the exit code."""
    request = json.loads(Path(path).read_text())
    began = time.monotonic()
    if "rounds" in request:
        between(request)
    else:
        alone(request)
    gather()
    print(f"trials: over after {time.monotonic() - began:.1f} s", flush=True)
    return 0


if __name__ == "__main__":
    if sys.argv[1] in ("child", "between", "soak"):
        code = importlib.import_module(f".{sys.argv[1]}", __package__).main(*sys.argv[2:])
        sys.stderr.flush()
        os._exit(code or 0)  # gloo's threads can abort while Python tears down
    sys.exit(main(sys.argv[1]))
