"""A burn-in of real nodes with stress-ng and fio: ended and gone on with, and ended by an error of a node's memory."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from tests.docs import schemas
from tests.lab.conftest import RackMaker
from tests.lab.namespaces import Rack
from tests.lab.node_spec import NodeSpec
from tests.lab.product import Product, finish, until

COUNTERS = "devices/system/edac/mc/mc0"
# The real tool, at a fifth of the load: the rest of the cores is other tests'.
GENTLY = '#!/bin/sh\nexec /usr/bin/stress-ng --cpu-load 20 --vm-hang 1 "$@"\n'
SPEC = NodeSpec(
    sys={f"{COUNTERS}/ue_count": "0\n", f"{COUNTERS}/ce_count": "3\n"}, files={"usr/local/bin/stress-ng": GENTLY}
)
TOOLS = "ps -eo args | grep -c '^[^ ]*stress-ng' || true"


@pytest.fixture
def product(tmp_path: Path) -> Product:
    return Product(tmp_path)


def inventory(lab: Rack, product: Product) -> Path:
    site = {"gpu": "cpu", "tuning": {"numa_balancing": None}, "soak": {"memory": 0.002, "scratch": "/var/tmp"}}
    return lab.inventory(product.folder / "lab.py", site)


def loaded(lab: Rack) -> bool:
    return all(int(node.exec(TOOLS, check=False).stdout or 0) for node in lab)


def idle(lab: Rack) -> bool:
    left = [
        node.exec("ls -A /root/.cache/shakedown/runs; ls -d /var/tmp/shakedown-*", check=False).stdout for node in lab
    ]
    return not any(int(node.exec(TOOLS, check=False).stdout or 0) for node in lab) and left == ["", ""]


def gates(record: dict[str, Any]) -> dict[str, str]:
    return {gate["name"]: gate["verdict"] for gate in record["gates"] if gate["job"] == "soak"}


def test_a_soak_that_is_ended_is_unknown_and_the_same_command_goes_on_with_it(
    rack: RackMaker, product: Product
) -> None:
    lab = rack([SPEC, SPEC])
    command = ["shakedown", "soak", inventory(lab, product), "--for", "45s", "--only", "cpu,memory,disk"]
    plan = product.run(*command, "--plan")
    assert plan.code == 0 and "cpu: 15 s" in plan.text and not (product.folder / "runs").exists(), plan.text
    assert "plan: no load was run" in plan.text
    process = product.start(*command)
    until(lambda: loaded(lab), 120)
    until(
        lambda: False if not loaded(lab) else "memory-1" in (product.folder / "runs/latest/run.json").read_text(), 120
    )
    process.send_signal(signal.SIGINT)
    code, text = finish(process, 120)
    first = product.record()
    assert code == 130 and "verdict: unknown (interrupted)" in text and idle(lab), text
    assert first["verdict"] == "unknown" and gates(first)["soak_time"] == "unknown", text
    assert "fail" not in {gate["verdict"] for gate in first["gates"]} and 10 < first["soak"]["stages"][0]["done_s"] < 20

    ran = product.run(*command, timeout=400)
    record = product.record()
    assert "going on with" in ran.text and record["run_id"] == first["run_id"], ran.text
    assert [name for name, verdict in gates(record).items() if verdict not in ("ok", "warn")] == [], ran.text
    assert ran.code == 0 and record["verdict"] in ("ok", "warn"), ran.text
    jobs = [job["trials"] for job in record["jobs"]]
    assert jobs.count("soak/cpu-1") == 1 and "soak/cpu-2" not in jobs and "soak/disk-1" in jobs
    assert {growth["counter"] for growth in record["soak"]["growth"]} >= {
        "memory mc0 ue_count uncorrectable",
        "memory mc0 ce_count correctable",
    }
    assert {figure["tool"] for figure in record["soak"]["figures"]} == {"cpu", "memory", "write", "read"}
    assert idle(lab) and schemas.problems_of(product.folder / "runs/latest") == []
    again = product.run("shakedown", "judge", "latest", "--format", "json")
    assert again.code == ran.code, again.text
    third = product.run(*command, "--resume", "latest")
    assert third.code == 1 and "its soak is finished" in third.text


def test_the_first_uncorrectable_error_ends_the_soak_on_all_nodes(rack: RackMaker, product: Product) -> None:
    lab = rack([SPEC, SPEC])
    process = product.start("shakedown", "soak", inventory(lab, product), "--for", "10m", "--only", "cpu")
    until(lambda: loaded(lab), 120)
    lab["node2"].exec(f"echo 1 > /sys/{COUNTERS}/ue_count; echo 5 > /sys/{COUNTERS}/ce_count")
    code, text = finish(process, 120)
    record = product.record()
    assert code == 1 and "rose from 0 to 1" in text and idle(lab), text
    assert record["soak"]["rose"].keys() == {"node2"} and record["verdict"] == "fail"
    named = {gate["node"] for gate in record["gates"] if gate["name"].startswith("soak_") and gate["verdict"] == "fail"}
    assert named == {"node2"} and gates(record)["soak_time"] == "unknown"
    assert gates(record)["soak_correctable"] == "warn"
    fresh = product.run(
        "shakedown", "soak", inventory(lab, product), "--for", "10m", "--only", "cpu", "--resume", "latest"
    )
    assert fresh.code == 1 and "has failed" in fresh.text, fresh.text
