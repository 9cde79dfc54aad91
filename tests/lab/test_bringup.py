"""The main job on three SSH nodes, end to end, as a user runs it."""

from __future__ import annotations

import json
import re
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from shakedown.hosts import folded
from tests.docs import schemas
from tests.lab.conftest import RackMaker
from tests.lab.namespaces import Node, Rack
from tests.lab.node_spec import NodeSpec
from tests.lab.product import PROJECT, SMALL_VENV, WITHOUT_TORCH, Product, smoke
from tests.nodes import until

NUMA = "/proc/sys/kernel/numa_balancing"
KEY = "kernel.numa_balancing"


@pytest.fixture
def product(tmp_path: Path) -> Product:
    return Product(tmp_path)


@pytest.fixture
def lab(rack: RackMaker) -> Rack:
    return rack(3)


def _written(node: Node) -> dict[str, int]:
    """What stands on the node's own disk, with the time of its last change; but for the probe's cached bundle and the
    lab's own log."""
    ours = (".cache/shakedown", "var/log/sshd.log")
    found = (p for p in node.upper.rglob("*") if p.is_file() and not any(part in str(p) for part in ours))
    return {str(path.relative_to(node.upper)): path.stat().st_mtime_ns for path in found}


def test_a_new_rack_is_brought_up_trains_and_is_remembered(lab: Rack, product: Product) -> None:
    inventory = lab.inventory(product.folder / "lab.py", smoke(options={}))  # the recipe's own model
    untouched = [_written(node) for node in lab]

    before = product.drift(inventory)
    assert before.code == 3, before.text
    assert folded(node.name for node in lab) in before.out
    assert all(node.read(NUMA).strip() == "1" for node in lab), "the drift check changes nothing"

    ran = product.deploy(inventory, "megatron", "-y")
    assert ran.code == 0, ran.text
    assert all(node.read(NUMA).strip() == "0" for node in lab)
    record = product.record()
    assert record["verdict"] == "ok"
    assert record["plan"]["world_size"] == 3
    assert [node["interface"] for node in record["plan"]["nodes"]] == [node.interface for node in lab]
    assert len(record["iterations"]) == 20
    assert {gate["verdict"] for gate in record["gates"]} == {"ok"}
    assert [node["changes"] for node in record["nodes"]] == [["numa_balancing"]] * 3
    assert "iteration 20/20" in ran.err
    gates = (ran.out + ran.err).partition("\ngates: ")[2].partition("\nfigure ")[0]
    assert "nothing_left" in gates and "\n\n" not in gates, "one text has no blank lines"
    assert schemas.problems_of(product.folder / "runs/latest") == []

    after = product.drift(inventory)
    assert after.code == 0, after.text

    again = product.run("shakedown", "judge", "runs/latest")
    assert again.code == 0, again.text

    inventory = lab.inventory(product.folder / "lab.py", smoke())
    latest = product.folder / "runs/latest"
    first = latest.readlink()
    with product.start("pyinfra", inventory, PROJECT / "deploy/megatron.py", "-y") as second:
        until(lambda: second.poll() is not None or (latest.readlink() != first and (latest / "run.json").exists()), 120)
        watched = product.run("shakedown", "watch")
        _, err = second.communicate(timeout=180)
    assert second.returncode == 0, err
    assert "nothing to change" in err
    assert watched.code == 0, watched.text
    assert "stage: Smoke run\n" in watched.out and "loss " in watched.out and "verdict: ok\n" in watched.out
    assert [node["changes"] for node in product.record()["nodes"]] == [[]] * 3

    remembered = product.run("shakedown", "history", "--node", "node2", "--format", "json")
    newest, first = json.loads(remembered.out)["runs"]
    assert (newest["verdict"], first["verdict"], first["node_part"]) == ("ok", "ok", "trained")
    assert newest["jobs"][0]["figures"].keys() >= {"throughput_per_gpu", "tokens_per_gpu"}
    kept = _of_runs(product.run("shakedown", "ledger", "export").out)
    (product.folder / "runs/ledger.sqlite").unlink()
    assert product.run("shakedown", "ledger", "add", "--all").code == 0
    anew = _of_runs(product.run("shakedown", "ledger", "export").out)
    assert anew == kept, "made anew from the runs it is the same"
    compared = product.run("shakedown", "compare", first["run_id"], newest["run_id"])
    assert "numa_balancing" in compared.out and "not of equals: another parameters" in compared.out, compared.text

    lab["node2"].exec(f"echo 1 > {NUMA}")
    changed = product.drift(inventory)
    assert changed.code == 3
    assert "node2" in changed.out
    assert "node1" not in changed.out
    in_pyinfra = product.deploy(inventory, "drift", "-y")
    assert in_pyinfra.code == 3, in_pyinfra.text

    back = product.deploy(inventory, "rollback", "-y")
    assert back.code == 0, back.text
    assert "restored: " in back.err and "numa_balancing: 0 -> 1" in back.err, back.text
    assert all(node.read(NUMA).strip() == "1" for node in lab)
    assert [set(_written(node)) for node in lab] == [set(files) for files in untouched]
    assert all(not node.processes() for node in lab)


