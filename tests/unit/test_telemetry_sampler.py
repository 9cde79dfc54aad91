"""The sampler of a node, as a process of its own: what it writes of GPUs that are not there (AMD's package over a
library of ours, a tree in the place of /sys) and of this machine, and how it ends."""

from __future__ import annotations

import base64
import os
import re
import signal
import subprocess
import sys
import time
import zlib
from collections.abc import Iterator
from importlib.metadata import distribution
from pathlib import Path

import pytest

from shakedown.evidence.telemetry import samples
from shakedown.evidence.telemetry.kernel import read as read_kernel
from shakedown.evidence.telemetry.kernel import timed
from shakedown.evidence.telemetry.samples import Series
from shakedown.evidence.telemetry.summary import NodeTelemetry, summary
from shakedown.jobs.remote import sampler_files
from shakedown.node.telemetry.sampler import Output
from tests.libamd_smi.build import build, configure
from tests.node_trees import make_tree
from tests.nodes import until

GPU = "0000:45:00.0"  # the third


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A node of 8 MI300X and 8 NICs whose ROCm has the library."""
    path = make_tree(tmp_path_factory.mktemp("tree"), gid_entries=4)
    build(path / "opt/rocm/lib")
    return path


class Sampled:
    """One sampler: its folder as a node has it, with the probe's bundle beside the run."""

    def __init__(self, cache: Path) -> None:
        self.run = cache / "runs/one"
        self.files = self.run / ".launcher"
        for name, content in sampler_files().items():
            path = self.run / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(zlib.decompress(base64.b64decode(content)))
        fallback = cache / f"digest-{sys.implementation.cache_tag}/fallback"
        fallback.mkdir(parents=True)
        fallback.parent.chmod(0o700)
        (fallback / "amdsmi").symlink_to(str(distribution("amdsmi").locate_file("amdsmi")))
        for name in ("psutil", "pyudev"):
            (fallback.parent / name).symlink_to(str(distribution(name).locate_file(name)))
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, *words: str, interval: float = 0.2, kmsg: int | None = None) -> subprocess.Popen[bytes]:
        own = ["--kmsg", str(kmsg)] if kmsg is not None else ["--why", "nobody asked"]
        options = ["--folder", str(self.files), "--interval", str(interval), *own, *words]
        argv = [sys.executable, "-I", "-S", str(self.files / "sampler"), *options]
        self.process = subprocess.Popen(argv, pass_fds=() if kmsg is None else (kmsg,))
        return self.process

    def series(self) -> Series:
        path = self.files / "telemetry.jsonl"
        return samples.read([path.read_bytes()] if path.exists() else [])

    def until_samples(self, count: int) -> None:
        until(lambda: len(self.series().times) >= count, 60)

    def end(self, number: signal.Signals = signal.SIGTERM) -> Series:
        assert self.process is not None
        self.process.send_signal(number)
        assert self.process.wait(60) == 0
        return self.series()


@pytest.fixture
def sampled(tmp_path: Path) -> Iterator[Sampled]:
    made = Sampled(tmp_path)
    yield made
    if made.process and made.process.poll() is None:
        made.process.kill()
        made.process.wait()


def of(series: Series) -> NodeTelemetry:
    return summary(series, None, None)


def test_gpus_by_the_library(tree: Path, sampled: Sampled) -> None:
    configure(tree / "opt/rocm/lib", bad=2, power=712, throttled_ppt=500, throttled_hbm=1000, uncorrectable=3)
    sampled.start("--root", str(tree))
    sampled.until_samples(4)
    until(lambda: of(sampled.series()).throttled, 60)  # of a library that may have answered late at first
    series = sampled.end()
    assert series.incomplete == "" and series.end is not None
    found = of(series)
    assert found.gpus == 8 and list(found.throttled) == [GPU]
    seconds = found.throttled[GPU]
    assert seconds["hbm_thermal"] > 0, "in each of the firmware's turns"
    assert seconds["power"] == pytest.approx(seconds["hbm_thermal"] / 2, rel=0.01), "and in half of them"
    assert set(found.throttle_unread) == {"current"}, "which MI300 does not count"
    power, clock = found.channels["gpu/*/power_w"], found.channels["gpu/*/gfx_clock_mhz"]
    assert (power.min, power.median, power.max) == (712, 712, 712)
    assert clock.median == 2035, "the mean over the XCDs"
    assert series.columns[f"gpu/{GPU}/ras_uncorrectable"][0] == 3
    assert found.channels["gpu/*/vram_used_bytes"].median == 297 << 20


