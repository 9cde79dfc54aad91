"""A run in batches: stopped by a node that fails, resumed, a node that does not answer, and one smoke run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.docs import schemas
from tests.lab.conftest import RackMaker
from tests.lab.namespaces import Node
from tests.lab.product import Product, smoke

NUMA = "/proc/sys/kernel/numa_balancing"


def balancing(node: Node) -> str:
    return node.read(NUMA).strip()


def turns(record: dict[str, Any]) -> dict[str, str]:
    return {turn["node"]: turn["status"] for turn in record["rolling"]["turns"]}


@pytest.mark.parametrize("train", [False, pytest.param(True, marks=pytest.mark.long)])
def test_a_run_in_batches_stops_goes_on_and_trains_once(rack: RackMaker, tmp_path: Path, train: bool) -> None:
    lab, product = rack(4), Product(tmp_path)
    first, second, third, last = lab
    wanted = smoke(iterations=4, telemetry_s=None) | {"rolling": {"batch": "25%", "tries": 2}}
    inventory = lab.inventory(tmp_path / "lab.py", wanted)
    last.down()
    second.exec(f"mount -o remount,bind,ro {NUMA}")

    ran = product.run("shakedown", "run", inventory, "--no-smoke", "--max-failed", "0")
    assert ran.code == 1, ran.text
    assert "batch 1 of 4: node1 (0 done, 0 failed)" in ran.err and "batch 2 of 4: node2 (1 done" in ran.err, ran.err
    assert "stopped: 1 of 4 nodes failed (node2), max_failed is 0" in ran.err
    record = product.record()
    assert turns(record) == {"node1": "done", "node2": "failed", "node3": "waiting", "node4": "waiting"}
    assert (balancing(first), balancing(third)) == ("0", "1")
    assert record["verdict"] == "fail" and f"--resume {record['run_id']}" in ran.err
    assert {node["name"]: node["part"] for node in record["nodes"]}["node3"] == "excluded"

    second.exec(f"mount -o remount,bind,rw {NUMA}")
    first.exec(f"echo 1 > {NUMA}")
    ran = product.run("shakedown", "run", inventory, "--no-smoke", "--resume", "latest", "--batch", "2")
    assert ran.code == 1, ran.text
    assert f"done in {record['run_id']}, and not touched again: node1" in ran.err
    assert "batch 1 of 2: node2, node3" in ran.err and "no answer yet from node4: trying again" in ran.err, ran.err
    assert "unreached: node4: no answer after 2 tries: " in ran.err
    assert (balancing(first), balancing(second), balancing(third)) == ("1", "0", "0")
    again = product.record()
    assert turns(again) == {"node1": "done", "node2": "done", "node3": "done", "node4": "failed"}
    assert again["rolling"]["resumes"] == again["rolling"]["turns"][0]["run"] == record["run_id"]
    assert again["rolling"]["turns"][0]["verdict"] == "ok"

    if not train:
        return
    last.up()
    first.exec(f"echo 0 > {NUMA}")
    ran = product.run("shakedown", "run", inventory, "--resume", "latest")
    assert ran.code == 0, ran.text
    assert "batch 1 of 1: node4 (3 done, 0 failed)" in ran.err and "smoke run: PASSED" in ran.text
    record = product.record()
    assert set(turns(record).values()) == {"done"} and record["verdict"] == "ok"
    assert [(job["node"], len(job["plan"]["nodes"])) for job in record["jobs"]] == [(None, 4)]
    assert schemas.problems_of(tmp_path / "runs/latest") == []