def test_shakedown_run_brings_up_nodes_of_which_only_some_have_drifted(lab: Rack, product: Product) -> None:
    """That they train afterwards: a change that counts at the next login."""
    inventory = lab.inventory(product.folder / "lab.py", {"gpu": "cpu"})
    lab["node2"].exec(f"echo 0 > {NUMA}; echo kernel.numa_balancing=0 > /etc/sysctl.d/10-numa.conf")
    ran = product.run("shakedown", "run", inventory)
    assert ran.code == 0, ran.text
    record = product.record()
    assert record["verdict"] == "ok"
    assert [node["changes"] for node in record["nodes"]] == [["numa_balancing"], [], ["numa_balancing"]]


def _of_runs(export: str) -> list[str]:
    """Return the lines of runs: a check without --ledger is in its run directory alone."""
    return [line for line in export.splitlines() if '"kind": "drift"' not in line]


def test_a_dry_run_shows_findings_changes_and_plan_and_changes_nothing(lab: Rack, product: Product) -> None:
    inventory = lab.inventory(product.folder / "lab.py", smoke())
    before = [_written(node) for node in lab]
    ran = product.deploy(inventory, "megatron", "--dry")
    assert ran.code == 3, ran.text
    assert re.search(r"\n DRIFT numa_balancing +node\[1-3\] +1, wanted 0 +fixable\n", ran.err), ran.text
    assert "to change: node1, node2, node3" in ran.err
    assert re.search(r" ~ numa_balancing +1 -> 0 +3 nodes\n", ran.err), ran.text
    assert "--master-port" in ran.err and "3 of 3 nodes have what the job needs" in ran.err, ran.text
    assert all(node.read(NUMA).strip() == "1" for node in lab)
    assert [_written(node).items() ^ files.items() for node, files in zip(lab, before, strict=True)] == [set()] * 3
    assert not (product.folder / "runs").exists()


def test_a_node_that_is_down_fails_alone_and_nobody_waits(rack: RackMaker, product: Product) -> None:
    lab = rack(3, NodeSpec(files=WITHOUT_TORCH))
    inventory = lab.inventory(product.folder / "lab.py", smoke(min_nodes=2, venv=SMALL_VENV))
    lab["node2"].down()
    began = time.monotonic()
    ran = product.deploy(inventory, "megatron", "-y")
    assert ran.code == 1, ran.text
    record = product.record()
    assert {node["name"]: node["part"] for node in record["nodes"]} == {
        "node1": "trained",
        "node2": "unreached",
        "node3": "trained",
    }
    assert record["plan"]["world_size"] == 2
    assert "node2" in record["plan"]["missing"]
    assert {gate["verdict"] for gate in record["gates"]} == {"ok"}, "the others are judged"
    assert record["verdict"] == "fail", "and the rack is not brought up"
    assert time.monotonic() - began < 300
    assert product.drift(inventory).code == 1


