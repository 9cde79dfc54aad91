"""The search for bad nodes on real nodes: sshd, launcher, plans and gates are real, and so is the fault.

The program that trains is small (tests/lab/isolation/torchrun), so that a round takes seconds and not torch's import
on six nodes at once; the last test lets torch train."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.lab.conftest import RackMaker
from tests.lab.machine import require, run
from tests.lab.namespaces import Node, Rack
from tests.lab.node_spec import NodeSpec
from tests.lab.processes import inside
from tests.lab.product import SMALL_VENV, WITHOUT_TORCH, Product, Ran, finish, smoke, until

SLOW_S = 900
"""For a search over six nodes: four minutes on a machine with as many other tests as cores."""


@pytest.fixture
def product(tmp_path: Path) -> Product:
    return Product(tmp_path)


@pytest.fixture
def lab(rack: RackMaker) -> Rack:
    return rack(6, NodeSpec(files=WITHOUT_TORCH))


def inventory(lab: Rack, product: Product, layer: dict[str, object] | None = None, **changes: object) -> Path:
    site = smoke(venv=SMALL_VENV, unreachable_s=60, **changes) | {"tuning": {"numa_balancing": None}} | (layer or {})
    return lab.inventory(product.folder / "lab.py", site)


def isolate(product: Product, *arguments: str | Path) -> Ran:
    return product.run("shakedown", "isolate", *arguments, timeout=SLOW_S)


def kept(product: Product) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((product.folder / "runs/latest/isolation.json").read_text())
    return found


def suspects(product: Product) -> list[set[str]]:
    return [set(suspect["nodes"]) for suspect in kept(product)["result"]["suspects"]]


def test_a_node_that_crashes_is_named_and_left_out_of_the_next_run(rack: RackMaker, product: Product) -> None:
    lab = rack(4, NodeSpec(files=WITHOUT_TORCH))  # the longest test of all with six
    lab["node4"].write("/root/fault", "crash 3\n")
    site = inventory(lab, product, isolate=True)
    ran = product.run("shakedown", "run", site, timeout=SLOW_S)
    assert ran.code == 1, ran.text
    assert "search for bad nodes" in ran.err
    record = product.record()
    result = record["isolation"]["result"]
    assert suspects(product) in ([{"node4"}], []), ran.text
    assert "node4" not in result["cleared"], ran.text
    if result["undecided"]:  # iterations of some milliseconds: where other work scatters them, not all are cleared
        return
    assert set(result["cleared"]) == {node.name for node in lab} - {"node4"}
    failed = result["suspects"][0]["trainings"]
    assert len(failed) >= 3
    company = [
        set(training["group"]["nodes"]) - {"node4"}
        for trainings in record["isolation"]["rounds"]
        for training in trainings
        if training["group"]["id"] in failed
    ]
    assert not set.intersection(*company)
    assert "search: suspect node4" in product.run("shakedown", "report", "latest").out
    assert not any(node.processes() for node in lab)

    told = isolate(product, "latest", "--dry")
    assert "at most" in told.err, told.text
    assert "hint: node4" in told.err
    again = product.run("shakedown", "run", inventory(lab, product, exclude="suspects"), timeout=SLOW_S)
    assert again.code == 4, again.text  # who was left out has not passed
    assert "suspect (node4) of the search" in again.err
    assert {gate["verdict"] for gate in product.record()["gates"]} == {"ok"}


@pytest.mark.long
def test_two_nodes_that_cannot_reach_each_other_are_a_link(lab: Rack, product: Product) -> None:
    one, other = lab["node2"], lab["node5"]
    one.exec(f"ip route add unreachable {other.address}/32")
    ran = isolate(product, inventory(lab, product))
    assert suspects(product) in ([{"node2", "node5"}], []), ran.text
    assert ran.code in (1, 4), ran.text
    if ran.code == 1:
        assert kept(product)["result"]["suspects"][0]["kind"] == "link"


@contextlib.contextmanager
def limited(node: Node, quota_us: int, period_us: int) -> Iterator[None]:
    """What runs on the node gets so much of a core: its sshd is in the control group, and all that it starts."""
    first = Path("/sys/fs/cgroup/cpu")
    top = (first if first.is_dir() else Path("/sys/fs/cgroup")) / f"shakedown-{os.getpid()}-{node.name}"
    top.mkdir()
    try:
        if first.is_dir():
            (top / "cpu.cfs_period_us").write_text(str(period_us))
            (top / "cpu.cfs_quota_us").write_text(str(quota_us))
        else:
            (top / "cpu.max").write_text(f"{quota_us} {period_us}")
        for process in inside(node._up_pid()):
            (top / "cgroup.procs").write_text(str(process.pid))
        yield
    finally:
        for pid in (top / "cgroup.procs").read_text().split():
            with contextlib.suppress(OSError):
                (top.parent / "cgroup.procs").write_text(pid)
        top.rmdir()


@pytest.mark.long
def test_a_slow_node_is_named_or_nobody_is(lab: Rack, product: Product) -> None:
    with limited(lab["node3"], 5_000, 50_000):
        ran = isolate(product, inventory(lab, product))
    assert suspects(product) in ([{"node3"}], []), ran.text
    assert ran.code in (1, 4), ran.text
    if ran.code == 1:
        assert "slow" in kept(product)["result"]["suspects"][0]["why"]


def in_network(node: Node, command: str) -> str:
    """Run the machine's own command in the node's network namespace."""
    return run(["nsenter", "-t", str(node._up_pid()), "-n", "sh", "-c", command]).stdout


@pytest.mark.long
def test_a_node_with_a_slow_cable_is_named_or_nobody_is(lab: Rack, product: Product) -> None:
    in_network(lab["node3"], f"tc qdisc add dev {lab['node3'].interface} root tbf rate 1mbit burst 16kb latency 2s")
    ran = isolate(product, inventory(lab, product))
    assert suspects(product) in ([{"node3"}], []), ran.text
    assert ran.code in (1, 4), ran.text


def lose(lab: Rack, name: str) -> None:
    """Of the packets that other nodes send to this one, two of five are lost: most iterations wait for one."""
    require("nft")
    others = ", ".join(str(other.address) for other in lab if other.name != name)
    rules = (
        "add table inet lossy",
        "add chain inet lossy input { type filter hook input priority 0 ; }",
        f"add rule inet lossy input ip saddr {{ {others} }} numgen random mod 100 < 40 counter drop",
    )
    in_network(lab[name], " && ".join(f"nft '{rule}'" for rule in rules))


@pytest.mark.long
def test_a_node_that_loses_packets_is_named_or_nobody_is(lab: Rack, product: Product) -> None:
    lose(lab, "node5")
    ran = isolate(product, inventory(lab, product))
    assert "packets 0 " not in in_network(lab["node5"], "nft list ruleset"), "nothing was lost"
    assert suspects(product) in ([{"node5"}], []), ran.text
    assert ran.code in (1, 4), ran.text


@pytest.mark.long
def test_a_node_with_another_provider_library_is_named_by_its_trainings_and_before_by_a_finding(
    lab: Rack, product: Product
) -> None:
    for node in lab:
        node.write("/usr/local/lib/libbnxt_re-rdmav34.so", "another build" if node.name == "node2" else "the build")
    provider = {"rdma": {"count": 0, "provider": {"name": "bnxt_re"}}}
    told = isolate(product, inventory(lab, product, layer=provider), "--dry")
    assert "node2 is not searched: fleet.provider_library.bnxt_re" in told.err, told.text
    ran = isolate(product, inventory(lab, product))
    assert suspects(product) in ([{"node2"}], []), ran.text
    assert ran.code in (1, 4), ran.text


@pytest.mark.long
def test_where_all_is_well_nobody_is_named_and_an_interrupted_search_goes_on(lab: Rack, product: Product) -> None:
    site = inventory(lab, product)
    process = product.start("shakedown", "isolate", site)
    runs = product.folder / "runs/latest"
    until(lambda: (runs / "isolation.json").is_file() and len(kept(product)["rounds"]) == 1, 120)
    process.send_signal(signal.SIGINT)
    code, text = finish(process, 60)
    assert code not in (0, None), text
    first = kept(product)
    assert first["result"] is None
    ran = isolate(product, "latest", "--resume")
    assert suspects(product) == [], ran.text
    assert ran.code in (0, 4), ran.text  # undecided where the machine was too busy to tell
    of_first = [[training["group"] for training in trainings] for trainings in first["rounds"]]
    assert [[training["group"] for training in each] for each in kept(product)["rounds"]][: len(of_first)] == of_first


@pytest.mark.long
def test_with_torch_on_four_nodes(rack: RackMaker, product: Product) -> None:
    lab = rack(4)
    site = lab.inventory(product.folder / "lab.py", smoke(unreachable_s=60) | {"tuning": {"numa_balancing": None}})
    ran = product.run("shakedown", "isolate", site, "--rounds", "2", timeout=500)
    assert ran.code == 4, ran.text  # two rounds decide nothing
    assert suspects(product) == []
    outcomes = [training["outcome"] for trainings in kept(product)["rounds"] for training in trainings]
    assert "pass" in outcomes, ran.text
