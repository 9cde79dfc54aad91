"""perftest between machines with kernels of their own, over software RDMA devices: the trial as sites start it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.docs import schemas
from tests.lab.node_spec import NodeSpec
from tests.lab.product import Product
from tests.lab.rails import DEVICES, RDMA, laid
from tests.lab.vms import vms

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("virtual machines 1")]

PYTHON = "mkdir -p /opt/python/bin; ln -sf /usr/bin/python3 /opt/python/bin/python"
FIGURES = {"ib_write_bw", "ib_read_lat"}


def test_perftest_measures_every_pair_over_its_rail_and_ends_what_it_started(tmp_path: Path) -> None:
    """Of three nodes six cells can be compared; how they come out on busy cores is nobody's to know."""
    product = Product(tmp_path)
    wanted: dict[str, Any] = {
        "gpu": "cpu",
        "nic": "thor2",
        "rdma": RDMA,
        "smoke": {"recipe": "gpt-small", "venv": "/opt/python"},
        "trials": {"repetitions": 1, "limit_s": 120},
    }
    with vms(3, NodeSpec(user="ops", sudo=True)) as lab, laid(lab):
        for vm in lab:
            vm.exec(PYTHON)
        inventory = lab.inventory(tmp_path / "lab.py", wanted)
        ran = product.run("shakedown", "trials", inventory, "--only", "perftest", timeout=1500)
        record = product.record()
        assert "3 rounds of pairs" in ran.text, ran.text
        cells = {
            (each["node"], each["part"], each["figure"], each["rail"])
            for each in record["trials"]["readings"]
            if each["state"] == "ok" and each["value"] > 0
        }
        pairs = [(f"vm{a + 1}", f"{a}>{b}") for a in range(3) for b in range(3) if a != b]
        assert cells == {(node, part, figure, "rail0") for node, part in pairs for figure in FIGURES}, ran.text
        assert {each["figure"] for each in record["trials"]["matrices"]} == FIGURES
        plans = record["jobs"][0]["plan"]["nodes"]
        assert {plan["name"]: plan["hca"] for plan in plans} == {name: [device] for name, device in DEVICES.items()}
        assert all("MEETING_SECRET=(secret" in plan["files"]["meeting"] for plan in plans)
        assert schemas.problems_of(product.folder / "runs/latest") == []
        for vm in lab:
            assert vm.processes() == [] and not FIGURES & set(vm.exec("ps -e -o comm").stdout.split())
