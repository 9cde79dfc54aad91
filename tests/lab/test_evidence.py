"""What a run over two nodes leaves as evidence: samples and kernel log of each, and an archive that is judged alike."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest

from shakedown.evidence.telemetry import samples
from shakedown.evidence.telemetry.kernel import read as read_kernel
from tests.lab.conftest import RackMaker
from tests.lab.namespaces import Node, Rack
from tests.lab.node_spec import NodeSpec
from tests.lab.product import SLEEPY, WITHOUT_TORCH, Product, finish, smoke, until_it_trains

SAID = "shakedown-lab: said while the job ran"


@pytest.fixture
def product(tmp_path: Path) -> Product:
    return Product(tmp_path)


@pytest.fixture
def lab(rack: RackMaker) -> Rack:
    return rack(2, NodeSpec(files=WITHOUT_TORCH))


def sampling(node: Node) -> bool:
    return any("sampler" in " ".join(process.args) for process in node.processes())


def test_a_run_keeps_what_its_nodes_did_and_can_be_sent(lab: Rack, product: Product) -> None:
    for node in lab:
        node.exec("mknod /dev/kmsg c 1 11")  # which a node of the lab has not by itself
    inventory = lab.inventory(product.folder / "lab.py", smoke(**SLEEPY | {"iterations": 40}, telemetry_s=0.5))
    with product.start("shakedown", "run", inventory) as process:
        until_it_trains(lab.nodes)
        assert all(map(sampling, lab))
        with Path("/dev/kmsg").open("w") as log:
            log.write(f"<6>{SAID}\n")
        code, output = finish(process, 180)
    assert code == 0, output
    assert not any(map(sampling, lab))

    run = (product.folder / "runs/latest").resolve()
    record = product.record()
    (job,) = record["jobs"]
    for node in lab:
        series = samples.read([(run / "logs" / node.name / "telemetry.jsonl").read_bytes()])
        assert series.incomplete == "" and len(series.times) >= 3
        kernel = read_kernel([(run / "logs" / node.name / "kernel.log").read_bytes()])
        assert kernel.incomplete == kernel.unreadable == ""
        assert any(SAID in line for line in kernel.lines)
        found = job["telemetry"][node.name]
        assert found["window"] == "steady iterations" and found["samples"] >= 1
        assert found["channels"]["cpu/busy_s"]["max"] > 0
        assert found["channels"]["net/*/tx_bytes"]["max"] > 0, "the interface that the job uses"
    shown = product.run("shakedown", "report", "latest").out
    # The words stand on lines of their own where the figures beside them are wide.
    assert {"telemetry", "steady", "iterations"} <= set(shown.split()), shown

    judged = product.run("shakedown", "judge", "latest", "--format", "json")
    archive = product.folder / "run.tar.gz"
    made = product.run("shakedown", "bundle", "latest", "--output", archive, "--pseudonyms")
    assert made.code == 0, made.text
    again = product.run("shakedown", "judge", archive, "--format", "json")
    assert (again.code, verdicts(again.out)) == (judged.code, verdicts(judged.out)), again.text
    assert next(line for line in made.out.splitlines() if line.startswith("manifest:"))[-64:] in again.out
    text = everything(archive)
    for node in lab:
        assert node.name not in text and str(node.address) not in text
    assert "host-001" in text


def verdicts(document: str) -> list[tuple[str, str]]:
    return [(gate["name"], gate["verdict"]) for gate in json.loads(document)["gates"]]


def everything(archive: Path) -> str:
    """All names and all contents."""
    with tarfile.open(archive) as tar:
        found = [(member.name, tar.extractfile(member)) for member in tar]
        return "\n".join(f"{name}\n{file.read().decode()}" for name, file in found if file)