def test_an_older_gpu_says_only_whether_it_is_throttled_right_now(tree: Path, sampled: Sampled) -> None:
    configure(tree / "opt/rocm/lib", bad=2, status=hex(1 << 36 | 1 << 17))
    sampled.start("--root", str(tree))
    sampled.until_samples(3)
    found = of(sampled.end())
    assert set(found.throttled[GPU]) == {"thermal", "current"} and not found.throttle_unread


@pytest.mark.parametrize("what", ["hang", "crash"])
def test_a_library_that_hangs_or_crashes_costs_what_only_it_knows(tree: Path, sampled: Sampled, what: str) -> None:
    configure(tree / "opt/rocm/lib", **{what: "amdsmi_get_gpu_metrics_info"})
    (sampled.files / "sampler/shakedown/node/telemetry/gpus.py").write_text(
        Path("shakedown/node/telemetry/gpus.py").read_text().replace("_START_S = 20.0", "_START_S = 1.0")
    )
    sampled.start("--root", str(tree))
    sampled.until_samples(3)
    found = of(sampled.end())
    assert found.channels["gpu/*/power_w"].median == 132, "by the driver's own file"
    assert len(found.throttle_unread["power"]) == 8
    why = found.unreadable["gpu/*/throttle_power_s"]
    assert ("no answer" if what == "hang" else "its process died") in why


def test_a_library_of_another_version_is_not_asked(tree: Path, sampled: Sampled) -> None:
    configure(tree / "opt/rocm/lib", abi=27)
    sampled.start("--root", str(tree))
    sampled.until_samples(2)
    found = of(sampled.end())
    assert found.channels["gpu/*/power_w"].median == 132, "by the driver's own file"
    assert "libamd_smi.so of version 27 needs" in found.unreadable["gpu/*/throttle_power_s"]


def test_what_cannot_be_read_is_said_once(tree: Path, sampled: Sampled) -> None:
    configure(tree / "opt/rocm/lib")
    sampled.start("--root", str(tree))
    sampled.until_samples(4)
    series = sampled.end()
    assert "/proc/pressure/cpu" in series.unreadable["pressure/cpu_some_s"]
    lines = (sampled.files / "telemetry.jsonl").read_text().splitlines()
    assert sum("pressure/cpu_some_s" in line for line in lines) == 2, "among the channels, and why"


def test_a_counter_that_rises_is_named(tree: Path, sampled: Sampled) -> None:
    counter = tree / "sys/class/infiniband/bnxt_re1/ports/1/hw_counters/to_retransmits"
    counter.write_text("7\n")
    sampled.start("--root", str(tree))
    sampled.until_samples(1)
    counter.write_text("9\n")
    until(lambda: sampled.series().risen, 60)
    counter.write_text("0\n")
    series = sampled.end()
    assert [(each.counter, each.before, each.after) for each in series.risen] == [
        ("rdma/bnxt_re1/to_retransmits", 7, 9)
    ]


def test_this_machine(sampled: Sampled) -> None:
    sampled.start("--interface", "lo")
    assert sampled.process is not None
    sampled.until_samples(3)
    pid = sampled.process.pid
    assert os.getpriority(os.PRIO_PROCESS, pid) == 19
    assert os.sched_getscheduler(pid) == os.SCHED_IDLE
    found = of(sampled.end())
    for name in ("kernel.log", "devices.log"):
        begun = re.match(r"# begin monotonic=\S+ wall=(\S+) ", (sampled.files / name).read_text())
        assert begun and abs(time.time() - float(begun[1])) < 600, "the node's time, when the window began"
    assert found.channels["cpu/busy_s"].max > 0
    assert found.channels["memory/available_bytes"].median > 1 << 20
    assert found.channels["net/*/rx_bytes"].min >= 0
    assert found.cpu_s is not None and found.cpu_s > 0