def test_without_leave_to_start_short_nothing_starts(lab: Rack, product: Product) -> None:
    inventory = lab.inventory(product.folder / "lab.py", smoke())
    lab["node3"].down()
    ran = product.deploy(inventory, "megatron", "-y")
    assert ran.code == 1
    assert "min_nodes" in ran.err, ran.text
    assert product.record()["verdict"] == "fail"
    (gate,) = product.record()["gates"]
    assert (gate["name"], gate["verdict"], gate["actual"]) == ("ran_to_its_end", "fail", "never started")


def test_a_frozen_sshd_costs_one_node_and_not_the_rack(lab: Rack, product: Product) -> None:
    inventory = lab.inventory(product.folder / "lab.py", smoke())
    lab["node2"].freeze()
    began = time.monotonic()
    findings = product.findings(inventory)
    assert time.monotonic() - began < 150
    verdicts = {(finding["node"], finding["name"]): finding["verdict"] for finding in findings}
    assert verdicts["node2", "reachable"] == "fail"
    assert verdicts["node1", "numa_balancing"] == verdicts["node3", "numa_balancing"] == "drift"
    lab["node2"].thaw()


def test_in_the_steady_state_a_drift_check_is_one_exec_channel_per_node(lab: Rack, product: Product) -> None:
    unlisted = {
        "tuning": {"sysctl": {"kernel.panic_on_oops": lab["node1"].read("/proc/sys/kernel/panic_on_oops").strip()}}
    }
    inventory = lab.inventory(product.folder / "lab.py", smoke() | unlisted)
    product.drift(inventory)  # brings the probe's bundle
    before = [node.exec_channels() for node in lab]
    findings = product.findings(inventory)
    assert [node.exec_channels() - count for node, count in zip(lab, before, strict=True)] == [1, 1, 1]
    asked = [each["verdict"] for each in findings if each["name"] == "sysctl.kernel.panic_on_oops"]
    assert asked == ["drift"] * 3, "any key is read in the same exec; nothing keeps this one at boot"


def test_one_setting_by_its_operation_alone(rack: RackMaker, product: Product) -> None:
    """As a person does from the command line, with --dry and --diff, without a deploy; and the way back."""
    lab = rack([NodeSpec(proc={"sys/kernel/nmi_watchdog": "1\n"})])
    inventory = lab.inventory(product.folder / "lab.py", {"gpu": "cpu"})
    change = ("pyinfra", inventory, "shakedown.operations.tuning.nmi_watchdog", "enabled=false")
    path, file = "/proc/sys/kernel/nmi_watchdog", "/etc/sysctl.d/90-shakedown.conf"
    dry = product.run(*change, "--dry", "--diff")
    assert dry.code == 0 and "kernel.nmi_watchdog = 0" in dry.text and lab["node1"].read(path).strip() == "1"
    for noop in (False, True):
        done = product.run(*change, "-y", "-v")
        assert done.code == 0, done.text
        assert ("kernel.nmi_watchdog is 0, now and at boot" in done.text) == noop, done.text
    assert lab["node1"].read(path).strip() == "0" and "kernel.nmi_watchdog = 0" in lab["node1"].read(file)
    back = product.deploy(inventory, "rollback", "-y")
    assert back.code == 0, back.text
    assert lab["node1"].read(path).strip() == "1"
    lab["node1"].exec(f"test ! -e {file}")


OFF = NodeSpec(proc={"sys/kernel/numa_balancing": "0\n"}, files={"etc/sysctl.d/10-numa.conf": f"{KEY} = 0\n"})
"""A node whose NUMA balancing is as it should be."""
UNDOES = {"usr/local/bin/gpasswd": f'#!/bin/sh\necho 1 > {NUMA}\nsed -i "s/^$3:.*/&$2/" /etc/group\n'}
"""Joining a group has a side effect there, as a site's hook may have: NUMA balancing is switched on."""


