"""The small GPT over Slurm: one allocation, a step for each job, and nothing of it over SSH."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab import slurm
from tests.lab.namespaces import Rack, rack
from tests.lab.node_spec import NodeSpec
from tests.lab.product import (
    LONG,
    PROJECT,
    SMALL_VENV,
    WITHOUT_TORCH,
    Product,
    finish,
    smoke,
    until,
    until_it_trains,
)
from tests.lab.slurm import Cluster

NODES = 4
AS_IT_IS: dict[str, object] = {"tuning": {"numa_balancing": None}}  # nothing to change on the lab's nodes


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with rack(NODES, NodeSpec(files=WITHOUT_TORCH)) as lab, slurm.cluster(lab) as made:
        yield made


@pytest.fixture
def product(cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Product:
    cluster.wait_until_idle()
    for node in cluster.lab:  # a run whose controller or node was lost keeps its folder there
        node.exec("rm -rf /root/.cache/shakedown/runs")
    monkeypatch.setenv("SLURM_CONF", str(cluster.conf))
    return Product(tmp_path)


def inventory(
    lab: Rack,
    folder: Path,
    layer: dict[str, object] = AS_IT_IS,
    slurm: dict[str, object] | None = None,
    **changes: object,
) -> Path:
    settings = {"partition": "main", "time_min": 30, "queue_s": 300, **(slurm or {})}
    return lab.inventory(folder / "lab.py", {**layer, **smoke(via="slurm", **changes), "slurm": settings})


def start(product: Product, path: Path) -> subprocess.Popen[str]:
    return product.start("pyinfra", path, PROJECT / "deploy/megatron.py", "-y")


def runs_left(lab: Rack) -> list[str]:
    found = [node.exec("ls /root/.cache/shakedown/runs 2>/dev/null", check=False).stdout.split() for node in lab]
    return [name for names in found for name in names]


def test_four_nodes_train_within_one_allocation(cluster: Cluster, product: Product) -> None:
    train(cluster, product, inventory(cluster.lab, product.folder, layer={}, venv=SMALL_VENV))


def test_a_job_that_slurm_would_refuse_is_told_before_anything_is_changed(cluster: Cluster, product: Product) -> None:
    for node in cluster.lab:
        node.exec("echo 1 > /proc/sys/kernel/numa_balancing")
    path = inventory(cluster.lab, product.folder, layer={}, slurm={"reservation": "none"})
    ran = product.run("shakedown", "run", path)
    assert ran.code == 1 and "Requested reservation is invalid; slurm.reservation: " in ran.text, ran.text
    assert "changed: nothing" in ran.text and cluster.jobs() == []


@pytest.mark.long
def test_nothing_at_all_goes_over_ssh(cluster: Cluster, product: Product) -> None:
    before = [node.exec_channels() for node in cluster.lab]
    train(cluster, product, inventory(cluster.lab, product.folder, layer={}, slurm={"connect": "slurm"}))
    assert [node.exec_channels() for node in cluster.lab] == before, "not one command went over SSH"


def train(cluster: Cluster, product: Product, path: Path) -> None:
    ran = product.deploy(path, "megatron", "-y", timeout=400)
    assert ran.code == 0, ran.text
    assert "runs on node[1-4]" in ran.text
    record = product.record()
    assert record["verdict"] == "ok"
    (job,) = record["jobs"]
    assert sorted(job["logs"]) == ["node1", "node2", "node3", "node4"]
    assert all((product.folder / "runs/latest" / logs[0]).is_file() for logs in job["logs"].values())
    assert runs_left(cluster.lab) == []
    until(lambda: cluster.jobs() == [], 60)  # for a moment a job that was given back is still completing


@pytest.mark.long
def test_a_queued_job_is_told_and_a_stop_cancels_it_alone(cluster: Cluster, product: Product) -> None:
    holder = cluster.command("sbatch", "--parsable", "--nodelist=node4", "--wrap=sleep 600", "--output=/dev/null")
    foreign = holder.strip()
    until(lambda: "R" in cluster.command("squeue", "--noheader", f"--jobs={foreign}", "--format=%t"), 60)
    try:
        with start(product, inventory(cluster.lab, product.folder)) as run:
            until(lambda: len(cluster.jobs()) == 2, 120)
            until(lambda: "Resources" in cluster.command("squeue", "--noheader", "--format=%r"), 60)
            run.send_signal(signal.SIGINT)
            code, said = finish(run, 120)
        assert code not in (0, None)
        assert "stopped by Ctrl-C, while Slurm job" in said
        until(lambda: cluster.jobs() == [foreign], 60)
        refused = product.run("shakedown", "trials", refusing(cluster.lab, product.folder))
        assert refused.code == 1 and f"Slurm job {foreign} of root holds it" in refused.text
    finally:
        cluster.command("scancel", foreign)


def refusing(lab: Rack, folder: Path) -> Path:
    """An inventory of the node that somebody's job holds, whose trials would go over SSH."""
    (node,) = (node for node in lab if node.name == "node4")
    data = {"gpu": "cpu", "slurm": {}, "trials": {"only": ["memory"]}}
    only = lab.host_data(node)
    (folder / "held.py").write_text(f"nodes = ([('node4', {only!r})], {data!r})\n")
    return folder / "held.py"


