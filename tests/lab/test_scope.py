"""Each node by itself, and then all together, on separate nodes in one deploy. What trains is a small program
(tests/lab/isolation/torchrun), but in the test of a slow node."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.docs import schemas
from tests.lab.conftest import RackMaker
from tests.lab.namespaces import Node, Rack
from tests.lab.node_spec import NodeSpec
from tests.lab.product import PROJECT, SLEEPY, SMALL, SMALL_VENV, WITHOUT_TORCH, Product, finish, smoke, until

BOTH = ["each", "together"]


@pytest.fixture
def product(tmp_path: Path) -> Product:
    return Product(tmp_path)


def start(lab: Rack, product: Product, hosts: dict[str, Any] | None = None, **more: object) -> subprocess.Popen[str]:
    inventory = lab.inventory(product.folder / "lab.py", smoke(**SLEEPY | more, scope=BOTH), hosts=hosts or {})
    return product.start("pyinfra", inventory, PROJECT / "deploy/megatron.py", "-y")


def until_alone(node: Node) -> None:
    """Wait until the node's own job is in the middle."""
    log = "cat /root/.cache/shakedown/runs/*-each-*/leader.log"
    until(lambda: "iteration" in node.exec(log, check=False).stdout, 120)


def nothing_left(lab: Rack) -> None:
    for node in lab:
        assert node.processes() == []
        assert node.exec("ls -A /root/.cache/shakedown/runs").stdout == ""


def gates(record: dict[str, Any], node: str | None) -> dict[str, str]:
    return {gate["name"]: gate["verdict"] for gate in record["gates"] if gate["node"] == node}


def test_each_node_trains_by_itself_and_then_all_together(rack: RackMaker, product: Product) -> None:
    lab = rack(2, NodeSpec(files=WITHOUT_TORCH))
    site = smoke(**SLEEPY | {"iterations": 20}, scope=BOTH, scaling=0.01, baseline="judge")
    inventory = lab.inventory(product.folder / "lab.py", site)
    planned = product.run("shakedown", "plan", inventory)
    assert planned.code == 0 and re.findall(r"^(\S+): gpt-small .* on 1 node", planned.out, re.M) == [
        "each/node1",
        "each/node2",
    ]
    assert "\ngpt-small (process) on 2 nodes" in planned.out
    plans = json.loads(product.run("shakedown", "plan", inventory, "--format", "json").out)
    assert {name: len(plan["nodes"]) for name, plan in plans.items()} == {
        "each/node1": 1,
        "each/node2": 1,
        "together": 2,
    }
    dry = product.deploy(inventory, "megatron", "--dry")
    assert "on 2 jobs, each on one node" in dry.text and "gpt-small (process) on 2 nodes" in dry.text
    ran = product.deploy(inventory, "megatron", "-y")
    assert ran.code == 0, ran.text
    assert "each node alone: PASSED, 2 of 2 passed" in ran.text and "smoke run: PASSED" in ran.text
    record = product.record()
    assert record["verdict"] == "ok"
    assert [(job["node"], len(job["plan"]["nodes"])) for job in record["jobs"]] == [
        ("node1", 1),
        ("node2", 1),
        (None, 2),
    ]
    assert [len(job["iterations"]) for job in record["jobs"]] == [20, 20, 20]
    assert record["plan"] == record["jobs"][2]["plan"]
    assert schemas.problems_of(product.folder / "runs/latest") == []
    for node in ("node1", "node2", None):
        assert set(gates(record, node).values()) == {"ok"}
    (scaling,) = (gate for gate in record["gates"] if gate["name"] == "scaling_efficiency")
    assert scaling["job"] == "together" and re.search(r"alone \(node1 [\d.e+]+, node2 [\d.e+]+\)", scaling["evidence"])
    logs = sorted(
        str(path.relative_to(product.folder / "runs/latest"))
        for path in product.folder.glob("runs/latest/**/leader.log")
    )
    assert logs == [f"{folder}/{node}/leader.log" for folder in ("each", "logs") for node in ("node1", "node2")]
    again = product.run("shakedown", "judge", "runs/latest", "--format", "json")
    assert again.code == 0, again.text
    assert json.loads(again.out)["gates"] == record["gates"]
    nothing_left(lab)


