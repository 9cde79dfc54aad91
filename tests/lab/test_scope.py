"""Each node by itself, and then all together: real training on separate nodes, in one deploy."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.lab.conftest import RackMaker
from tests.lab.product import Product, smoke

BOTH = ["each", "together"]


@pytest.fixture
def product(tmp_path: Path) -> Product:
    return Product(tmp_path)


def test_each_node_trains_by_itself_and_then_all_together(rack: RackMaker, product: Product) -> None:
    lab = rack(2)
    inventory = lab.inventory(product.folder / "lab.py", smoke(scope=BOTH))
    ran = product.deploy(inventory, "megatron", "-y")
    print(ran.text)
    print(product.run("shakedown", "report", "runs/latest").text)
    print(product.run("shakedown", "judge", "runs/latest").text)
    print(product.run("shakedown", "plan", inventory).text)
    print(product.run("sh", "-c", "find runs/; cat runs/latest/evidence.json").text)
    assert ran.code == 0, ran.text