@pytest.mark.long
def test_a_stop_in_mid_run_ends_the_job_everywhere(cluster: Cluster, product: Product) -> None:
    lab = cluster.lab
    with start(product, inventory(lab, product.folder, **LONG)) as run:
        until_it_trains(lab.nodes)
        run.send_signal(signal.SIGINT)
        code, said = finish(run, 120)
    assert code not in (0, None) and "stopped by Ctrl-C" in said
    assert runs_left(lab) == []
    until(lambda: cluster.jobs() == [], 60)


@pytest.mark.long
def test_a_controller_that_is_killed_leaves_nothing(cluster: Cluster, product: Product) -> None:
    lab = cluster.lab
    with start(product, inventory(lab, product.folder, **LONG)) as run:
        until_it_trains(lab.nodes)
        run.kill()
    until(lambda: not any("train.py" in " ".join(p.args) for node in lab for p in node.processes()), 120)
    for job in cluster.jobs():
        cluster.command("scancel", job)
    for node in lab:
        node.exec("rm -rf /root/.cache/shakedown/runs")


@pytest.mark.long
def test_a_node_that_is_lost_in_mid_run_is_named(cluster: Cluster, product: Product) -> None:
    lab = cluster.lab
    lost = lab["node3"]
    with start(product, inventory(lab, product.folder, **LONG)) as run:
        until_it_trains(lab.nodes)
        lost.down()
        code, said = finish(run, 180)
    assert code == 1 and "node3" in said
    (job,) = product.record()["jobs"]
    assert job["logs"]["node1"]
    lost.up()
    cluster.start_node(lost)
    until(lambda: cluster.jobs() == [], 120)  # Slurm keeps an ended job until each of its nodes has answered or is down
    cluster.wait_until_idle()


@pytest.mark.long
def test_trials_and_the_search_are_steps_of_one_allocation(cluster: Cluster, product: Product) -> None:
    lab = cluster.lab
    settings = {"partition": "main", "time_min": 30}
    data = {**AS_IT_IS, **smoke(via="slurm"), "slurm": settings, "trials": {"via": "slurm", "repetitions": 2}}
    path = lab.inventory(product.folder / "lab.py", data)
    ran = product.run("shakedown", "trials", path, "--only", "memory,pairs", timeout=300)
    assert ran.code in (0, 1, 4), ran.text  # figures of nodes that share cores are what they are
    assert "pairs." in ran.text and "not started" not in ran.text
    searched = product.run("shakedown", "isolate", path, "--rounds", "1", "--via", "slurm", timeout=300)
    assert searched.code in (0, 4), searched.text
    assert searched.text.count(" runs on node[1-4]") == 1, "one allocation for all groups of all rounds"
    assert runs_left(lab) == []
    until(lambda: cluster.jobs() == [], 60)
