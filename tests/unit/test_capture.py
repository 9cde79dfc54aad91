"""A capture: the probe reads the same from it as from the node, no name of the site is in it, and a hostile one does
nothing."""

from __future__ import annotations

import gzip
import json
import os
import re
import shlex
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from shakedown.checks.examination import Examination, Reading
from shakedown.node import sysctl
from shakedown.node.book import NOWHERE, lines_of_use
from shakedown.runs import capture
from shakedown.state.node import NodeState
from tests import forks
from tests.node_trees import make_tree
from tests.states import desired

HOST = "gpu-a17.rack7.corp.example"
RACKS = {"mi300x": "thor2", "mi325x": "cx7", "mi355x": "ainic"}


def probe(*options: str, answers: Any = None) -> Any:
    run = subprocess.run(
        [sys.executable, "-m", "shakedown.node", *options],
        input=json.dumps(answers),
        capture_output=True,
        text=True,
        timeout=60,
        env={"PATH": "/usr/bin:/bin"},
    )
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


def record(tree: Path, *options: str) -> Any:
    return probe("--root", str(tree), "--ask", "record", *options)


def examined(state: Any, gpu: str = "mi300x") -> Examination:
    examination = Examination({HOST: desired(gpu, RACKS[gpu])})
    examination.keep(HOST, Reading(NodeState.model_validate(state)))
    examination.judge()
    return examination


def written(folder: Path, recorded: Any, gpu: str = "mi300x") -> tuple[Examination, Path, dict[str, str]]:
    examination = examined(recorded["state"], gpu)
    path, names = capture.write(examination, HOST, recorded["answers"], folder / "capture.json.gz")
    return examination, path, json.loads(names.read_text())


def verdicts(examination: Examination) -> list[tuple[str, str]]:
    return [(finding.name, finding.verdict.value) for finding in examination.all_findings()]


@pytest.mark.parametrize("gpu", RACKS)
def test_the_probe_reads_the_same_from_its_answers_as_from_the_node(tmp_path: Path, gpu: str) -> None:
    recorded = record(make_tree(tmp_path / "tree", gpu, RACKS[gpu], gid_entries=16))
    again = probe("--root", NOWHERE, "--replay", "yes", answers=recorded["answers"])
    for state in (again, recorded["state"]):
        state["probe"] = {**state["probe"], "wall_s": 0, "cpu_s": 0}
    assert again == recorded["state"]
    examination, path, _ = written(tmp_path, recorded, gpu)
    replayed = capture.replay(capture.load(path))
    assert verdicts(replayed) == verdicts(examination)
    assert {finding.node for finding in replayed.all_findings()} == {"host-001"}


# A driver, a device, a table and a setting; each fault is read and judged in test_probe_tree.
@pytest.mark.parametrize("fault", ["driver_missing", "gpu_missing", "no_rocev2", "numa_balancing"])
def test_a_fault_is_in_the_capture(tmp_path: Path, fault: str) -> None:
    recorded = record(make_tree(tmp_path / "tree", faults=[fault], gid_entries=4))
    examination, path, _ = written(tmp_path, recorded)
    assert not examination.verdict().passes and path.is_file(), "which it is where it replays"


def test_a_reading_that_hangs_on_the_node_does_not_hang_again(tmp_path: Path) -> None:
    state = make_tree(tmp_path / "tree", count=2, gid_entries=4) / "sys/class/infiniband/bnxt_re1/ports/1/state"
    state.unlink()
    os.mkfifo(state)
    examination, path, _ = written(tmp_path, record(tmp_path / "tree", "--seconds", "0.5"))
    assert verdicts(capture.replay(capture.load(path))) == verdicts(examination)
    (evidence,) = {f.evidence for f in capture.replay(capture.load(path)).all_findings() if f.name == "rdma_count"}
    assert "timed out" in evidence


