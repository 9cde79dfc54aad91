"""Storage: mounts that hang, and the health of drives by what nvme-cli and smartctl print (tests/data/drives)."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from shakedown import checks
from shakedown.agent.compile import compiled
from shakedown.checks import storage
from shakedown.desired.models import DesiredState
from shakedown.node import children, disks, sysctl
from shakedown.node.tree import Tree, Unreadable
from shakedown.report.causes import causes
from shakedown.state.findings import Finding, Verdict
from shakedown.state.node import NodeState
from tests.states import desired, healthy, unreadable, with_

DATA = Path(__file__).parents[1] / "data/drives"
ASKED = desired(system={"drive_health": True, "mounts_answer": True})


def sample(name: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((DATA / f"{name}.json").read_text())
    return document


def drive(name: str = "nvme0", kind: str = "nvme", **health: int) -> dict[str, Any]:
    return {"name": name, "kind": kind, "model": "PM9A3", "serial": "S64H1", "health": health}


def judged(*parts: dict[str, Any], wanted: DesiredState = ASKED) -> Finding:
    state = with_(healthy(), {"drives": list(parts)})
    return next(found for found in checks.evaluate(wanted, state, "node01") if found.name == "drive_health")


@pytest.mark.parametrize("name", ["nvme_cli_1", "nvme_cli_2", "nvme_cli_2_flags"])
def test_each_form_of_nvme_cli_is_read(name: str) -> None:
    found = disks.parse_nvme(sample(name))
    assert judged(drive(**found)).verdict == Verdict.OK
    assert found == {
        "critical_warning": 0,
        "available_spare": 100,
        "spare_threshold": 10,
        "percentage_used": sample(name)["percent_used"],
        "media_errors": 0,
    }
    assert disks.whole_number("1,024") == disks.whole_number("0x400") == 1024


@pytest.mark.parametrize(
    ("name", "verdict", "words"),
    [
        ("smartctl_nvme", "ok", ""),
        ("smartctl_nvme_media_errors", "fail", "7 unrecovered data integrity errors"),
        ("smartctl_scsi", "ok", ""),
        ("smartctl_ata_failing", "fail", "own assessment: failing; SMART status: disk failing; a prefail"),
    ],
)
def test_each_form_of_smartctl_is_judged(name: str, verdict: str, words: str) -> None:
    finding = judged(drive("sda", "disk", **disks.parse_smartctl(sample(name))))
    assert finding.verdict == verdict and words in finding.evidence
    assert "sda (PM9A3, S64H1): " in finding.evidence
    assert finding.verdict == "ok" or (finding.remedy and "serial number" in finding.remedy.text)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("smartctl_open_failed", "Open failed, Error=5"),
        ("smartctl_virtual", "Unable to detect device type"),
        ("smartctl_raid", "no overall health"),  # a volume of a RAID controller, exit status 4
        ("smartctl_no_status", "no overall health"),
    ],
)
def test_a_drive_that_says_nothing_is_unknown(name: str, why: str) -> None:
    with pytest.raises(Unreadable) as problem:
        disks.parse_smartctl(sample(name))
    finding = judged({**drive("sda", "disk"), "health": problem.value.as_part()}, drive("nvme0", media_errors=0))
    assert finding.verdict == Verdict.UNKNOWN and why in finding.evidence and finding.remedy


HEALTH = {"critical_warning": 0, "available_spare": 100, "spare_threshold": 10, "percentage_used": 0, "media_errors": 0}


@pytest.mark.parametrize(
    ("change", "verdict", "words"),
    [
        ({}, "ok", ""),
        ({"critical_warning": 1}, "fail", "spare blocks below"),
        ({"critical_warning": 2}, "warn", "temperature"),
        ({"critical_warning": 8}, "fail", "read-only"),
        ({"critical_warning": 0x14}, "fail", "reliability degraded by media or internal errors; backup"),
        ({"available_spare": 11}, "ok", ""),
        ({"available_spare": 10}, "fail", "spare 10 %, threshold 10 %"),
        ({"media_errors": 1}, "fail", "1 unrecovered"),
        ({"percentage_used": 89}, "ok", ""),
        ({"percentage_used": 131}, "warn", "131 % of its rated endurance"),
        ({"exit_status": 64}, "ok", ""),  # an NVMe drive logs commands that it does not know
        ({"critical_warning": 2, "media_errors": 3}, "fail", "3 unrecovered"),
    ],
)
def test_limits_of_an_nvme_drive(change: dict[str, int], verdict: str, words: str) -> None:
    finding = judged(drive(**{**HEALTH, **change}))
    assert (finding.verdict, words in str(finding.actual)) == (verdict, True)


@pytest.mark.parametrize(
    ("change", "verdict"),
    [
        ({}, "ok"),
        ({"exit_status": 4}, "ok"),
        ({"exit_status": 8}, "fail"),
        ({"exit_status": 16}, "fail"),
        ({"exit_status": 32}, "warn"),
        ({"exit_status": 64}, "warn"),
        ({"exit_status": 128}, "warn"),
        ({"attribute_5": 1}, "warn"),
        ({"attribute_187": 1}, "fail"),
        ({"attribute_197": 1}, "warn"),
        ({"attribute_198": 1}, "fail"),
        ({"attribute_199": 108}, "ok"),
        ({"grown_defects": 56}, "warn"),
        ({"uncorrected_errors": 1}, "fail"),
        ({"failing": 1}, "fail"),
    ],
)
def test_limits_of_another_disk(change: dict[str, int], verdict: str) -> None:
    assert judged(drive("sda", "disk", **{"exit_status": 0, "failing": 0, **change})).verdict == verdict


RULES = json.loads((Path(storage.__file__).parent / "drives.json").read_text())["rules"]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: f"{rule['reading']}-{rule.get('bit', '')}")
def test_each_rule_breaks_at_its_limit_and_not_before(rule: dict[str, Any]) -> None:
    reading, other = rule["reading"], {rule["at_most"]: 10} if "at_most" in rule else {}
    at = 10 if other else 1 << rule["bit"] if "bit" in rule else rule["least"]
    before, after = (at + 1, at - 1) if other else (0, at) if "bit" in rule else (at - 1, at + 1)

    def broken(**health: int) -> list[str]:
        return [text for _verdict, text, _remedy in storage._broken({**other, **health})]

    for value, breaks in ((before, False), (at, True), (after, True)):
        assert broken(**{reading: value}) == ([rule["text"].format(value=value, limit=10)] if breaks else [])
    assert broken() == [], "a reading that the drive does not have"
    assert not [*storage._broken({reading: at})] if other else True, "a limit that the drive does not have"
    assert broken(**{reading: at, rule["not_with"]: 0}) == [] if "not_with" in rule else True


def test_a_disk_without_health_of_its_own_is_never_ok_in_silence() -> None:
    virtual = {**drive("vda", "virtual"), "health": unreadable("missing", "a virtual disk has no health of its own")}
    alone, beside = judged(virtual), judged(virtual, drive(**HEALTH))
    assert alone.verdict == Verdict.WARN and "only virtual disks: vda" in str(alone.actual)
    assert beside.verdict == Verdict.OK and "vda (PM9A3, S64H1): virtual, not judged" in beside.evidence
    assert judged().verdict == Verdict.UNKNOWN, "no drive at all"
    absent = judged({**drive(), "health": unreadable("missing", "nvme and smartctl are not installed")})
    assert absent.verdict == Verdict.UNKNOWN and absent.remedy and "install nvme-cli" in absent.remedy.text
    closed = judged({**drive(), "health": unreadable("not permitted", "nvme: exit 1: Permission denied")})
    assert closed.verdict == Verdict.UNKNOWN and closed.remedy and "root" in closed.remedy.text


def test_drives_are_read_where_a_site_asks_for_them_alone() -> None:
    assert sysctl.question(ASKED.requested_readings)[-1] == sysctl.DRIVES
    assert sysctl.DRIVES not in desired().requested_readings
    document = compiled("node01", ASKED, healthy().account, "")
    assert sysctl.DRIVES in document["asked"], "the agent reads them too"
    not_read = next(f for f in checks.evaluate(ASKED, healthy(), "node01") if f.name == "drive_health")
    assert not_read.verdict == Verdict.UNKNOWN


# ------------------------------------------------------------------------------------------------ programs on a node


def tool(root: Path, name: str, script: str) -> None:
    path = root / "usr/sbin" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A node with an NVMe drive, a SATA disk, a virtio disk and a loop device."""
    device = tmp_path / "sys/devices/pci0000:e0/0000:e1:00.0/nvme/nvme0"
    device.mkdir(parents=True)
    for name, text in {"model": "PM9A3", "serial": "S64H1"}.items():
        (device / name).write_text(text)
    (tmp_path / "sys/class/nvme").mkdir(parents=True)
    (tmp_path / "sys/class/nvme/nvme0").symlink_to("../../devices/pci0000:e0/0000:e1:00.0/nvme/nvme0")
    (tmp_path / "sys/block/loop0").mkdir(parents=True)
    for name, bus in {"sda": "scsi", "vda": "virtio", "nvme0n1": "nvme"}.items():
        folder = tmp_path / "sys/block" / name / "device"
        folder.mkdir(parents=True)
        (tmp_path / "sys/bus" / bus).mkdir(parents=True, exist_ok=True)
        (folder / "subsystem").symlink_to(f"../../../bus/{bus}")
    for name, content in {"vendor": b"ATA", "model": b"MZ7L3480", "vpd_pg80": b"\0\x80\0\x05S5TEN"}.items():
        (tmp_path / "sys/block/sda/device" / name).write_bytes(content)
    return tmp_path


