"""The way back into service on real nodes: found, mended, checked, put under load, in service again.

The program that trains is small (tests/lab/isolation/torchrun): a load takes a second and no import of torch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.lab.conftest import RackMaker
from tests.lab.namespaces import Rack
from tests.lab.product import Product, Ran, smoke

PROGRAM = Path(__file__).parent / "isolation" / "torchrun"
VENV = "/root/small"


@pytest.fixture
def product(tmp_path: Path) -> Product:
    return Product(tmp_path)


@pytest.fixture
def lab(rack: RackMaker) -> Rack:
    made = rack(2)
    for node in made:
        node.exec(f"mkdir -p {VENV}/bin && printf '#!/bin/sh\\n' > {VENV}/bin/python && chmod 755 {VENV}/bin/python")
        node.write(f"{VENV}/bin/torchrun", PROGRAM.read_text())
        node.exec(f"chmod 755 {VENV}/bin/torchrun; echo 0 > /proc/sys/kernel/numa_balancing")
    return made


def inventory(lab: Rack, product: Product, **changes: Any) -> Path:
    site = smoke(venv=VENV, unreachable_s=60) | {"tuning": {"numa_balancing": False}, **changes}
    return lab.inventory(product.folder / "lab.py", site)


def service(product: Product, *arguments: str | Path) -> tuple[Ran, dict[str, dict[str, Any]]]:
    """Where each node stands."""
    ran = product.run("shakedown", "service", *arguments, "--format", "json", timeout=300)
    assert ran.out, ran.text
    return ran, {node["node"]: node for node in json.loads(ran.out)["nodes"]}


def test_a_node_that_drifted_is_mended_and_in_service_only_after_a_load(lab: Rack, product: Product) -> None:
    site = inventory(lab, product)
    lab["node2"].exec("echo 1 > /proc/sys/kernel/numa_balancing")
    ran, nodes = service(product, site)
    assert ran.code == 3, ran.text
    assert (nodes["node1"]["standing"], nodes["node2"]["standing"]) == ("in service", "suspect"), ran.text
    assert nodes["node2"]["next"] == "mend" and "numa_balancing" in nodes["node2"]["why"]
    told = product.run("shakedown", "service", site, "--mend", "--dry")
    assert "would run: shakedown run" in told.out and "--limit node2" in told.out, told.text
    assert lab["node2"].read("/proc/sys/kernel/numa_balancing").strip() == "1", "a dry run changes nothing"

    ran, nodes = service(product, site, "--mend")
    assert ran.code == 0, ran.text
    assert {node["standing"] for node in nodes.values()} == {"in service"}
    assert lab["node2"].read("/proc/sys/kernel/numa_balancing").strip() == "0"
    steps = [(step["done"], step["rung"], step["outcome"]) for step in nodes["node2"]["steps"]]
    assert steps == [
        ("begun", "mend", ""), ("ended", "mend", "done"), ("begun", "load", ""), ("ended", "load", "done")
    ], ran.text  # fmt: skip
    assert (nodes["node2"]["passed"]["load"], nodes["node2"]["passed"]["others"]) == ("smoke", 1)
    assert nodes["node1"]["steps"] == []
