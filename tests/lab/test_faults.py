"""What must not happen: a false pass, somebody waiting for a dead node, something left behind."""

from __future__ import annotations

import json
import os
import re
import signal
from pathlib import Path

import pytest

from tests.lab.conftest import RackMaker
from tests.lab.machine import run
from tests.lab.namespaces import Rack
from tests.lab.node_spec import NodeSpec
from tests.lab.product import (
    LONG,
    PROJECT,
    SLEEPY,
    SMALL_VENV,
    WITHOUT_TORCH,
    Product,
    finish,
    one_rank,
    smoke,
    until,
    until_it_trains,
)


@pytest.fixture
def product(tmp_path: Path) -> Product:
    return Product(tmp_path)


@pytest.fixture
def lab(rack: RackMaker) -> Rack:
    return rack(2, NodeSpec(files=WITHOUT_TORCH))


def test_a_rank_killed_in_the_middle_stops_all_and_every_view_names_the_node(rack: RackMaker, product: Product) -> None:
    lab = rack(3)
    inventory = lab.inventory(product.folder / "lab.py", smoke(**LONG))
    process = product.start("pyinfra", inventory, PROJECT / "deploy/megatron.py", "-y")
    until_it_trains(lab.nodes)
    lab["node2"].exec(f"kill -9 {one_rank(lab['node2'])}")
    until(lambda: not any(node.processes() for node in lab), 60)
    code, text = finish(process, 60)
    assert code == 1, text
    record = product.record()
    assert record["verdict"] == "fail"
    gates = {gate["name"]: gate for gate in record["gates"]}
    assert gates["ran_to_its_end"]["verdict"] == "fail"
    assert "node2" in gates["ran_to_its_end"]["evidence"], gates
    assert not re.search(r"node[13] ended with -", gates["exit_codes"]["evidence"])
    alone = {node["name"] for node in record["nodes"] if node["exit_code"] == 1}  # before the controller came
    assert not re.search(r"node[13] ended with 1(?! after the failure began on node2)", gates["exit_codes"]["evidence"])
    found = record["diagnosis"]
    assert (found["confidence"], found["name"], found["origin"]) == ("certain", "killed", ["node2"]), found
    assert "verdict: fail: node2 (certain: " in text and found["evidence"][0]["file"].endswith("leader.log")
    for node in record["nodes"]:
        assert (product.folder / "runs/latest" / node["logs"][0]).stat().st_size, "every node's log is kept"
    assert not lab["node2"].exec("ls /root/.cache/shakedown/runs", check=False).stdout.strip()
    assert not re.search(r"\n  failed: [^:]*node[13]", text)
    if not alone:
        assert "\n  stopped: node1, node3: stopped by the controller: the failure began on node2\n" in text
    stopped, killed = "stopped by the controller", f"failed: {found['cause']}"
    first, third = (
        "ended with 1 after the failure began on node2" if name in alone else stopped for name in ("node1", "node3")
    )
    assert [(each["verdict"], each["why"]) for each in record["nodes"]] == [
        ("ok", first), ("fail", killed), ("ok", third),
    ]  # fmt: skip
    shown = product.run("shakedown", "report", "-v").out
    for name, why in (("node1", first), ("node3", third)):
        assert re.search(rf"^{name} +ok +trained: {why} ", shown, re.MULTILINE)
    assert re.search(rf"^node2 +fail +trained: {re.escape(killed)} ", shown, re.MULTILINE)
    for name, verdict, why in (("node1", "ok", first), ("node2", "fail", killed)):
        past = product.run("shakedown", "history", "--node", name).out
        assert re.search(rf" {name} +{verdict} ", past) and f"trained: {why}" in past


def test_ctrl_c_stops_the_job_everywhere_and_is_no_pass(lab: Rack, product: Product) -> None:
    inventory = lab.inventory(product.folder / "lab.py", smoke(**SLEEPY))
    process = product.start("pyinfra", inventory, PROJECT / "deploy/megatron.py", "-y")
    until_it_trains(lab.nodes)
    process.send_signal(signal.SIGINT)
    code, text = finish(process, 40)
    assert code not in (0, None), text
    until(lambda: not any(node.processes() for node in lab), 5)
    record = product.record()
    assert record["finished_at"] is not None
    assert record["verdict"] == "fail"
    assert "\n  failed: " not in text, "no node has failed"
    assert {node["verdict"] for node in record["nodes"]} == {"ok"}
    assert re.search(r"\n  stopped: \S+, \S+: stopped by the controller: the run was stopped from outside\n", text)