UNDONE = (
    NodeSpec(files=UNDOES),
    {"groups": ["rack"]},
    "fail",
    ["numa_balancing", "groups.rack"],
    "numa_balancing: still drift, although its operation ran",
)


@pytest.mark.parametrize(
    ("command", "spec", "tuning", "verdict", "changes", "said"),
    [
        ("pyinfra", *UNDONE),
        ("shakedown", *UNDONE),
        (
            "shakedown",
            replace(OFF, files=OFF.files | UNDOES),
            {"groups": ["rack"]},
            "ok",
            ["groups.rack", "numa_balancing"],
            "numa_balancing: switch automatic NUMA balancing off",
        ),
        (
            "pyinfra",
            OFF,
            {"memlock": 4321},
            "drift",
            ["memlock"],
            "(login pending), also in a new session: see its sshd",
        ),
    ],
    ids=["undone by the next operation", "undone, by shakedown", "came up only after the changes", "waits for a login"],
)
def test_what_is_left_after_the_changes_decides_exit_codes_and_verdict_alike(
    rack: RackMaker,
    product: Product,
    command: str,
    spec: NodeSpec,
    tuning: dict[str, Any],
    verdict: str,
    changes: list[str],
    said: str,
) -> None:
    lab = rack([spec, OFF])
    lab["node1"].exec("groupadd rack")
    inventory = lab.inventory(product.folder / "lab.py", {"gpu": "cpu"}, hosts={"node1": {"tuning": tuning}})
    shakedown = command == "shakedown"
    ran = product.run("shakedown", "run", inventory) if shakedown else product.deploy(inventory, "megatron", "-y")
    assert said in ran.err, ran.text
    assert ran.code == {"ok": 0, "drift": 3, "fail": 1}[verdict], ran.text
    assert "Traceback" not in ran.text
    record = product.record()
    assert record["verdict"] == verdict
    assert [node["changes"] for node in record["nodes"]] == [changes, []]
    assert [node["part"] for node in record["nodes"]] == ["excluded" if verdict == "fail" else "examined", "examined"]
    assert lab["node1"].read(NUMA).strip() == ("1" if verdict == "fail" else "0")


PAM = {"etc/pam.d/sshd": "".join(f"{kind} required pam_permit.so\n" for kind in ("auth", "account", "password"))}
PAM["etc/pam.d/sshd"] += "session required pam_limits.so\n"


def test_a_change_that_counts_at_the_next_login_needs_no_second_run(rack: RackMaker, product: Product) -> None:
    """The limit is lower than the lab's own, which root without CAP_SYS_RESOURCE cannot raise."""
    quiet = replace(OFF, files=OFF.files | WITHOUT_TORCH)
    lab = rack([replace(quiet, files=quiet.files | PAM), quiet])
    lab["node1"].exec("sed -i 's/^UsePAM no/UsePAM yes/' /etc/ssh/sshd_config; kill -HUP $(cat /run/sshd.pid)")
    hosts = {"node1": {"tuning": {"memlock": 4321}}}
    inventory = lab.inventory(product.folder / "lab.py", smoke(venv=SMALL_VENV), hosts=hosts)
    dry = product.run("shakedown", "run", inventory, "--dry")
    assert "new logins   node1: connected again after the changes" in dry.text, dry.text
    ran = product.run("shakedown", "run", inventory)
    assert ran.code == 0, ran.text
    record = product.record()
    assert (record["verdict"], [node["changes"] for node in record["nodes"]]) == ("ok", [["memlock"], []])
    memlock = next(found for found in record["findings"] if found["name"] == "memlock")
    assert (memlock["verdict"], memlock["actual"]) == ("ok", "4321"), "read over the new session"
    assert record["plan"]["world_size"] == 2 and {gate["verdict"] for gate in record["gates"]} == {"ok"}
