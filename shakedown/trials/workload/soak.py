"""A node's part in one job of a soak: run.py soak REQUEST.json FOLDER. It loads the node and reads error counters.

A request is a JSON object: `seconds` (0: only look), `slice_s`, `sample_s`, `slack_s`, `tools` (of soak.toml, with
`name`), `together`, `counters`, `hotspot`, `scratch_bytes`, `memory` (a fraction), `model`, `gpus`. FOLDER, the scratch
folder, is made and removed here, and by the job's cleanup. A line of output is "soak " and a JSON object: `t` and
`loaded` are seconds; `absent`, `figure`, `wrong`, `failed` name a tool; `counters` has changed values; `rose` the
uncorrectable counter that ends the program with code 3; `over` ends the report.
"""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from . import programs, tools

MARK = "soak "  # in front of each line of the report
ROSE = 3  # exit code: a counter of uncorrectable errors rose
TAIL = 1 << 16  # bytes of a tool's output that are read
GRACE_S = 5.0  # beyond its time, for a tool to end alone
_CHUNK = 1 << 20
_PARTS = 512  # counters that are read: a file of a tree that grows without end costs nothing more


class Stopped(Exception):
    """The job is over before its time; the text has the reason."""


def say(document: dict[str, Any]) -> None:
    """Write a line of the report."""
    sys.stdout.write(f"{MARK}{json.dumps(document)}\n")
    sys.stdout.flush()


def part_of(pattern: str, path: str) -> str:
    """Return what of a counter's path names the part and the counter: what the pattern leaves open, and the file."""
    words = list(zip(pattern.split("/"), path.split("/")))  # noqa: B905
    return " ".join(word for number, (form, word) in enumerate(words, 1) if "*" in form or number == len(words))


def listed(pattern: str) -> list[Path]:
    """Return the files of an absolute pattern, in order."""
    return sorted(Path("/").glob(pattern.lstrip("/")))[:_PARTS]


def read_counters(counters: list[dict[str, Any]]) -> dict[str, tuple[int, bool]]:
    """Read every counter that can be read: its name -> value, and whether it counts uncorrectable errors."""
    values: dict[str, tuple[int, bool]] = {}
    for counter in counters:
        for path in listed(counter["path"]):
            try:
                with path.open("rb") as file:
                    text = file.read(4096).decode("ascii", "replace")
            except OSError:
                continue
            match = re.search(counter["value"], text)
            if match:
                kind = "uncorrectable" if counter["uncorrectable"] else "correctable"
                name = f"{counter['name']} {part_of(counter['path'], str(path))} {kind}"
                values[name] = int(match[1]), counter["uncorrectable"]
    return values


def hotspots(limit: dict[str, Any]) -> dict[str, tuple[float, float]]:
    """Read temperatures and their bounds, both in degrees: the device's folder -> the two."""
    values = {}
    for path in listed(limit["path"]):
        try:
            reading, bound = (int(file.read_text()) / 1000 for file in (path, path.with_name(limit["bound"])))
        except (OSError, ValueError):
            continue
        values[next((word for word in path.parts if word.count(":") > 1), str(path))] = (reading, bound)
    return values