def test_a_run_whose_record_does_not_fit_on_the_disk_has_failed(lab: Rack, product: Product) -> None:
    runs = product.folder / "runs"
    runs.mkdir()
    run(["mount", "-t", "tmpfs", "-o", "size=2m", "shakedown-runs", str(runs)])
    try:
        inventory = lab.inventory(product.folder / "lab.py", smoke(**SLEEPY | {"iterations": 40}))
        process = product.start("pyinfra", inventory, PROJECT / "deploy/megatron.py", "-y")
        until_it_trains(lab.nodes)
        with (runs / "somebody else's").open("wb") as file:
            left = os.statvfs(runs).f_bavail * os.statvfs(runs).f_frsize
            file.write(bytes(max(left - (40 << 10), 0)))  # the logs still fit, the record does not
        code, text = finish(process, 90)
        assert code == 1, text
        assert "record of this run could not be written" in text
        assert "No space left" in text
        assert product.record()["verdict"] == "unknown", "the file on disk is the one of before"
    finally:
        run(["umount", str(runs)])


def test_a_controller_that_dies_leaves_nothing_running(lab: Rack, product: Product) -> None:
    inventory = lab.inventory(product.folder / "lab.py", smoke(**SLEEPY, unreachable_s=10))
    process = product.start("pyinfra", inventory, PROJECT / "deploy/megatron.py", "-y")
    until_it_trains(lab.nodes)
    process.kill()
    process.communicate()
    watched = product.run("shakedown", "watch")
    assert watched.code == 4 and "its controller has ended without a verdict" in watched.out, watched.text
    until(lambda: not any(node.processes() for node in lab), 60)
    record = json.loads((product.folder / "runs/latest/run.json").read_text())
    assert record["finished_at"] is None
    assert record["verdict"] == "unknown", "a run nobody finished is not a pass"

    ran = product.deploy(lab.inventory(product.folder / "lab.py", smoke(venv=SMALL_VENV)), "megatron", "-y")
    assert ran.code == 0, ran.text
    kept, endings = "", ""
    for node in lab:
        still = rf"\b{node.name}\b[^\n:]*: /root/\.cache/shakedown/runs still has {record['run_id']} \("
        assert re.search(still, ran.err), ran.err
        left = f"/root/.cache/shakedown/runs/{record['run_id']}"
        kept += node.read(f"{left}/leader.log")
        endings += node.read(f"{left}/.launcher/status.json")
    assert " iteration " in kept, "nowhere else are its logs"
    assert "the controller was silent" in endings, endings  # where one ends the other's program may fail before
    assert "still has" in product.run("shakedown", "report", "runs/latest").out


def test_every_error_of_the_desired_state_comes_before_the_first_connection(lab: Rack, product: Product) -> None:
    data = smoke() | {"gpu": "mi301x", "tuning": {"numa_balancing": "no", "thp": "maybe"}, "nic": "<changeme>"}
    inventory = lab.inventory(product.folder / "lab.py", data)
    commands = ("pyinfra", inventory, PROJECT / "deploy/megatron.py", "-y"), ("shakedown", "drift", inventory)
    for ran in (product.run(*command) for command in commands):
        assert ran.code == 2, ran.text
        for path in ("gpu.profile", "tuning.numa_balancing", "tuning.thp", "rdma.family"):
            assert path in ran.err
        assert "Traceback" not in ran.err
    assert not any("Accepted publickey" in node.sshd_log for node in lab), "no connection was made"


def test_drift_in_plain_pyinfra_fails_without_a_terminal_and_without_asking(lab: Rack, product: Product) -> None:
    inventory = lab.inventory(product.folder / "lab.py", smoke())
    lab.nodes[1].down()
    for options in ([], ["--json"]):  # the others: tests/unit/test_guard.py
        ran = product.deploy(inventory, "drift", *options)
        assert ran.code == 1, (options, ran.text)
        assert "EOFError" not in ran.err
        assert lab.nodes[0].name in ran.err
        assert lab.nodes[1].name in ran.err


def test_an_ordinary_user_is_told_what_needs_root_and_still_trains(rack: RackMaker, product: Product) -> None:
    lab = rack(2, NodeSpec(user="ops", files=WITHOUT_TORCH))
    inventory = lab.inventory(product.folder / "lab.py", smoke(venv=SMALL_VENV), user="ops")
    ran = product.deploy(inventory, "megatron", "-y")
    assert ran.code == 3, ran.text
    assert "not root there" in ran.err
    record = product.record()
    assert record["verdict"] == "drift"
    assert {gate["verdict"] for gate in record["gates"]} == {"ok"}
    assert all(node.read("/proc/sys/kernel/numa_balancing").strip() == "1" for node in lab)


def test_an_ordinary_user_with_sudo_changes_what_root_would(rack: RackMaker, product: Product) -> None:
    lab = rack(2, NodeSpec(user="ops", sudo=True, files=WITHOUT_TORCH))
    inventory = lab.inventory(product.folder / "lab.py", smoke(venv=SMALL_VENV) | {"_sudo": True}, user="ops")
    ran = product.deploy(inventory, "megatron", "-y")
    assert ran.code == 0, ran.text
    assert product.record()["verdict"] == "ok"
    assert all(node.read("/proc/sys/kernel/numa_balancing").strip() == "0" for node in lab)