def test_each_drive_is_asked_by_the_program_that_is_there(root: Path) -> None:
    tool(root, "nvme", f'echo "$@" >> {root}/asked; cat {DATA}/nvme_cli_2.json')
    tool(root, "smartctl", f'echo "$@" >> {root}/asked; cat {DATA}/smartctl_ata_failing.json; exit 216')
    found = {part["name"]: part for part in disks.read_drives(Tree(str(root)))}
    assert {name: part["kind"] for name, part in found.items()} == {"nvme0": "nvme", "sda": "disk", "vda": "virtual"}
    assert found["sda"]["serial"] == "S5TEN" and found["nvme0"]["model"] == "PM9A3"
    assert found["nvme0"]["health"]["media_errors"] == 0 and found["sda"]["health"]["failing"] == 1
    assert sorted((root / "asked").read_text().splitlines()) == ["--json=c -x /dev/sda", "smart-log -o json /dev/nvme0"]
    NodeState.model_validate({**healthy().model_dump(), "drives": list(found.values())})


@pytest.mark.parametrize(
    ("script", "why", "words"),
    [
        (None, "missing", "nvme and smartctl are not installed"),
        ("echo /dev/nvme0: Permission denied >&2; exit 1", "not permitted", "exit 1: /dev/nvme0"),
        ('echo \'{"error": "Invalid argument"}\'; exit 1', "failed", "Invalid argument"),
        ("echo '{}'", "malformed", "critical_warning"),
        ("echo nothing; exit 0", "failed", "nothing"),
        ("sleep 60", "timed out", "health of /dev/nvme0"),
    ],
)
def test_a_program_that_fails_costs_its_drive_alone(
    root: Path, monkeypatch: pytest.MonkeyPatch, script: str | None, why: str, words: str
) -> None:
    monkeypatch.setattr(disks, "_HEALTH_SECONDS", 1.0)
    if script:
        tool(root, "nvme", script)
        tool(root, "smartctl", f"cat {DATA}/smartctl_scsi.json")
    nvme, disk, _ = disks.read_drives(Tree(str(root)))
    assert nvme["health"]["unreadable"] == why and words in nvme["health"]["detail"]
    assert (disk["health"].get("failing") == 0) is bool(script)


