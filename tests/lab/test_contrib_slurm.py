"""The examples for Slurm's programs, called by a real slurmd."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from shakedown.node import agent
from tests.lab import slurm
from tests.lab.namespaces import Node, rack
from tests.lab.slurm import Cluster

CONTRIB = Path(__file__).parents[2] / "contrib" / "slurm"
PROGRAMS = "/usr/local/libexec"
SETTINGS = (
    f"HealthCheckProgram={PROGRAMS}/shakedown-healthcheck",
    "HealthCheckInterval=2",
    "HealthCheckNodeState=ANY",
    f"Prolog={PROGRAMS}/shakedown-prolog",
    "PrologFlags=Alloc",
    f"Epilog={PROGRAMS}/shakedown-epilog",
)


def put(node: Node, name: str, text: str, mode: str) -> None:
    node.exec(f"mkdir -p $(dirname {name})")
    node.write(f"{name}.new", text)
    node.exec(f"chmod {mode} {name}.new && mv {name}.new {name}")


def verdict(node: Node, word: str, message: str) -> None:
    """The agent's last verdict on a node, as it writes it."""
    put(node, "/var/lib/shakedown/verdict", f"{word} {time.time():.0f} 1800 {message}\n", "644")


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with rack(3) as lab:
        health = Path(agent.__file__).parents[1] / "assets" / "shakedown-health"
        for node in lab:
            put(node, f"{PROGRAMS}/shakedown-health", health.read_text(), "755")
            for name in ("healthcheck", "prolog", "epilog"):
                put(node, f"{PROGRAMS}/shakedown-{name}", (CONTRIB / f"{name}.sh").read_text("utf-8"), "755")
            verdict(node, "ok", "shakedown: ok, 9 findings")
        with slurm.cluster(lab, *SETTINGS) as made:
            for node in lab:  # slurmd hands its programs no SLURM_CONF
                node.exec(f"mkdir -p /etc/slurm && ln -sf {made.conf} /etc/slurm/slurm.conf")
            yield made


def states(cluster: Cluster) -> dict[str, tuple[str, str]]:
    said = cluster.command("sinfo", "--noheader", "--Node", "--format=%N|%T|%E")
    return {node: (state, reason) for node, state, reason in (line.split("|", 2) for line in said.splitlines())}


def until(cluster: Cluster, node: str, reason: str) -> str:
    end = time.monotonic() + 60
    while states(cluster)[node][1] != reason and time.monotonic() < end:
        time.sleep(0.5)
    return states(cluster)[node][1]


def test_slurmd_drains_a_failed_node_alone_and_keeps_the_drains_of_others(cluster: Cluster) -> None:
    first, second, third = cluster.lab.nodes
    cluster.command("scontrol", "update", f"nodename={second.name}", "state=drain", "reason=disk swap")
    verdict(first, "fail", "shakedown: 1 fail: gpu_count")
    verdict(second, "fail", "shakedown: 1 fail: gpu_count")
    verdict(third, "drift", "shakedown: 1 drift: thp")
    assert until(cluster, first.name, "shakedown: 1 fail: gpu_count") == "shakedown: 1 fail: gpu_count"
    for node in (first, second):
        verdict(node, "ok", "shakedown: ok, 9 findings")
    time.sleep(6)  # three more health checks
    found = states(cluster)
    assert found[first.name][0].startswith("drain") and found[second.name] == (found[second.name][0], "disk swap")
    assert found[second.name][0].startswith("drain") and found[third.name][0] == "idle"
    assert cluster.command("srun", "-N1", "-w", third.name, "hostname").strip()


def test_the_prolog_keeps_a_job_off_a_node_that_failed_between_two_health_checks(cluster: Cluster) -> None:
    first = cluster.lab.nodes[0]
    put(first, f"{PROGRAMS}/shakedown-healthcheck", "#!/bin/sh\nexit 0\n", "755")
    assert cluster.command("srun", "-N1", "-w", first.name, "hostname").strip()
    verdict(first, "fail", "shakedown: 1 fail: gpu_count")
    cluster.command("timeout", "20", "srun", "-N1", "-w", first.name, "hostname", check=False)
    assert "Prolog" in until(cluster, first.name, "Prolog error")