class Soak:
    """One node's load and its counters."""

    def __init__(self, request: dict[str, Any]) -> None:
        self.request = request
        self.began = time.monotonic()
        self.until = self.began + request["seconds"] + request["slack_s"]  # whatever tools do
        self.loaded = 0.0  # seconds with a tool at work
        self._ended = ""  # by a signal
        self._first = read_counters(request["counters"])
        self._reported: dict[str, int] = {}
        self._hottest: dict[str, tuple[float, float]] = {}
        self._due = self.began
        self.usable: list[dict[str, Any]] = []

    def end(self, number: int, _frame: Any) -> None:
        """Have the program end in order, from a signal."""
        self._ended = f"signal {number}"

    def tell(self, **document: Any) -> None:
        """Report something of this moment."""
        say({"t": round(time.monotonic() - self.began, 2), "loaded": round(self.loaded, 2), **document})

    def look(self) -> None:
        """Report tools that are not here, and keep the others."""
        for tool in self.request["tools"]:
            reason = self._missing(tool)
            if reason:
                self.tell(absent=tool["name"], why=reason)
            else:
                self.usable.append(tool)

    def _missing(self, tool: dict[str, Any]) -> str:
        if tool["needs_gpu"] and not self.request["gpus"]:
            return "the node has no GPU"
        try:
            if programs.find(tool["program"]) is None:
                return f"{tool['program']} is not installed: install the package {tool['package']}"
        except programs.Failed as error:
            return str(error)
        if "{gst}" in tool["command"] and tools.configuration("gst", self.request["model"]) is None:
            return "rvs has no configuration of gst"
        return ""

    def sample(self, now: bool = False) -> None:
        """Read counters when it is time, or `now`. Raises Stopped for an uncorrectable error, and after a signal."""
        if self._ended:
            raise Stopped(self._ended)
        if time.monotonic() < self._due and not now:
            return
        self._due = time.monotonic() + self.request["sample_s"]
        values = read_counters(self.request["counters"])
        for name, (reading, bound) in hotspots(self.request["hotspot"]).items():
            self._hottest[name] = max(self._hottest.get(name, (reading, bound)), (reading, bound))
        changed = {name: value for name, (value, _) in values.items() if self._reported.get(name) != value}
        self._reported.update(changed)
        self.tell(counters=changed)
        for name, (value, uncorrectable) in values.items():
            before = self._first.get(name, (0, uncorrectable))[0]
            if uncorrectable and value > before:
                self.tell(rose=name, before=before, after=value)
                raise Stopped(f"uncorrectable error: {name} rose from {before} to {value}")

    def words(self, tool: dict[str, Any], seconds: float) -> list[str]:
        """Return a tool's command line. Makes the file that a reading tool needs."""
        folder = self.request["folder"]
        free = shutil.disk_usage(folder).free
        cpus = len(os.sched_getaffinity(0))
        workers = max(1, min(cpus, 64))
        size = max(1 << 20, min(self.request["scratch_bytes"], free // 10)) >> 20 << 20
        if tool["prepare"]:
            self._fill(Path(folder) / "read", size)
        values = {
            "seconds": math.ceil(seconds),
            "cpus": cpus,
            "workers": workers,
            "memory": max(1 << 22, int(available() * self.request["memory"]) // workers),
            "scratch": folder,
            "size": size,
            "direct": int(direct(folder)),
            "gst": tools.configuration("gst", self.request["model"]) if "{gst}" in tool["command"] else "",
        }
        command = [re.sub(r"\{(\w+)\}", lambda match: str(values[match[1]]), word) for word in tool["command"]]
        return [str(programs.find(command[0])), *command[1:]]

    def _fill(self, path: Path, size: int) -> None:
        if path.exists() and path.stat().st_size >= size:
            return
        block = os.urandom(_CHUNK)
        with path.open("wb") as file:
            for _ in range(size // _CHUNK):
                file.write(block)
                self.sample()

    def run(self, tools: list[dict[str, Any]]) -> None:
        """Run tools at the same time for one slice, and report what each came to."""
        seconds = min(self.request["slice_s"], self.request["seconds"] - self.loaded)
        commands = [self.words(tool, seconds) for tool in tools]
        with tempfile.TemporaryDirectory(dir=self.request["folder"]) as folder:
            outputs = [Path(folder) / str(number) for number in range(len(tools))]
            began, started = time.monotonic(), []
            try:
                for words, output in zip(commands, outputs):  # noqa: B905
                    started.append(start(words, output, folder))
                until = min(began + seconds + GRACE_S, self.until)
                while any(process.poll() is None for process in started) and time.monotonic() < until:
                    time.sleep(0.2)
                    self.sample()
            finally:
                took = time.monotonic() - began
                cut = [process.poll() is None for process in started]
                for process in started:
                    stop(process)
                self.loaded += took
            for tool, process, output, early in zip(tools, started, outputs, cut):  # noqa: B905
                self._judge(tool, process.returncode, tail(output), early, seconds < self.request["slice_s"] / 2)

    def _judge(self, tool: dict[str, Any], code: int, text: str, early: bool, short: bool = False) -> None:
        """Report a tool's figure, and what went wrong. `early`: this program ended it, so that no exit code counts.
        `short`: the rest of a stage, in which a tool may have no figure."""
        sys.stderr.write(f"== {tool['name']}: exit code {code}{', ended here' if early else ''}\n{text}\n")
        if tool["wrong"] and (wrong := re.search(f".*{tool['wrong']}.*", text)):
            self.tell(wrong=tool["name"], text=wrong[0][:200])
        elif code and not early:
            last = (text.strip().splitlines() or ["no output"])[-1]
            self.tell(failed=tool["name"], text=f"exit code {code}: {last[:160]}")
        numbers = [float(number) for number in re.findall(tool["figure"], text, re.MULTILINE)]
        value = sum(numbers) * tool["scale"]
        if numbers and value > 0:
            self.tell(figure=tool["name"], value=round(value / len(numbers) if tool["mean"] else value, 3))
        elif not (early or short):
            self.tell(failed=tool["name"], text="its output has no figure")

    def go(self) -> int:
        """Load the node until the time is over. Returns the exit code."""
        self.look()
        Path(self.request["folder"]).mkdir(0o700)  # a folder of that name that is there already is not ours
        code = 0
        try:
            self.sample(now=True)
            turn = 0
            while self.usable and self.loaded < self.request["seconds"] and time.monotonic() < self.until:
                self.run(self.usable if self.request["together"] else [self.usable[turn % len(self.usable)]])
                turn += 1
            self.sample(now=True)
        except Stopped as stopped:
            print(f"soak: stopped: {stopped}", flush=True)
            code = ROSE if not self._ended else 128 + signal.SIGTERM
        finally:
            shutil.rmtree(self.request["folder"], ignore_errors=True)
        self.tell(over=not code, hottest=self._hottest)
        return code


def available() -> int:
    """Return the bytes of memory that can be had without swapping."""
    text = Path("/proc/meminfo").read_text()
    match = re.search(r"MemAvailable:\s+(\d+) kB", text)
    return int(match[1]) << 10 if match else 1 << 28


def direct(folder: str) -> bool:
    """Tell whether the file system of a folder can bypass the page cache."""
    path = Path(folder) / "direct"
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_DIRECT, 0o600))
        return True
    except OSError:
        return False
    finally:
        path.unlink(missing_ok=True)


def start(words: list[str], output: Path, folder: str) -> subprocess.Popen[bytes]:
    """Start a tool in a group of its own, with its output in a file of the scratch folder."""
    sys.stderr.write(f"$ {' '.join(words)}\n")
    with output.open("wb") as file:
        return subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT, start_new_session=True, cwd=folder
        )


def stop(process: subprocess.Popen[bytes]) -> None:
    """End a tool with all its processes: with SIGTERM, which stress-ng answers with its figures, then with SIGKILL."""
    for number, limit_s in ((signal.SIGTERM, 3.0), (signal.SIGKILL, 10.0)):
        try:
            os.killpg(process.pid, number)
            process.wait(limit_s)
        except ProcessLookupError:
            break
        except subprocess.TimeoutExpired:
            continue
    process.poll()


def tail(output: Path) -> str:
    """Read the end of a tool's output."""
    with output.open("rb") as file:
        file.seek(max(0, output.stat().st_size - TAIL))
        return file.read(TAIL).decode("utf-8", "replace")


def main(path: str, folder: str) -> int:
    """Do what a request says. Returns the exit code."""
    soak = Soak({**json.loads(Path(path).read_text()), "folder": folder})
    signal.signal(signal.SIGTERM, soak.end)
    if not soak.request["seconds"]:
        soak.look()
        soak.sample(now=True)
        soak.tell(over=True, here=[tool["name"] for tool in soak.usable])
        return 0
    return soak.go()