def test_a_node_that_dies_by_itself_is_left_out_and_the_others_train_together(
    rack: RackMaker, product: Product
) -> None:
    lab = rack(3, NodeSpec(files=WITHOUT_TORCH))
    long = {"smoke": {"iterations": 300}}  # of the job that is to be disturbed
    process = start(lab, product, {"node2": long}, min_nodes=2, iterations=20)
    until_alone(lab["node2"])
    lab["node2"].exec(f"pkill -9 -f '^/usr/bin/python3 {SMALL_VENV}/bin/torchrun'")
    code, text = finish(process, 240)
    assert code == 1, text
    assert "each node alone: FAILED, 2 of 3 passed, not node2" in text
    assert "\n  ok: node1, node3\n" in text
    assert 'failed: node2: in "Judge the smoke run": smoke run: failed its single-node run' in " ".join(text.split())
    assert "it gave no reason" not in text and " on node2" in text
    record = product.record()
    assert record["verdict"] == "fail"
    assert {node["name"]: node["part"] for node in record["nodes"]} == {
        "node1": "trained",
        "node2": "excluded",
        "node3": "trained",
    }
    assert gates(record, "node2")["ran_to_its_end"] == "fail"
    for node in ("node1", "node3", None):
        assert set(gates(record, node).values()) == {"ok"}, node
    assert [node["name"] for node in record["plan"]["nodes"]] == ["node1", "node3"]
    assert "single-node run" in record["plan"]["missing"]["node2"]
    assert product.run("shakedown", "judge", "runs/latest").code == 1
    nothing_left(lab)


@pytest.mark.long
def test_a_node_that_is_slow_by_itself_is_named_and_without_it_the_others_wait(
    rack: RackMaker, product: Product
) -> None:
    """It is slow since it has far more to do: a model of other sizes, which only nodes by themselves may have."""
    lab = rack(2)
    slow = {"smoke": {"options": {**SMALL, "hidden_size": 512, "num_layers": 4, "seq_length": 256}, "iterations": 8}}
    site = smoke(scope=BOTH, expect={"elapsed_time_per_iteration": 300})
    inventory = lab.inventory(product.folder / "lab.py", site, hosts={"node2": slow})
    ran = product.deploy(inventory, "megatron", "-y", timeout=300)
    assert ran.code == 1, ran.text
    assert "each node alone: FAILED, 1 of 2 passed, not node2" in ran.text
    record = product.record()
    assert gates(record, "node2")["elapsed_time_per_iteration"] == "fail"
    assert set(gates(record, "node1").values()) == {"ok"}
    (together,) = [gate for gate in record["gates"] if gate["node"] is None]
    assert (together["name"], together["verdict"]) == ("ran_to_its_end", "fail")
    assert "min_nodes is not set (node2: failed its single-node run: " in together["evidence"]
    nothing_left(lab)


@pytest.mark.long
def test_ctrl_c_ends_every_nodes_own_job_and_nothing_follows(rack: RackMaker, product: Product) -> None:
    lab = rack(2, NodeSpec(files=WITHOUT_TORCH))
    process = start(lab, product, min_nodes=1)
    for node in lab:
        until_alone(node)
    process.send_signal(signal.SIGINT)
    code, text = finish(process, 60)
    assert code == 130, text
    record = product.record()
    assert record["verdict"] == "fail"
    assert {job["node"] for job in record["jobs"] if job["plan"]} == {"node1", "node2"}
    for name in ("node1", "node2"):
        assert "Ctrl-C" in str([gate for gate in record["gates"] if gate["node"] == name])
    assert "iteration" not in str(list(product.folder.glob("runs/latest/logs/*")))
    nothing_left(lab)
