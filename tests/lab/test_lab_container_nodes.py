"""Container nodes boot systemd: units, limits and reboots of user space are real in them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.lab.container_nodes import Box, ContainerLab, containers
from tests.lab.machine import run


@pytest.fixture(scope="module")
def lab() -> Iterator[ContainerLab]:
    with containers(2) as boxes:
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
