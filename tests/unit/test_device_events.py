"""Events of devices while a job runs: heard by a real monitor, judged by the gate, and part of the diagnosis."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from shakedown.evidence.diagnosis.origin import decide
from shakedown.evidence.results import Failure, NodeClock, Timing
from shakedown.evidence.telemetry import DEVICE_LOG
from shakedown.evidence.telemetry.kernel import KernelWindow, read, timed
from shakedown.gates.nodes import no_kernel_fault
from shakedown.gates.observed import NodeWatch
from shakedown.jobs.launch import Event
from shakedown.logs.kept_logs import KeptLog
from shakedown.node.telemetry import kernel
from shakedown.runs.diagnosis import signs_of
from shakedown.runs.directory import Evidence, JobRecord, RunDirectory
from shakedown.runs.watch.notes import NotesReader
from shakedown.runs.watch.picture import Picture
from shakedown.runs.watch.screen import Lines
from shakedown.state.findings import Verdict
from tests.gates import judged
from tests.unit.test_diagnosis import BEGIN, failure
from tests.unit.test_supervise import Jobs
from tests.unit.test_watch import begun, ends

WEDGED = "amdgpu 0000:c1:00.0: uevent change drm card1 WEDGED=none"
LOST, AGAIN = ("ionic 0000:09:00.0 ens3: link " + words for words in ("lost its carrier", "has its carrier again"))

BEGINS = """
import ctypes, os, sys, time
from shakedown.node.telemetry import kernel
from shakedown.node.tree import Tree
PATH = sys.argv[1]
def drain(command=""):
    assert not command or os.system(command) == 0, command
    time.sleep(0.3)
    seen.drain()
def watch(interface=None):
    return kernel.Devices(PATH, Tree(), time.monotonic(), time.time(), interface)
"""
# A rack's GPU, NIC and drive as umockdev shows them to libudev; each step is one event of the kernel.
MOCKED = """
DEVICES = {"c1:00.0": ("amdgpu", "drm/card1"), "09:00.0": ("ionic", "infiniband/ionic_0"),
           "42:00.0": ("nvme", "nvme/nvme1"), "f0:00.0": ("ast", "drm/card0")}
library = ctypes.CDLL("libumockdev.so.0")
library.umockdev_testbed_new.restype = ctypes.c_void_p
bed = ctypes.c_void_p(library.umockdev_testbed_new())
def path(name):
    return "/devices/pci0000:00/0000:" + name
for name, (driver, child) in DEVICES.items():
    text = "P: {0}\\nE: SUBSYSTEM=pci\\nE: DRIVER={1}\\nE: PCI_ID=1002:74A1\\n\\nP: {0}/{2}\\nE: SUBSYSTEM={3}\\n"
    described = text.format(path(name), driver, child, child.split("/")[0]).encode()
    assert library.umockdev_testbed_add_from_string(bed, described, None)
def event(action, name, **properties):
    device = ("/sys" + path(name)).encode()
    for key, value in properties.items():
        library.umockdev_testbed_set_property(bed, device, key.encode(), value.encode())
    library.umockdev_testbed_uevent(bed, device, action.encode())
    drain()
seen = watch()
event("change", "c1:00.0/drm/card1", WEDGED="none")
event("unbind", "c1:00.0")
event("remove", "09:00.0/infiniband/ionic_0")
event("change", "42:00.0", ERROR_EVENT="FAILED_RECOVERY", DEVICE_ONLINE="0")
event("change", "f0:00.0/drm/card0", HOTPLUG="1")
event("add", "09:00.0/infiniband/ionic_0")
seen.close(time.monotonic())
"""
CARRIERS = """
os.system("ip link add used type veth peer name other && ip link set other up && ip link set used up")
time.sleep(0.3)
seen = watch("used")
drain("ip link set other down")
drain("ip link set other up")
drain("ip link add pod type veth peer name pod2")  # as containers come and go
drain("ip link del pod")
drain("ip link del used")
seen.close(time.monotonic())
"""
BURST = """
kernel._BUFFER = 4096
os.system("ip link add used type veth peer name other && ip link set other up && ip link set used up")
time.sleep(0.3)
seen = watch("used")
with open(PATH + ".batch", "w") as batch:
    batch.writelines("link add a%d type veth peer name b%d\\n" % (number, number) for number in range(30))
