"""Idle nodes are validated again by a job of Slurm's that any other job may take the node from."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path

import pytest

from shakedown.ledger.claims import known_of
from shakedown.ledger.store import open_ledger
from shakedown.service.model import Known
from tests.lab import slurm
from tests.lab.namespaces import rack
from tests.lab.node_spec import NodeSpec
from tests.lab.product import PROJECT, Product, until
from tests.lab.test_soak import SPEC, TOOLS

SCRIPT = PROJECT / "contrib" / "slurm" / "revalidate.sh"
PREEMPTION = (
    "PreemptType=preempt/partition_prio",
    "PreemptMode=REQUEUE",
    "PartitionName=idle Nodes=ALL MaxTime=1:00:00 State=UP PriorityTier=0 PreemptMode=REQUEUE GraceTime=60",
)
FOLDER = Path("/var/lib/soak")  # of a node: what a site has on a shared file system


def service(here: Path, copy: Path, monkeypatch: pytest.MonkeyPatch) -> Known:
    """The node in its own ledger, in a copy: SQLite follows /proc/PID/root to this machine's files."""
    copy.mkdir()
    for file in here.glob("ledger.sqlite*"):
        shutil.copy(file, copy)
    monkeypatch.setenv("SHAKEDOWN_LEDGER", str(copy / "ledger.sqlite"))
    return known_of(open_ledger(), ["node1"])["node1"]


@pytest.mark.long
def test_a_preempted_validation_is_unknown_and_goes_on_when_the_node_is_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    second = NodeSpec(sys=SPEC.sys)
    with rack([SPEC, second]) as lab, slurm.cluster(lab, *PREEMPTION) as cluster:
        product, node = Product(tmp_path), lab["node1"]
        here = node.root / str(FOLDER).lstrip("/")
        monkeypatch.setenv("SLURM_CONF", str(cluster.conf))
        site = {"gpu": "cpu", "tuning": {"numa_balancing": None}, "soak": {"memory": 0.01}}
        for copy in (lab.inventory(tmp_path / "rack.py", site), lab.key_file, lab.known_hosts):
            target = node.root / str(FOLDER / "rack.py" if copy.name == "rack.py" else copy).lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(copy, target)
        stale = product.run("shakedown", "ledger", "stale", "node[1-2]", "--one-in", "2")
        assert stale.out == "node1 never\n", stale.text
        on_node = {"SHAKEDOWN_RUNS": str(FOLDER / "runs"), "SHAKEDOWN_LEDGER": str(FOLDER / "ledger.sqlite")}
        monkeypatch.setenv("SHAKEDOWN_RUNS", on_node["SHAKEDOWN_RUNS"])
        wanted = {"ONE_IN": "2", "LENGTH": "60s", "STAGES": "cpu,memory"}
        report = here / "out"
        monkeypatch.setenv("SBATCH_OUTPUT", str(FOLDER / "out"))
        words = [f"{name}={value}" for name, value in wanted.items()]
        monkeypatch.setenv("SHAKEDOWN_LEDGER", on_node["SHAKEDOWN_LEDGER"])
        submitted = product.run("env", *words, SCRIPT, FOLDER / "rack.py", "node[1-2]")
        assert submitted.code == 0 and submitted.out.strip().isdigit(), submitted.text
        job = submitted.out.strip()
        again = product.run("env", *words, SCRIPT, FOLDER / "rack.py", "node[1-2]")
        assert "nothing submitted" in again.out, again.text

        def loads() -> bool:
            assert cluster.jobs() == [job], report.read_text()
            return int(node.exec(TOOLS, check=False).stdout or 0) > 0

        until(loads, 120)
        time.sleep(5)
        began = time.monotonic()
        cluster.command("srun", "--partition=main", "--nodelist=node1", "--exclusive", "true")
        assert time.monotonic() - began < 60, "the node was free before the time of grace was over"
        assert node.exec(TOOLS, check=False).stdout.strip() == "0"
        (path,) = [entry for entry in (here / "runs").iterdir() if not entry.is_symlink()]
        record = json.loads((path / "run.json").read_text())
        gates = {gate["name"]: gate for gate in record["gates"]}
        assert (
            record["verdict"] == "unknown"
            and f"preempted: stopped by SIGTERM in Slurm's job {job}" in record["soak"]["ended"]
        )
        assert "preempted" in gates["soak_time"]["evidence"] and "fail" not in {
            gate["verdict"] for gate in gates.values()
        }
        known = service(here, tmp_path / "first", monkeypatch)
        assert known.incidents == () and known.passed_loads == ()

        cluster.command("scontrol", "update", f"JobId={job}", "StartTime=now")
        until(lambda: cluster.jobs() == [], 300, every=1)
        record = json.loads((path / "run.json").read_text())
        assert record["soak"]["ended"] == "" and record["verdict"] in ("ok", "warn"), report.read_text()
        assert [load.load for load in service(here, tmp_path / "second", monkeypatch).passed_loads] == ["soak"]
        after = product.run("shakedown", "ledger", "stale", "node[1-2]", "--one-in", "2")
        assert after.out == "node2 never\n", after.text
        assert node.exec("ls -A /root/.cache/shakedown/runs").stdout == ""