def test_a_program_that_outlives_its_time_keeps_its_drive_s_mark(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As one in state D does, which SIGKILL does not end: here it has left its group."""
    monkeypatch.setattr(disks, "_HEALTH_SECONDS", 1.5)
    tool(root, "nvme", f"setsid sleep 30 & echo $! > {root}/pid; echo started >> {root}/starts; sleep 30")
    tool(root, "smartctl", f"cat {DATA}/smartctl_scsi.json")
    try:
        first, second = (disks.read_drives(Tree(str(root)))[0]["health"] for _ in range(2))
        assert "no answer" in first["detail"] and "of an earlier check still hangs" in second["detail"]
        assert (root / "starts").read_text() == "started\n", "no second program beside it"
    finally:
        os.kill(int((root / "pid").read_text()), signal.SIGKILL)


# ---------------------------------------------------------------------------------------------------- mounts that hang


def test_a_stuck_mount_fails_and_is_the_cause_of_unknown_room() -> None:
    home = {"mount": "/home", "device": "nas:/home", "fstype": "nfs4", "network": True}
    late = unreadable("timed out", "statvfs /home: no answer in 2 s")
    closed = {
        **home,
        "mount": "/gvfs",
        "total_bytes": unreadable("not permitted"),
        "free_bytes": unreadable("not permitted"),
    }
    state = with_(
        healthy(),
        {"disks": [*healthy().model_dump()["disks"], {**home, "total_bytes": late, "free_bytes": late}, closed]},
    )
    wanted = desired(system={"disk_free": {"/home": "1G"}})
    found = {finding.name: finding for finding in checks.evaluate(wanted, state, "node01")}
    assert found["mounts"].verdict == Verdict.FAIL and found["mounts"].actual == {"/home": "no answer"}
    assert "nfs4 of nas:/home on /home" in found["mounts"].evidence
    cause = next(cause for cause in causes(found.values()) if "mounts" in cause.names)
    assert "disk_free./home" in cause.follows
    quiet = next(f for f in checks.evaluate(wanted, healthy(), "node01") if f.name == "mounts")
    assert quiet.verdict == Verdict.OK, "by default"


@contextmanager
def holder(what: str) -> Iterator[int]:
    """A process that hangs in a reading."""
    process = os.fork()
    if not process:
        try:
            children.alone(what, signal.pause)
        finally:
            os._exit(0)
    try:
        time.sleep(0.3)
        yield process
    finally:
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)


def test_no_second_child_is_started_beside_one_that_hangs() -> None:
    with holder("statvfs /stuck") as process:
        with pytest.raises(Unreadable, match=f"process {process} of an earlier check still hangs") as problem:
            children.alone("statvfs /stuck", pytest.fail, patience=0.2)
        assert problem.value.reason == "timed out"
        assert children.alone("statvfs /other", lambda: 5) == 5
    assert children.alone("statvfs /stuck", lambda: 6) == 6, "the kernel frees the mark with its holder"


def test_a_probe_that_runs_beside_waits_for_its_turn() -> None:
    with holder("brief") as process:
        killer = subprocess.Popen([sys.executable, "-c", f"import os, time; time.sleep(0.4); os.kill({process}, 9)"])
        began = time.monotonic()
        assert children.alone("brief", lambda: 7, patience=20) == 7
        assert time.monotonic() - began < 15 and killer.wait() == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="needs another user")
def test_the_mark_of_another_user_decides_nothing(tmp_path: Path) -> None:
    name = b"\0shakedown-0-" + hashlib.sha256(b"/data").hexdigest()[:16].encode() + b"-0"
    script = f"import os, socket, time; os.setuid(65534); s = socket.socket(1); s.bind({name!r}); s.listen(99)"
    squatter = subprocess.Popen([sys.executable, "-c", f"{script}; print(1, flush=True); time.sleep(60)"], stdout=-1)
    try:
        assert squatter.stdout and squatter.stdout.readline()
        with pytest.raises(OSError, match="in use"), socket.socket(socket.AF_UNIX) as mark:
            mark.bind(name)
        assert children.alone("/data", lambda: 8) == 8
    finally:
        squatter.kill()
        squatter.wait()


STUCK = """
mkdir source mount; bindfs -f source mount & server=$!
for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do mountpoint -q mount && break; sleep 0.2; done
mountpoint -q mount
kill -STOP $server; trap 'kill -KILL $server; umount -l mount || true' EXIT
cd {project}
for i in 1 2; do
{python} -c 'import json; from shakedown.node import disks, tree
print(json.dumps([p for p in disks.read(tree.Tree()) if p["mount"] in ("/", "{folder}/mount")]))'
done
"""


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("bindfs"), reason="only root can mount, with bindfs")
def test_a_file_server_that_stops_does_not_stop_the_probe(tmp_path: Path) -> None:
    """A real FUSE mount, whose server stands still."""
    script = STUCK.format(folder=tmp_path, project=Path(__file__).parents[2], python=sys.executable)
    began = time.monotonic()
    words = ["unshare", "--mount", "--propagation", "private", "sh", "-ec", script]
    done = subprocess.run(words, capture_output=True, text=True, timeout=100, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr
    assert time.monotonic() - began < 60
    for line in done.stdout.splitlines()[:2]:
        whole, stuck = json.loads(line)
        assert whole["free_bytes"] > 0
        assert stuck["free_bytes"]["unreadable"] == "timed out"