drain("ip -batch %s.batch && ip link del used" % PATH)
drain("ip link add used type veth peer name other")
seen.close(time.monotonic())
"""


def watched(tmp_path: Path, script: str, *before: str) -> KernelWindow:
    """What the monitor wrote during a script, by the node's own clock."""
    file = tmp_path / "devices.log"
    words = [*before, sys.executable, "-c", BEGINS + script, str(file)]
    done = subprocess.run(
        words, capture_output=True, text=True, timeout=120, env=os.environ | {"PYTHONPATH": str(Path.cwd())}
    )
    assert done.returncode == 0, done.stderr
    window = read([file.read_bytes()])
    times = [record[0] for record in map(timed, window.lines) if record]
    assert window.source == "kernel" and times == sorted(times) and len(times) == len(window.lines)
    return window


def in_namespace() -> tuple[str, ...]:
    """A network namespace of its own, whose user is not root outside, with its own interfaces in /sys."""
    mounted = 'mount -t sysfs sysfs /sys && exec "$@"'
    words = ("unshare", "--user", "--map-root-user", "--net", "--mount", "sh", "-c", mounted, "sh")
    if subprocess.run([*words, "ip", "link"], capture_output=True, check=False).returncode:
        pytest.skip("no user namespaces")
    return words


def texts(window: KernelWindow) -> list[str]:
    return [line.partition("]")[0][:3] + line.partition("] ")[2] for line in window.lines]


@pytest.mark.skipif(not shutil.which("umockdev-wrapper"), reason="make system installs umockdev")
def test_events_of_a_racks_devices_name_driver_and_function(tmp_path: Path) -> None:
    window = watched(tmp_path, MOCKED, "umockdev-wrapper")
    assert texts(window) == [
        f"<3>{WEDGED}",
        "<3>amdgpu 0000:c1:00.0: uevent unbind pci 0000:c1:00.0",
        "<3>ionic 0000:09:00.0: uevent remove infiniband ionic_0",
        "<3>nvme 0000:42:00.0: uevent change pci 0000:42:00.0 DEVICE_ONLINE=0 ERROR_EVENT=FAILED_RECOVERY",
        "<3>ast 0000:f0:00.0: uevent change drm card0 HOTPLUG=1",
        "<6>ionic 0000:09:00.0: uevent add infiniband ionic_0",
    ]
    assert not window.incomplete and not window.unreadable
    gate = judged(no_kernel_fault(NodeWatch(devices={"a": window}, links={"a": ["ionic_0"]})))
    assert gate.verdict is Verdict.FAIL and gate.actual == 4, "a display of a management controller is no fault"
    for name in ("gpu_reset_event", "gpu_left", "nic_left", "pcie_recovery_failed_event"):
        assert name in gate.evidence


def test_links_and_devices_of_the_job_alone_in_a_namespace_without_udevd(tmp_path: Path) -> None:
    window = watched(tmp_path, CARRIERS, *in_namespace())
    assert texts(window)[:2] == [
        "<3>virtual used: link lost its carrier",
        "<6>virtual used: link has its carrier again",
    ]
    assert texts(window)[-1] == "<3>virtual: uevent remove net used"
    assert not any("pod" in line for line in window.lines)


def test_a_burst_beyond_the_buffer_costs_events_and_no_change_of_the_list(tmp_path: Path) -> None:
    window = watched(tmp_path, BURST, *in_namespace())
    assert "<3>virtual: uevent remove net used (seen in the list)" in texts(window)
    assert texts(window)[-1] == "<6>virtual: uevent add net used", "the monitor hears events again"
    assert "an unknown number of events" in window.incomplete


