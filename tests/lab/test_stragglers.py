"""A node that is slow while all of them train is told by name, and nobody else is."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs import schemas
from tests.lab.conftest import RackMaker
from tests.lab.product import Product, smoke
from tests.lab.shares import shared

MODEL = {"hidden_size": 64, "num_layers": 2, "seq_length": 64, "vocab_size": 128}


@pytest.mark.long
def test_a_node_with_a_quarter_of_its_cpu_is_named_and_nobody_else(rack: RackMaker, tmp_path: Path) -> None:
    lab, product = rack(4), Product(tmp_path)
    wanted = smoke(stragglers="gate", iterations=26, options=MODEL, unreachable_s=60)
    inventory = lab.inventory(tmp_path / "lab.py", wanted | {"tuning": {"numa_balancing": None}})
    for _ in range(3):  # undecided is an answer, twice
        with shared(lab, {"node3": 0.125}):  # four nodes on two cores have half a core each
            ran = product.run("shakedown", "run", inventory, timeout=400)
        record = product.record()
        found = record["jobs"][-1]["stragglers"]
        named = {each["node"]: each["level"] for each in found["slow"] if each["level"] != "undecided"}
        assert named.keys() <= {"node3"}, ran.text
        if named == {"node3": "fail"}:
            break
    (gate,) = [each for each in record["gates"] if each["name"] == "no_straggler"]
    assert named == {"node3": "fail"} and gate["verdict"] == "fail" and gate["actual"] == "node3", ran.text
    assert ran.code == 1 and "fail: gate no_straggler: node3 needs" in ran.text, ran.text
    assert (found["ranks"], found["windows"], found["unknown"]) == (4, 8, ""), found
    assert schemas.problems_of(tmp_path / "runs/latest") == []
    again = product.run("shakedown", "judge", "latest", "--format", "json")
    assert again.code == 1 and gate["evidence"] in again.out
