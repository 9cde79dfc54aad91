"""The small GPT over Slurm: one allocation, a step for each job, and nothing of it over SSH."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab import slurm
from tests.lab.namespaces import Rack, rack
from tests.lab.product import Product, smoke
from tests.lab.slurm import Cluster

NODES = 4


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with rack(NODES) as lab, slurm.cluster(lab) as made:
        yield made


@pytest.fixture
def product(cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Product:
    monkeypatch.setenv("SLURM_CONF", str(cluster.conf))
    return Product(tmp_path)


def inventory(lab: Rack, folder: Path, **changes: object) -> Path:
    return lab.inventory(folder / "lab.py", {**smoke(via="slurm", **changes), "slurm": {"partition": "main"}})


def test_four_nodes_train_within_one_allocation(cluster, product):
    lab = cluster.lab
    path = inventory(lab, product.folder)
    ran = product.deploy(path, "megatron", "-y")
    assert ran.code == 0, ran.text
    record = product.record()
    assert record["verdict"] == "ok"
    (job,) = record["jobs"]
    assert len(job["logs"]) == NODES and all(
        (product.folder / "runs/latest" / logs[0]).stat().st_size for logs in job["logs"].values()
    )
    assert "runs on node[1-4]" in ran.text
    assert cluster.jobs() == []
