"""Container nodes boot systemd: units, limits, a docker engine and reboots of user space are real in them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab import images, namespaces, registry
from tests.lab.container_nodes import Box, ContainerLab, containers
from tests.lab.machine import LabError, run
from tests.lab.node_spec import NodeSpec
from tests.lab.product import until


@pytest.fixture(scope="module")
def lab() -> Iterator[ContainerLab]:
    """box1 as Debian leaves it, box2 with an engine and an ordinary user."""
    with containers([NodeSpec(), NodeSpec(docker=True, user="ops", sudo=True, interface="ens3")]) as boxes:
        yield boxes


def over_ssh(lab: ContainerLab, box: Box, command: str) -> str:
    return run(lab.ssh(box, command), timeout=60).stdout.strip()


def test_systemd_is_pid_1_and_ssh_is_its_unit(lab: ContainerLab) -> None:
    for box in lab:
        assert (
            over_ssh(lab, box, "hostname; cat /proc/1/comm; systemctl is-active ssh") == f"{box.name}\nsystemd\nactive"
        )
    assert len({over_ssh(lab, box, "cat /etc/machine-id") for box in lab}) == 2
    assert len({box.address for box in lab}) == 2


def test_a_unit_runs_again_after_a_restart(lab: ContainerLab) -> None:
    box = lab["box1"]
    unit = '[Service]\\nType=oneshot\\nExecStart=/bin/sh -c "echo ran >> /var/lib/ran"\\n'
    install = "[Install]\\nWantedBy=multi-user.target"
    over_ssh(lab, box, f"printf '{unit}{install}' > /etc/systemd/system/lab.service; systemctl enable --now lab")
    box.down()
    box.up()
    over_ssh(lab, box, "systemctl is-system-running --wait")
    assert box.read("/var/lib/ran") == "ran\nran\n"


def test_limits_files_hold_at_the_next_login(lab: ContainerLab) -> None:
    box = lab["box2"]
    assert over_ssh(lab, box, "ulimit -n") != "777"
    over_ssh(lab, box, "echo 'root hard nofile 777' > /etc/security/limits.d/90-lab.conf")
    assert over_ssh(lab, box, "ulimit -Hn") == "777"


def test_a_node_reboots_itself_and_keeps_its_files_address_and_engine(lab: ContainerLab) -> None:
    box = lab["box2"]
    boot, values = box.boot_id, "/proc/sys/kernel/numa_balancing"
    machine = Path(values).read_text()
    with registry.serve(lab) as store:
        image = store.publish(images.tiny())
        over_ssh(lab, box, f"docker run --detach --restart always --stop-signal KILL --name stays {image} sleep 600")
    box.exec(f"echo 0 > {values}; echo 10.0.0.1 rack-head >> /etc/hosts; systemctl --no-block reboot")
    until(lambda: box.boot_id not in ("", boot), 60)
    box.wait()
    assert over_ssh(lab, box, "systemctl is-active docker; hostname; docker ps --format '{{.Names}}'").split() == [
        *("active", "box2", "stays"),
    ]
    assert box.read(values) == "1\n" and Path(values).read_text() == machine, "of the node alone, and new at each boot"
    assert "rack-head" in box.read("/etc/hosts")
    assert ("sleep", "600") in [process.args for process in box.processes()]
    over_ssh(lab, box, "docker rm --force stays")
    assert box.processes() == []


def test_the_engine_in_a_node_takes_the_options_of_training(lab: ContainerLab) -> None:
    box = lab["box2"]
    flags = "--rm --privileged --ulimit memlock=-1 --network host --ipc host --shm-size 64m --cpus 0.5"
    with registry.serve(lab) as store:
        said = over_ssh(lab, box, f"docker run {flags} {store.publish(images.tiny())} sh -c 'hostname; ip addr'")
    assert said.startswith("box2\n") and str(box.address) in said and "ens3" in said


def test_an_ordinary_user_with_sudo(lab: ContainerLab) -> None:
    argv = lab.ssh(lab["box2"], "id -un; sudo id -un", user="ops")
    assert run(argv).stdout.split() == ["ops", "root"]


def test_a_cable_that_is_pulled_and_an_sshd_that_hangs(lab: ContainerLab) -> None:
    box = lab["box2"]
    soon = ["timeout", "-k", "1", "3"]
    box.cut()
    assert run([*soon, *lab.ssh(box, "true")], check=False).returncode
    assert box.read("/sys/class/net/ens3/carrier") == "0\n"
    box.heal()
    assert over_ssh(lab, box, "hostname") == "box2"
    box.freeze()
    assert run([*soon, *lab.ssh(box, "true")], check=False).returncode
    box.thaw()
    assert over_ssh(lab, box, "hostname") == "box2"


def test_nodes_of_two_kinds_reach_each_other(lab: ContainerLab) -> None:
    with namespaces.rack(1, beside=lab.slot) as rack:
        (node,) = rack
        knock = f"import socket; print(socket.create_connection(('{lab['box1'].address}', 22), 5).recv(4))"
        assert node.exec(f'python3 -c "{knock}"').stdout == "b'SSH-'\n"
        assert rack.key_file == lab.key_file and run(rack.ssh(node, "hostname")).stdout == "node1\n"


def test_what_a_container_cannot_have_is_refused() -> None:
    with pytest.raises(LabError, match="namespace node"), containers(1, NodeSpec(sys={"class/kfd/x": ""})):
        pass