PLANTED = {
    "etc/passwd": "root:x:0:0:root:/root:/bin/sh\ngrace:x:1001:1001:Grace Hopper,Room 7:/home/grace:/bin/sh",
    "etc/group": "root:x:0:\nadm:x:4:root,turing\nrender:x:993:root,lovelace\nprojectx:x:2001:lovelace",
    "etc/machine-id": "0123456789abcdef0123456789abcdef",
    "etc/ssh/ssh_host_ed25519_key.pub": "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHsecretive root@golden.builder",
    "proc/sys/kernel/hostname": "gpu-a17",
    "proc/cmdline": "ro root=UUID=6c9c2b1e-0000-4bbb-8ccc-123456789abc console=ttyS0 api_token=sesame-4711",
    "etc/NetworkManager/system-connections/office": "[wifi]\nssid=corpnet\n[wifi-security]\npsk=tr0ub4dor\n",
    "etc/systemd/network/10-a.network": "[Match]\nName=ens0np0\n[Network]\nDomains=hq-lan.example\n",
    "etc/modprobe.d/site.conf": "options corp licence=ABCD-1234\nblacklist nouveau",
    "etc/sysctl.d/99-site.conf": "# mail ops@corp.example, 10.20.30.40\nvm.swappiness = 10",
    "dev/kmsg": "3,1,1000,-;mlx5_core: enx001122aabbcc 00:11:22:aa:bb:cc of gpu-a17.rack7.corp.example failed",
}
SECRET = ("grace", "Hopper", "Room 7", "lovelace", "turing", "projectx", "0123456789abcdef0123456789abcdef",
          "secretive", "gpu-a17", "rack7", "corp.example", "6c9c2b1e", "sesame-4711", "tr0ub4dor", "10.20.30.40",
          "001122aabbcc", "00:11:22:aa:bb:cc", "golden", "hq-lan", "ABCD-1234", "TR8-0044", "TR8N0044", "10.1.0.0",
          "b83f:d203")  # fmt: skip


@pytest.mark.parametrize("name", ["127.0.0.1", "::1", "10.1.0.1"])
def test_a_node_that_the_inventory_calls_by_its_address_is_captured(tmp_path: Path, name: str) -> None:
    """Behind a tunnel all nodes are 127.0.0.1, which stays: an interface of each has it."""
    recorded = record(make_tree(tmp_path / "tree", count=1, gid_entries=4))
    examination = Examination({name: desired("mi300x", RACKS["mi300x"])})
    examination.keep(name, Reading(NodeState.model_validate(recorded["state"])))
    examination.judge()
    path, _ = capture.write(examination, name, recorded["answers"], tmp_path / "capture.json.gz")
    again = capture.load(path)
    assert verdicts(capture.replay(again)) == verdicts(examination)
    assert (again.node == name) == (name != "10.1.0.1")


def test_a_host_name_of_two_letters_is_a_name_too(tmp_path: Path) -> None:
    tree = make_tree(tmp_path / "tree", count=1, gid_entries=4)
    (tree / "proc/sys/kernel/hostname").write_text("vm\n")
    _, path, names = written(tmp_path, record(tree))
    answers = json.loads(gzip.decompress(path.read_bytes()))["answers"]
    assert answers["file /proc/sys/kernel/hostname"] == {"is": f"{names['vm']}\n"}


@pytest.mark.parametrize("name", ["vm", "ssh", "docker", "root", "node", "amdgpu", "linux", "ACTIVE", "off", "up"])
def test_a_node_that_is_called_like_a_word_of_the_dump_is_captured(tmp_path: Path, name: str) -> None:
    """Keys of the kernel, engines, modules, folders, states and values are no names; where a field holds a host, it is
    one."""
    tree = make_tree(tmp_path / "tree", count=1, gid_entries=4, faults=["numa_balancing"])
    (tree / "proc/sys/kernel/hostname").write_text(f"{name}\n")
    (tree / "dev/kmsg").write_text(f"6,1,1000,-;sshd: session of root@{name} began\n")
    waiver = {"finding": "numa_balancing", "hosts": [name], "reason": "a trial", "owner": "ops", "until": "2999-01-01"}
    changes = {"tuning": {"sysctl": {"vm.swappiness": 10, "net.core.rmem_max": 4096}}, "waivers": {"trial": waiver}}
    wanted = desired(**changes, rdma={"cabling": {name: {"bnxt_re0": ["leaf1", "port1"]}}})
    asked = " ".join(sysctl.question(wanted.requested_readings))
    recorded = probe("--root", str(tree), "--ask", f"record {asked}")
    examination = Examination({name: wanted})
    examination.keep(name, Reading(NodeState.model_validate(recorded["state"])))
    examination.judge()
    assert [finding.waiver for finding in examination.all_findings() if finding.name == "numa_balancing"] == ["trial"]
    path, names = capture.write(examination, name, recorded["answers"], tmp_path / "capture.json.gz")
    document = json.loads(gzip.decompress(path.read_bytes()))
    own = json.loads(names.read_text())[name]
    assert document["answers"]["file /proc/sys/kernel/hostname"]["is"] == f"{own}\n"
    assert (document["node"], [*document["desired"]["rdma"]["cabling"]]) == (own, [own])
    assert document["desired"]["waivers"]["trial"]["hosts"] == [own]
    assert f"@{name}" not in json.dumps(document)
    assert verdicts(capture.replay(capture.load(path))) == verdicts(examination)


