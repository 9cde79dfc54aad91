"""The namespace lab is what it says: separate nodes, reachable over ssh, that can be broken and are gone afterwards."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.lab import slots
from tests.lab.conftest import RackMaker
from tests.lab.machine import LabError, run
from tests.lab.namespaces import Node, Rack
from tests.lab.node_spec import NodeSpec
from tests.lab.product import until
from tests.lab.rootfs import Device

NUMA = "/proc/sys/kernel/numa_balancing"
CHECKOUT = Path(__file__).parents[2]


def over_ssh(lab: Rack, node: Node, command: str, user: str = "root") -> str:
    return run(lab.ssh(node, command, user=user), timeout=30).stdout.strip()


def banner(node: Node, wait: float = 2) -> bytes:
    with socket.create_connection((str(node.address), 22), wait) as connection:
        connection.settimeout(wait)
        return connection.recv(4)


def test_nodes_have_their_own_identity(rack: RackMaker) -> None:
    lab = rack(3)
    for what in ("hostname", "cat /etc/machine-id", "cat /proc/sys/kernel/random/boot_id", "ls /sys/class/net"):
        here = run(["sh", "-c", f"{what} 2>&1 || true"]).stdout.strip()  # a bare root has no machine-id
        answers = {over_ssh(lab, node, what) for node in lab} | {here}
        assert len(answers) == 4, f"{what}: {answers}"
    assert [over_ssh(lab, node, "hostname") for node in lab] == ["node1", "node2", "node3"]
    for node in lab:
        shown = json.loads(over_ssh(lab, node, f"ip -j addr show dev {node.interface}"))
        assert str(node.address) in [a["local"] for a in shown[0]["addr_info"]]


def test_what_one_node_writes_stays_there(rack: RackMaker) -> None:
    lab = rack(2)
    here = Path(NUMA).read_text()
    over_ssh(lab, lab["node1"], f"echo 0 > {NUMA}; echo drifted > /etc/sdlab-probe; echo x > /tmp/sdlab-probe")
    assert lab["node1"].read("/etc/sdlab-probe") == "drifted\n"
    assert (lab["node1"].read(NUMA), lab["node2"].read(NUMA)) == ("0\n", "1\n")
    assert Path(NUMA).read_text() == here
    for elsewhere in (Path("/"), lab["node2"].root):
        assert not (elsewhere / "etc/sdlab-probe").exists() and not (elsewhere / "tmp/sdlab-probe").exists()
    swappiness = Path("/proc/sys/vm/swappiness").read_text()
    assert lab["node1"].exec("echo 7 > /proc/sys/vm/swappiness", check=False).returncode
    assert Path("/proc/sys/vm/swappiness").read_text() == swappiness


def test_pyinfra_reaches_every_node_and_its_commands_are_counted(rack: RackMaker, tmp_path: Path) -> None:
    lab = rack(3)
    inventory = lab.inventory(tmp_path / "lab.py", {"tuned": True}, hosts={"node2": {"role": "odd"}})
    pyinfra = [sys.executable, "-m", "pyinfra", "-y", str(inventory)]
    done = run([*pyinfra, "exec", "--", "cat", "/etc/hostname"], timeout=60)
    for name in ("node1", "node2", "node3"):
        assert f"[{name}] {name}" in done.stdout + done.stderr
    before = [node.exec_channels() for node in lab]
    for _ in range(2):
        over_ssh(lab, lab["node2"], "true")
    assert [node.exec_channels() - n for node, n in zip(lab, before, strict=True)] == [0, 2, 0]
    shown = run([*pyinfra, "debug-inventory"], timeout=60)
    assert "odd" in shown.stdout + shown.stderr and "tuned" in shown.stdout + shown.stderr


def test_frozen_cut_and_healed(rack: RackMaker) -> None:
    lab = rack(2)
    node, other = lab
    node.freeze()
    with pytest.raises(TimeoutError):
        banner(node, 0.5)
    assert banner(other) == b"SSH-"
    node.thaw()
    assert banner(node) == b"SSH-"
    node.cut()
    assert node.read(f"/sys/class/net/{node.interface}/carrier") == "0\n"
    with pytest.raises(OSError):
        banner(node, 0.5)
    node.heal()
    assert over_ssh(lab, node, "hostname") == "node1"


def test_a_power_cycle_keeps_the_disk_and_forgets_the_kernel(rack: RackMaker) -> None:
    lab = rack(1)
    (node,) = lab
    boot = node.read("/proc/sys/kernel/random/boot_id")
    node.exec(f"echo 0 > {NUMA}; echo kept > /etc/kept; touch /run/lost /tmp/lost")
    node.down()
    with pytest.raises(OSError):
        banner(node, 0.5)
    with pytest.raises(LabError):
        node.exec("true")
    node.up()
    assert node.read("/etc/kept") == "kept\n"
    assert node.read(NUMA) == "1\n" and node.read("/proc/sys/kernel/random/boot_id") != boot
    assert node.exec("ls /run/lost /tmp/lost", check=False).returncode
    node.exec("echo kernel.numa_balancing=0 > /etc/sysctl.d/90-lab.conf")
    node.down()
    node.up()
    assert node.read(NUMA) == "0\n"


def test_leftover_processes_are_seen(rack: RackMaker) -> None:
    lab = rack(1)
    (node,) = lab
    assert node.processes() == []
    over_ssh(lab, node, "setsid sleep 300 >/dev/null 2>&1 </dev/null &")
    until(lambda: [process.args for process in node.processes()] == [("sleep", "300")], 10)  # setsid is not sleep yet
    (left,) = node.processes()
    os.kill(left.pid, signal.SIGKILL)
    deadline = time.monotonic() + 5
    while node.processes() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert node.processes() == []


def test_devices_and_sys_files_are_the_nodes_own(rack: RackMaker, tmp_path: Path) -> None:
    port = tmp_path / "sys/devices/pci0000:00/0000:01:00.0/infiniband/bnxt_re0/ports/1"
    port.mkdir(parents=True)
    (port / "state").write_text("4: ACTIVE\n")
    (tmp_path / "sys/class/infiniband").mkdir(parents=True)
    link = tmp_path / "sys/class/infiniband/bnxt_re0"
    link.symlink_to("../../devices/pci0000:00/0000:01:00.0/infiniband/bnxt_re0")
    spec = NodeSpec(
        sys_tree=tmp_path / "sys",
        sys={"kernel/mm/transparent_hugepage/enabled": "always madvise [never]\n"},
        proc={"cmdline": "quiet iommu=pt\n"},
        dev={"kfd": Device(group="video", mode=0o660)},
    )
    lab = rack([spec, NodeSpec()])
    node, other = lab
    state = "/sys/class/infiniband/bnxt_re0/ports/1/state"
    assert over_ssh(lab, node, f"cat {state} /proc/cmdline") == "4: ACTIVE\nquiet iommu=pt"
    assert node.read("/sys/kernel/mm/transparent_hugepage/enabled") == "always madvise [never]\n"
    assert sorted(node.exec("ls /sys/class/net").stdout.split()) == sorted(["lo", node.interface])
    assert over_ssh(lab, node, "stat -c '%F %a %G' /dev/kfd") == "character special file 660 video"
    assert over_ssh(lab, node, "head -c1 /dev/kfd | wc -c") == "0"
    assert not (other.root / "sys/class/infiniband/bnxt_re0").exists() and not (other.root / "dev/kfd").exists()
    node.exec("echo '1: DOWN' > /sys/class/infiniband/bnxt_re0/ports/1/state")
    assert over_ssh(lab, node, f"cat {state}") == "1: DOWN"
    node.down()
    node.up()
    assert over_ssh(lab, node, f"cat {state}") == "4: ACTIVE"


def test_an_ordinary_user_with_and_without_sudo(rack: RackMaker) -> None:
    lab = rack([NodeSpec(user="ops", sudo=True), NodeSpec(user="ops")])
    with_sudo, without = lab
    assert over_ssh(lab, with_sudo, "id -un; sudo -n id -un", user="ops") == "ops\nroot"
    assert over_ssh(lab, without, "id -un; sudo -n id -un 2>/dev/null || echo refused", user="ops") == "ops\nrefused"
    assert over_ssh(lab, without, f"{sys.executable} -c 'import torch' 2>&1; echo $?", user="ops").endswith("0")


def test_nodes_reach_each_other_and_see_nothing_private_of_the_machine(rack: RackMaker) -> None:
    lab = rack(2)
    first, second = lab
    assert (
        over_ssh(lab, first, f"ssh-keyscan -T 5 -t ed25519 {second.address} 2>/dev/null") in lab.known_hosts.read_text()
    )
    assert first.exec("ls -A /root/.ssh").stdout.split() == ["authorized_keys"]
    assert os.getxattr(first.upper / "root/.ssh", "trusted.overlay.opaque") == b"y", "also where the machine has keys"
    ours = ["ssh_host_ed25519_key", "ssh_host_ed25519_key.pub", "sshd_config"]
    assert first.exec("ls -A /etc/ssh").stdout.split() == ours
    assert first.exec("find /home -mindepth 2; cut -d: -f2 /etc/shadow | sort -u").stdout.split() == ["*"]
    assert stat.S_IMODE((first.root / "root/.ssh/authorized_keys").stat().st_mode) == 0o600


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGKILL])
def test_a_rack_goes_with_the_process_that_made_it(end: signal.Signals) -> None:
    """On Ctrl-C in order; after a SIGKILL its nodes die with it, and the next rack clears the rest away."""
    script = "import time\nfrom tests.lab.namespaces import rack\nwith rack(2) as lab:\n"
    script += " print(lab.slot.number, *[n.init_pid for n in lab], flush=True)\n time.sleep(60)\n"
    with subprocess.Popen([sys.executable, "-c", script], cwd=CHECKOUT, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        number, *pids = map(int, owner.stdout.readline().split())
        bridge, key = Path(f"/sys/class/net/sdlab{number}/ifindex"), slots.RUN_DIR / f"{number}/id_ed25519"
        was = bridge.read_text(), key.read_text()
        owner.send_signal(end)
    slots.clear_wrecks()
    deadline = time.monotonic() + 5
    while any(Path(f"/proc/{pid}").exists() for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]
    # Another test's rack may have the place by now.
    assert all(not path.exists() or path.read_text() != text for path, text in zip((bridge, key), was, strict=True))


@pytest.mark.long
def test_sixty_four_nodes_in_seconds(rack: RackMaker) -> None:
    started = time.monotonic()
    lab = rack(64)
    assert time.monotonic() - started < 200
    assert len({node.address for node in lab}) == len({node.interface for node in lab}) == 64
    assert over_ssh(lab, lab["node64"], "hostname") == "node64"
