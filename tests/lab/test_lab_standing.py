"""What `make lab-up` leaves behind stands by itself, trains as the README says, and ends with `make lab-down`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab import slots
from tests.lab.product import BIN, PROJECT, Product, Ran

INVENTORY = PROJECT / "inventories/lab.py"


@pytest.fixture
def person(tmp_path: Path) -> Iterator[Product]:
    if any(slots.RUN_DIR.glob("*/standing")):
        pytest.fail("a rack stands on this machine, and this test would end it: make lab-down")
    product = Product(tmp_path)
    yield product
    if any(slots.RUN_DIR.glob("*/standing")):
        make(product, "lab-down")


def make(product: Product, *words: str) -> Ran:
    """`make`, with the python that runs this test."""
    return product.run("make", "-s", "-C", PROJECT, "-o", "setup", f"LAB_PYTHON={BIN / 'python'}", *words, timeout=400)


def on(product: Product, node: str, command: str) -> str:
    """What a command says that a person runs on a node, by name or number."""
    return make(product, "lab-ssh", f"N={node}", f"C={command}").out.strip()


@pytest.mark.long
def test_a_person_raises_a_rack_trains_on_it_and_takes_it_down(person: Product) -> None:
    raised = make(person, "lab-up", "NODES=2", "DOCKER=1")
    assert raised.code == 0, raised.text
    assert "2 nodes stand: node1, node2" in raised.out
    (standing,) = slots.RUN_DIR.glob("*/standing")
    recorded = standing.with_name("pids").read_text()
    assert slots.still_running(recorded)
    assert [on(person, node, "hostname") for node in ("1", "2", "node2")] == ["node1", "node2", "node2"]

    options = json.dumps({"iterations": 8})
    ran = person.deploy(INVENTORY, "megatron", "-y", "--data", f"smoke={options}", timeout=400)
    assert ran.code == 0, ran.text
    record = person.record()
    assert [node["name"] for node in record["nodes"]] == ["node1", "node2"]
    assert record["plan"]["runtime"] == "container" and re.search("sha256:[0-9a-f]{64}$", record["plan"]["image"])
    assert [record["verdict"], len(record["iterations"])] == ["ok", 8]

    assert make(person, "lab-down").code == 0
    assert not standing.parent.exists() and not (slots.DISK_DIR / standing.parent.name).exists()
    assert not slots.still_running(recorded), "engines, registry and nodes have ended"
    assert not list(Path("/sys/class/net").glob(f"sdlab{standing.parent.name}*"))
    assert make(person, "lab-down").code, "there is nothing left to end"