def test_names_that_are_two_words_of_the_dump_are_both_left_there(tmp_path: Path) -> None:
    tree = make_tree(tmp_path / "tree", count=1, gid_entries=4)
    (tree / "proc/sys/kernel/hostname").write_text("docker\n")
    (tree / "etc/passwd").write_text("bnxt_re:x:1001:1001::/home/bnxt_re:/bin/sh\n")
    _, path, _ = written(tmp_path, record(tree))
    answers = json.loads(gzip.decompress(path.read_bytes()))["answers"]
    assert answers["file /proc/sys/kernel/hostname"]["is"].startswith("host-")
    assert "home/bnxt_re" not in json.dumps(answers)


def test_nothing_of_the_site_is_in_a_capture_and_equal_values_stay_equal(tmp_path: Path) -> None:
    tree = make_tree(tmp_path / "tree", gid_entries=16)
    for name, content in PLANTED.items():
        path = tree / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        path.write_text(content + "\n")
    examination, path, _ = written(tmp_path, record(tree))
    text = gzip.decompress(path.read_bytes()).decode()
    assert [word for word in SECRET if word.lower() in text.lower()] == []
    assert path.stat().st_mode & 0o777 == 0o600
    again = capture.replay(capture.load(path))
    state, before = again.state_of("host-001"), examination.state_of(HOST)
    assert state and before and isinstance(state.rdma, list) and isinstance(before.rdma, list)
    assert isinstance(state.interfaces, list)
    addresses = {address.partition("/")[0] for part in state.interfaces for address in part.ipv4}
    mapped = {gid.ipv4 for part in state.rdma if isinstance(part.gids, list) for gid in part.gids if gid.ipv4}
    assert mapped and mapped <= addresses, "a GID is still that of its interface"
    assert len({part.guid for part in state.rdma}) == len({part.guid for part in before.rdma})


@pytest.mark.parametrize(
    ("path", "text", "kept"),
    [
        ("/boot/grub/grub.cfg", "password_pbkdf2 root grub.x\n linux /vmlinuz a=b", " linux /vmlinuz a=b\n"),
        ("/etc/sysctl.d/1.conf", "# mail ada@site\n\n;\nvm.swappiness = 1", "vm.swappiness = 1\n"),
        ("/etc/network/interfaces", "iface eth0\n  wpa-psk x\n  mtu 9000", "iface eth0\n  mtu 9000\n"),
        ("/etc/sysconfig/network-scripts/ifcfg-eth0", "DEVICE=eth0\nKEY=x\nMTU=9000", "DEVICE=eth0\nMTU=9000\n"),
        ("/etc/NetworkManager/a", "[wireguard-peer.K3y=]\nmtu=9\npsk=x", "[wireguard-peer]\nmtu=9\n"),
        ("/etc/NetworkManager/a", "[connection]\ninterface-name=e0\nid=x", "[connection]\ninterface-name=e0\n"),
        ("/etc/systemd/network/a", "[Match]\nName=e0\nDomains=x\nMTUBytes=9", "[Match]\nName=e0\nMTUBytes=9\n"),
        ("/etc/modprobe.d/a", "options a k=x\nblacklist a\ninstall b /bin/true", "blacklist a\ninstall b /bin/true\n"),
        ("/etc/ssh/ssh_host_rsa_key.pub", "ssh-rsa AAAA root@golden.site.example", "ssh-rsa AAAA\n"),
        ("/etc/passwd", "ada:hash:1001:1001:Ada L:/home/ada:/bin/sh", "ada::1001:1001::/home/ada:/bin/sh\n"),
        ("/proc/cmdline", "a\nb", "a\nb"),
    ],
)  # fmt: skip
def test_of_files_with_passwords_the_node_sends_the_lines_that_are_read(path: str, text: str, kept: str) -> None:
    assert lines_of_use(path, text) == kept


def packed(path: Path, document: Any) -> Path:
    path.write_bytes(gzip.compress(document if isinstance(document, bytes) else json.dumps(document).encode()))
    return path