def test_it_ends_when_its_parent_is_gone(tmp_path: Path, sampled: Sampled) -> None:
    code = (
        "import subprocess, sys, time\n"
        f"child = subprocess.Popen([sys.executable, '-I', '-S', {str(sampled.files / 'sampler')!r}, '--folder', "
        f"{str(sampled.files)!r}, '--interval', '0.2', '--why', 'nobody'])\n"
        "print(child.pid, flush=True)\ntime.sleep(600)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        try:
            sampled.until_samples(2)
        finally:
            parent.kill()
    until(lambda: not Path(f"/proc/{pid}").exists() or sampled.series().end, 60)
    until(lambda: sampled.series().end, 60)
    end = sampled.series().end
    assert end is not None and end.why == "the watchdog is gone"


EARLIER = '{"PRIORITY":"3","MESSAGE":"old 7 times","__MONOTONIC_TIMESTAMP":"12000000"}'
SINCE = '{"PRIORITY":"3","MESSAGE":"new","__MONOTONIC_TIMESTAMP":"12500000"}'


class Pipe:
    """A pipe in the place of /dev/kmsg: each write is a record, as each read of the device gives one."""

    def __init__(self) -> None:
        import socket

        self.ours, self.theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.theirs.setblocking(False)

    def say(self, *records: str) -> None:
        for record in records:
            self.ours.send(record.encode())


def test_the_kernels_messages_of_the_window(sampled: Sampled) -> None:
    pipe = Pipe()
    sampled.start(kmsg=pipe.theirs.fileno(), interval=30)
    pipe.say("6,10,1500000,-;one\n SUBSYSTEM=pci\n", "3,11,1600000,-;amdgpu: GPU reset begin!\n")
    log = sampled.files / "kernel.log"
    until(lambda: log.exists() and "reset" in log.read_text(), 60)
    pipe.say("6,14,1700000,-;later\n")
    until(lambda: "later" in log.read_text(), 60)
    sampled.end()
    window = read_kernel([log.read_bytes()])
    assert window.lines == [
        "<6>[    1.500000] one",
        "<3>[    1.600000] amdgpu: GPU reset begin!",
        "<6>[    1.700000] later",
    ]
    assert window.incomplete == "2 records overwritten" and window.source == "kmsg"
    assert timed(window.lines[1]) == (1.6, "amdgpu: GPU reset begin!")


@pytest.mark.parametrize(
    ("script", "lines", "why"),
    [
        (f"case $* in *--lines=1) echo boot;; *--priority*) echo '{EARLIER}';; *) echo '{SINCE}';; esac", 1, ""),
        ("exit 0", 0, "not readable: nobody asked"),
        ("exit 1", 0, "not readable: nobody asked"),
    ],
)
def test_where_kmsg_is_closed_the_journal_is_asked(
    tmp_path: Path, sampled: Sampled, script: str, lines: int, why: str
) -> None:
    tool = tmp_path / "tree/usr/bin/journalctl"
    tool.parent.mkdir(parents=True)
    tool.write_text(f"#!/bin/sh\n{script}\n")
    tool.chmod(0o755)
    sampled.start("--root", str(tmp_path / "tree"))
    sampled.until_samples(1)
    sampled.end()
    window = read_kernel([(sampled.files / "kernel.log").read_bytes()])
    assert (len(window.lines), window.unreadable, window.incomplete) == (lines, why, "")
    if lines:
        assert window.lines == ["<3>[   12.500000] new"] and window.before == {"old # times"}


def test_the_file_never_grows_beyond_its_limit_and_keeps_what_was_counted(tmp_path: Path) -> None:
    output = Output(str(tmp_path / "out"), limit=80 << 10)
    begin = {"schema": 1, "t": 0, "wall": 0, "boot_id": "", "interval_s": 1, "cpus": 1}
    output.tell("begin", **begin, channels=["cpu/busy_s"])
    for turn in range(5000):
        output.sample({"t": turn, "v": [turn * 2]})
    output.tell("end", t=5000, why="", samples=output.samples, thinned=3, interval_s=8, cpu_s=0)
    output.close()
    assert (tmp_path / "out").stat().st_size <= 80 << 10 and output.thinned >= 2
    series = samples.read([(tmp_path / "out").read_bytes()])
    assert series.incomplete == "" and len(series.times) == output.samples
    assert series.columns["cpu/busy_s"] == [when * 2 for when in series.times]
    assert series.times[0] == 0 and series.times[-1] >= 4990


def test_samples_that_cost_more_than_their_share_are_taken_less_often(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from shakedown.node.telemetry import sampler
    from shakedown.node.tree import Tree

    made = sampler.Sampler(str(tmp_path), 1.0, Tree(str(tmp_path / "nothing")))
    spent = iter(range(1000))
    monkeypatch.setattr(made, "_cpu_s", lambda: next(spent) * 0.04)
    for _ in range(8):
        made.sample()
    assert made._interval == pytest.approx(0.04 / sampler.SHARE)