def test_a_storm_is_bounded_and_leaves_room_for_faults(tmp_path: Path) -> None:
    script = f"""
seen = watch()
for number in range(1000):
    seen._write(6, "eth%d: uevent move net eth%d" % (number, number) + "x" * 5000)
seen._write(3, {WEDGED!r})
seen.close(time.monotonic())
"""
    window = watched(tmp_path, script)
    assert len(window.lines) == kernel.PER_MINUTE + 1 and texts(window)[-1] == f"<3>{WEDGED}"
    assert "940 records beyond the limit" in window.incomplete
    assert max(map(len, window.lines)) < 1100


def window(*messages: str) -> KernelWindow:
    return KernelWindow(lines=[f"<3>[{at:12.6f}] {text}" for at, text in enumerate(messages, 1)],
                        numbers=list(range(2, 2 + len(messages))))  # fmt: skip


@pytest.mark.parametrize(
    ("messages", "verdict"),
    [
        ([WEDGED], Verdict.FAIL),
        (["xe 0000:03:00.0: uevent change drm card0 WEDGED=rebind,bus-reset"], Verdict.FAIL),  # drm/xe's own example
        (["ionic 0000:09:00.0: uevent unbind pci 0000:09:00.0"], Verdict.FAIL),
        (["tg3 0000:c2:00.0: uevent remove net eno1"], Verdict.OK),  # a management port
        (["tg3 0000:c2:00.0 eno1: link lost its carrier"], Verdict.OK),
        ([LOST], Verdict.FAIL),
        ([LOST, AGAIN], Verdict.WARN),
        (["ionic 0000:09:00.0: uevent remove net ens3", AGAIN], Verdict.FAIL),  # the card came back
        (["0000:f0:00.0: uevent remove pci 0000:f0:00.0"], Verdict.WARN),
        (["amdgpu 0000:c1:00.0: uevent change drm card1 NEW_WORD=7"], Verdict.UNKNOWN),
        ([], Verdict.OK),
    ],
)
def test_events_judge_a_run_whose_training_went_on(messages: list[str], verdict: Verdict) -> None:
    watch = NodeWatch(kernel={"a": window()}, devices={"a": window(*messages)}, links={"a": ["ens3", "0000:09:00.0"]})
    assert judged(no_kernel_fault(watch)).verdict is verdict


def test_the_absence_of_events_is_no_evidence() -> None:
    assert no_kernel_fault(NodeWatch(devices={"a": window()})) is None, "nothing was seen: there is no gate"
    unread = NodeWatch(kernel={"a": None}, kernel_wanted=True, devices={"a": window()})
    gate = judged(no_kernel_fault(unread))
    assert gate.verdict is Verdict.UNKNOWN and gate.evidence == "not seen: a: no log came from the node"
    assert "once the node answers" in str(gate.remedy), "a node that is lost needs no other rights"


def signs_with(tmp_path: Path, at_s: float, stopped_s: float | None) -> Any:
    path = tmp_path / "logs/node3/devices.log"
    path.parent.mkdir(parents=True)
    path.write_text(f"# begin monotonic=1.0 wall=1.0 source=kernel\n<3>[{5000 + at_s:.6f}] {WEDGED}\n# end\n")
    data = path.read_bytes()
    digest = hashlib.sha256(data).hexdigest()
    kept = KeptLog(name=DEVICE_LOG, path="logs/node3/devices.log", size=len(data), kept=len(data), sha256=digest)
    clocks = {"node3": NodeClock(offset_s=BEGIN.timestamp() - 5000, uncertainty_s=0.1)}
    stopped = None if stopped_s is None else BEGIN.timestamp() + stopped_s
    lost: list[Failure] = [failure("collective_timeout")]
    evidence = Evidence(failures=lost, timing=Timing(clocks=clocks, stopped_at=stopped), logs={"node3": [kept]})
    job = JobRecord(logs={"node3": ["logs/node3/leader.log"]})
    return decide(signs_of(job, evidence, RunDirectory(tmp_path)))