@pytest.fixture(scope="module")
def captured(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    folder = tmp_path_factory.mktemp("captured")
    _, path, _ = written(folder, record(make_tree(folder / "tree", count=1, gid_entries=4)))
    return gzip.decompress(path.read_bytes())


@pytest.fixture
def document(captured: bytes) -> Any:
    return json.loads(captured)


@pytest.mark.parametrize(
    "kind", ["file /sys", "file /proc", "folder", "udev", "device", "kernel log", "exists", "disks"]
)
def test_an_answer_that_is_missing_makes_nothing_right(tmp_path: Path, document: Any, kind: str) -> None:
    whole = capture.replay(capture.load(packed(tmp_path / "all.json.gz", document)))
    document["answers"] = {
        subject: answer for subject, answer in document["answers"].items() if not subject.startswith(kind)
    }
    try:
        less = capture.replay(capture.load(packed(tmp_path / "less.json.gz", document)))
    except ValueError as error:
        assert "the capture has no answer" in str(error)
        return
    right = [{f.name for f in each.all_findings() if f.verdict.passes} for each in (whole, less)]
    assert right[1] < right[0]


def test_a_hostile_answer_costs_a_bounded_time_and_runs_nothing(tmp_path: Path, document: Any) -> None:
    began = time.monotonic()
    document["answers"]["file /sys/devices/system/cpu/online"] = {"is": "0-99999999999"}
    document["answers"]["program grubby"] = {"is": str(tmp_path / "evil")}
    (tmp_path / "evil").write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    (tmp_path / "evil").chmod(0o755)
    document["answers"]["rocm libamd_smi.so*"] = {"is": str(tmp_path / "evil")}
    del document["answers"]["clock"]
    try:
        capture.replay(capture.load(packed(tmp_path / "hostile.json.gz", document)))
    except ValueError as error:
        assert "the probe" in str(error)
    assert time.monotonic() - began < 60
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    "content",
    [b"", b"no JSON", b"\0" * (64 << 20), b"[" * 100_000, b'{"answers": {}}', b"\xff\xfe", b'{"capture": NaN}'],
    ids=["empty", "text", "bomb", "deep", "other", "bytes", "nan"],
)
def test_what_is_no_capture_is_refused(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(ValueError, match="no capture"):
        capture.load(packed(tmp_path / "x.json.gz", content))
    (tmp_path / "cut.json.gz").write_bytes(gzip.compress(os.urandom(4096))[:100])
    with pytest.raises(ValueError, match="no capture"):
        capture.load(tmp_path / "cut.json.gz")
    (tmp_path / "plain.json.gz").write_bytes(content or b"plain")
    with pytest.raises(ValueError, match="no capture"):
        capture.load(tmp_path / "plain.json.gz")


@pytest.mark.parametrize("plan", ["/dev/zero", "~nosuchuser/x", "/etc/passwd"])
def test_a_capture_names_no_file_of_this_machine(tmp_path: Path, document: Any, plan: str) -> None:
    document["desired"]["rdma"]["cabling"] = plan
    with pytest.raises(ValueError, match="its cabling plan is the name of a file"):
        capture.load(packed(tmp_path / "x.json.gz", document))
    with pytest.raises(ValueError, match="more than 500000 parts"):
        capture.load(packed(tmp_path / "y.json.gz", b"[" + b'{"":[]},' * 400_000 + b"0]"))


def test_a_capture_that_would_not_replay_is_not_written(tmp_path: Path) -> None:
    recorded = record(make_tree(tmp_path / "tree", count=1, gid_entries=4))
    del recorded["answers"]["file /sys/kernel/mm/transparent_hugepage/enabled"]
    with pytest.raises(
        ValueError, match=r"other findings would come of it: thp.*; send a run .* shakedown bundle latest"
    ):
        written(tmp_path, recorded)
    assert [path.name for path in tmp_path.iterdir()] == ["tree"]


def test_this_machine_is_captured_and_its_findings_are_shown_again(tmp_path: Path) -> None:
    call = partial(forks.called, "shakedown", cwd=tmp_path)
    target = ["@local", "--data", "gpu=mi300x", "--data", "nic=thor2"]
    done = call("capture", target[0], "@local", *target[1:], "--output", "mine.json.gz")
    assert done.returncode == 0, done.stderr
    assert "keep it" in done.stdout
    live, again = call("drift", *target, "--format", "json"), call("drift", "mine.json.gz", "--format", "json")
    names = [[(f["name"], f["verdict"]) for f in json.loads(run.stdout)["findings"]] for run in (live, again)]
    assert names[0] == names[1]
    assert again.returncode == live.returncode
    shown = call("drift", "mine.json.gz")
    shown_commands = re.findall(r"(shakedown drift \S+ -v)", shown.stdout)
    assert len(shown_commands) == 1 and "shakedown show" not in shown.stdout, shown.stdout
    assert "INVENTORY" not in shown.stdout.replace("shakedown run INVENTORY, where the node stands", "")
    assert call(*shlex.split(shown_commands[0])[1:]).returncode == live.returncode
    absent = call("drift", "absent.json.gz")
    assert absent.returncode == 2 and "absent.json.gz: there is no such capture: record one with" in absent.stderr
    (tmp_path / "folder.json.gz").mkdir()
    assert "folder.json.gz: Is a directory" in call("drift", "folder.json.gz").stderr
    second = call("capture", target[0], "@local", *target[1:], "--output", "mine.json.gz")
    assert second.returncode == 2 and "nothing was written" in second.stderr and "verdict" not in second.stderr
