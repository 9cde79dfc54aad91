"""A baseline of runs that are made one after the other, by real training on one node."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.lab.conftest import RackMaker
from tests.lab.product import Product, smoke


@pytest.fixture
def product(tmp_path: Path) -> Product:
    return Product(tmp_path)


def test_a_run_begins_a_baseline_and_is_none_for_itself(rack: RackMaker, product: Product) -> None:
    inventory = rack(1).inventory(product.folder / "lab.py", smoke(iterations=6))
    made = product.run("shakedown", "calibrate", inventory, "--runs", "1", "--format", "json", timeout=400)
    assert made.code == 0, made.text
    document = json.loads(made.out)
    found = {row["metric"]: row["baseline"]["count"] for row in document["baselines"]}
    assert len(document["runs"]) == 1 and found["elapsed_time_per_iteration"] == 1
    judged = product.run("shakedown", "judge", document["runs"][0], "--baseline", "--format", "json")
    assert judged.code == 0, judged.text
    why = {figure["name"]: figure["why"] for figure in json.loads(judged.out)["recorded"]}
    assert why["elapsed_time_per_iteration"] == "0 of 5 runs"