def test_an_event_before_the_failure_accuses_its_node(tmp_path: Path) -> None:
    found = signs_with(tmp_path, -1.0, 5.0)
    assert (found.confidence, found.name, found.origin) == ("certain", "gpu_reset_event", ("node3",))
    assert found.evidence[0].place == "logs/node3/devices.log:2" and WEDGED in found.evidence[0].text


def test_an_event_after_the_controllers_stop_is_no_cause(tmp_path: Path) -> None:
    found = signs_with(tmp_path, 6.0, 5.0)
    assert found.origin == () and "node3" not in found.among
    assert all(sign.name != "gpu_reset_event" for sign in found.evidence)


def test_events_reach_the_controller_while_the_job_runs(tmp_path: Path) -> None:
    """The job itself writes what the sampler would: to the file of the run folder that the launcher reads."""
    jobs = Jobs(tmp_path)
    says = f"f = open('.launcher/devices.log', 'a'); f.write('<3>[%f] {WEDGED}\\n' % time.monotonic()); f.close()"
    result = jobs.run({"a": f"time.sleep(1); {says}; time.sleep(2)"}, telemetry_s=0.2)
    (event,) = (event for event in jobs.events if event.kind == "device")
    assert isinstance(event, Event) and (event.node, event.text) == ("a", f"a: {WEDGED}") and event.at is not None
    assert result.timing.started_at is not None and result.timing.finished_at is not None
    assert result.timing.started_at < event.at < result.timing.finished_at - 1
    assert result.timing.stopped_at is None
    assert "devices.log" in {Path(log.path).name for node in result.nodes for log in node.kept}


def test_watch_shows_an_event_of_each_node_at_its_own_time(tmp_path: Path) -> None:
    directory, notes, record = begun(tmp_path)
    at = datetime(2026, 9, 24, 10, 11, 12).timestamp()
    for node in ("a", "b"):
        notes.taking("together")(Event("device", f"{node}: {WEDGED}", node, at=at))
    ends(directory, notes, record)
    lines: list[str] = []
    picture, shown = Picture(), Lines(lines.append)
    reader = NotesReader(directory.path)
    for note in reader:
        shown.take(note, picture)
    reader.close()
    assert [line for line in lines if "device" in line] == [
        f"10:11:12 device event: {node}: {WEDGED}" for node in ("a", "b")
    ]


@pytest.mark.skipif(not shutil.which("umockdev-wrapper"), reason="make system installs umockdev")
def test_an_event_at_the_very_end_of_the_job_is_kept(tmp_path: Path) -> None:
    late = MOCKED.partition('event("change", "c1:00.0/drm/card1"')[0] + (
        'drain = lambda: None\nevent("unbind", "c1:00.0")\ntime.sleep(0.3)\nseen.close(time.monotonic())\n'
    )
    assert texts(watched(tmp_path, late, "umockdev-wrapper")) == [
        "<3>amdgpu 0000:c1:00.0: uevent unbind pci 0000:c1:00.0"
    ]


def test_an_interface_that_was_renamed_has_not_left(tmp_path: Path) -> None:
    script = """
from shakedown.node import udev
seen = watch()
for action, name in (("add", "eth0"), ("move", "ens1")):
    properties = {"DEVPATH_OLD": "/devices/0000:62:00.0/net/eth0"} if action == "move" else {}
    seen._event(action, "net", udev.Device(name, "/sys/devices/0000:62:00.0/net/" + name, properties))
assert "/sys/devices/0000:62:00.0/net/eth0" not in seen._known, "a list would show that it has gone"
seen.close(time.monotonic())
"""
    wanted = ["<6>0000:62:00.0: uevent add net eth0", "<6>0000:62:00.0: uevent move net ens1"]
    assert [text for text in texts(watched(tmp_path, script)) if "0000:62:00.0" in text] == wanted
