"""The main job in containers: one pinned image everywhere, a job across the nodes, nothing of anybody else touched."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from shakedown.jobs.launch import CONTAINER_LABEL
from tests.lab import card, images, namespaces, registry
from tests.lab.conftest import RackMaker
from tests.lab.namespaces import Node, Rack
from tests.lab.node_spec import NodeSpec
from tests.lab.product import PROJECT, Product, finish, ours, until_gone
from tests.lab.registry import Reference, Registry

INVENTORY = PROJECT / "inventories/lab.py"
Running = Callable[..., "subprocess.Popen[str]"]
END_S = 240
"""For a job that has to come to its end, on a busy machine."""
IN_TIME = {"elapsed_time_per_iteration": 1500}
"""Milliseconds; an iteration takes 200 on a quiet machine and 500 on one with many others."""
LLAMA = {
    "recipe": "llama3.1-8b-bf16",
    "steady": False,  # other work takes turns on the cores
    "options": {"MODEL_SIZE": 8, "TP": 1, "MBS": 2, "BS": 8, "SEQ_LENGTH": 128},
    "devices": [],
    "iterations": 8,
}


@pytest.fixture(scope="module")
def lab() -> Iterator[Rack]:
    """Two nodes with engines of their own for all tests of this file, which `inventories/lab.py` is about: the image is
    large, and pulled once."""
    with namespaces.rack(2, NodeSpec(docker=True)) as rack, pytest.MonkeyPatch.context() as environment:
        environment.setenv("SHAKEDOWN_LAB", str(rack.slot.folder))
        yield rack


def publish(lab: Rack, store: Registry) -> Reference:
    """Put the training image into the registry and on the rack's card."""
    image = store.publish(images.training())
    card.write(lab.slot.folder, {"nodes": lab}, image)
    return image


@pytest.fixture
def image(lab: Rack) -> Iterator[Reference]:
    with registry.serve(lab) as store:
        yield publish(lab, store)


@pytest.fixture
def product(tmp_path: Path) -> Product:
    return Product(tmp_path)


def smoke(**changes: object) -> list[str]:
    """Options of pyinfra that change the smoke run."""
    return ["--data", f"smoke={json.dumps(changes)}"] if changes else []


def containers(node: Node) -> list[str]:
    """Names of all containers, running or not."""
    return node.exec("docker ps --all --format '{{.Names}}'").stdout.split()


def test_a_rack_pulls_one_digest_trains_in_containers_and_leaves_the_others_alone(lab: Rack, product: Product) -> None:
    with registry.serve(lab) as store:
        image, foreign = publish(lab, store), store.publish(images.tiny())
        for node in lab:
            node.exec(f"docker run --detach --name somebodys {foreign} sleep 3600")
            node.exec(f"docker create --label io.shakedown.version=1 --name stopped {foreign} true")
            node.exec(f"docker run --label {CONTAINER_LABEL}=20250101T000000-000000 --name lost {foreign} true")
        ran = product.deploy(INVENTORY, "megatron", "-y", timeout=400)
    assert ran.code == 0, ran.text
    record = product.record()
    assert record["verdict"] == "ok"
    assert record["plan"]["image"] == f"{image.address}/{image.name}@{image.digest}"
    assert record["plan"]["runtime"] == "container" and record["plan"]["world_size"] == 2
    assert {gate["verdict"] for gate in record["gates"]} == {"ok"}
    assert len(record["iterations"]) == 20
    assert [node["changes"] for node in record["nodes"]] == [["numa_balancing", "images.training"]] * 2
    for node in lab:
        assert image.digest in node.exec("docker images --digests --format '{{.Digest}}'").stdout.split()
        assert ours(node) == [] and sorted(containers(node)) == ["somebodys", "stopped"]
        assert node.exec("docker inspect --format '{{.State.Running}}' somebodys").stdout == "true\n"
        assert not node.exec("ls /root/.cache/shakedown/runs", check=False).stdout.strip()
        node.exec("docker rm --force somebodys stopped")

    # The registry is gone now: what is there is not asked for again, by another recipe either. The stand-in's
    # train_llama3.sh trains the small GPT: what is shown is the recipe, its variables and its log.
    ran = product.deploy(INVENTORY, "megatron", "-y", *smoke(**LLAMA))
    assert ran.code == 0, ran.text
    assert "nothing to change" in ran.err
    record = product.record()
    assert [node["changes"] for node in record["nodes"]] == [[]] * 2
    assert [len(record["iterations"]), record["plan"]["seq_length"], record["plan"]["global_batch"]] == [8, 128, 8]
    assert {gate["verdict"] for gate in record["gates"]} == {"ok"}
    logs = [product.folder / "runs/latest" / name for name in record["nodes"][1]["logs"]]
    assert any(log.name == "output_perf.log" and "iteration        8/       8" in log.read_text() for log in logs)
    assert all(ours(node) == [] for node in lab)


def test_the_image_brings_what_those_of_the_field_bring(lab: Rack, image: Reference) -> None:
    """An entry point of its own, which has to be cleared, and a provider library for RDMA beside Debian's."""
    run = "docker run --rm"
    assert "has not been cleared" in lab["node1"].exec(f"{run} {image} bash -c true").stdout
    libraries = lab["node1"].exec(f"{run} --entrypoint '' {image} sh -c 'ls /usr/lib/*/libibverbs'").stdout
    assert "libbnxt_re-rdmav34.so" in libraries


def leader_log(node: Node, product: Product) -> str:
    """What the newest run's job has printed on a node by now."""
    latest = product.folder / "runs/latest"
    if not latest.exists():
        return ""
    return node.exec(f"cat /root/.cache/shakedown/runs/{latest.resolve().name}/leader.log", check=False).stdout


@pytest.fixture
def running(lab: Rack, image: Reference, product: Product) -> Iterator[Running]:
    """Starts the deploy in the background and returns when iterations are being printed."""
    started: list[subprocess.Popen[str]] = []

    def start(**changes: object) -> subprocess.Popen[str]:
        process = product.start("pyinfra", INVENTORY, PROJECT / "deploy/megatron.py", "-y", *smoke(**changes))
        started.append(process)
        deadline = time.monotonic() + 400
        while "iteration  " not in leader_log(lab["node2"], product):
            assert time.monotonic() < deadline and process.poll() is None, "no iteration was printed"
            time.sleep(0.2)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def failed_run(product: Product, text: str) -> dict[str, Any]:
    """The gate that says why a run that was stopped is no pass."""
    record = product.record()
    assert record["verdict"] == "fail"
    gates = {gate["name"]: gate for gate in record["gates"]}
    assert "ran_to_its_end" in gates, text
    assert gates["ran_to_its_end"]["verdict"] == "fail"
    return dict(gates["ran_to_its_end"])


def test_a_rank_killed_in_its_container_ends_the_job_and_all_its_containers(
    lab: Rack, running: Running, product: Product
) -> None:
    process = running(iterations=2000)
    first, last = lab
    (container,) = ours(first)
    ranks = first.exec(f"docker top {container} -eo pid,args | grep train.py | grep -v torchrun").stdout
    first.exec(f"kill -9 {ranks.split()[0]}")
    until_gone(first, 20)
    until_gone(last, 20)
    code, text = finish(process, END_S)
    assert code == 1, text
    assert first.name in failed_run(product, text)["evidence"]
    logs = [product.folder / "runs/latest" / node["logs"][0] for node in product.record()["nodes"]]
    assert all(log.stat().st_size for log in logs), "every node's log is kept"
    assert all(node.processes() == [] for node in lab)


def test_a_node_cut_off_the_network_in_mid_run_ends_its_own_part(lab: Rack, running: Running, product: Product) -> None:
    process = running(iterations=2000, unreachable_s=10)
    first, last = lab
    last.cut()
    try:
        until_gone(first, 90)
        until_gone(last, 90)  # nobody can tell it to: its watchdog does, while the cable is still out
        code, text = finish(process, END_S)
    finally:
        last.heal()
    assert code == 1, text
    assert last.name in failed_run(product, text)["evidence"]
    deadline = time.monotonic() + 60  # of the node's own watchdog, which tidies up alone
    while any(node.processes() for node in lab):
        assert time.monotonic() < deadline, [node.processes() for node in lab]
        time.sleep(0.5)


def test_a_node_that_reboots_in_mid_run_is_no_pass_and_trains_again(
    lab: Rack, running: Running, product: Product
) -> None:
    process = running(iterations=2000)
    first, last = lab
    last.down()
    last.up()
    until_gone(first, 90)
    code, text = finish(process, END_S)
    assert code == 1, text
    failed_run(product, text)
    gates = {gate["name"]: gate for gate in product.record()["gates"]}
    assert gates["ran_to_its_end"]["verdict"] == "fail"
    ended = gates["exit_codes"]  # a node has none where it ended by the reboot or was stopped for it
    assert ended["verdict"] != "ok" and last.name in ended["evidence"], ended
    assert last.exec("docker ps --quiet").stdout == "", "the engine starts nothing of ours at boot"
    code, text = finish(running(iterations=8, expect=IN_TIME), END_S)
    assert code == 0, text
    record = product.record()
    assert "elapsed_time_per_iteration" in [gate["name"] for gate in record["gates"]], "nothing slows it down: in time"
    assert [node["changes"] for node in record["nodes"]] == [[], []], "what was set is kept over the reboot"
    assert all(ours(node) == [] for node in lab), "what the reboot left is removed"


def test_a_node_that_is_slowed_down_fails_the_figure_that_the_site_expects(
    lab: Rack, running: Running, product: Product
) -> None:
    process = running(iterations=8, expect=IN_TIME)
    slow = lab["node2"]
    slow.exec(f"docker update --cpus 0.04 {' '.join(ours(slow))}")
    deadline = time.monotonic() + 120
    while "iteration        8/" not in leader_log(slow, product):
        assert time.monotonic() < deadline, "the last iteration was not printed"
        time.sleep(0.2)
    slow.exec(f"docker update --cpus 1 {' '.join(ours(slow))}")  # python's way out would take it half a minute
    code, text = finish(process, END_S)
    assert code == 1, text
    record = product.record()
    gates = {gate["name"]: gate for gate in record["gates"]}
    (wrong,) = [gate for gate in gates.values() if gate["verdict"] != "ok"]
    assert wrong["name"] == "elapsed_time_per_iteration" and wrong["verdict"] == "fail"
    assert len(record["iterations"]) == 8, "slow is not stalled"
    assert all(ours(node) == [] for node in lab)


def test_a_node_with_another_digest_under_the_tag_is_the_odd_one_out(rack: RackMaker, product: Product) -> None:
    lab = rack(3, NodeSpec(docker=True))
    with registry.serve(lab) as store:
        held = store.publish(images.tiny(note="first"), tag="v1")
        for name in ("node1", "node3"):
            lab[name].exec(f"docker pull --quiet {held.tagged}")
        moved = store.publish(images.tiny(note="second"), tag="v1")
        lab["node2"].exec(f"docker pull --quiet {moved.tagged}")
    assert held.tagged == moved.tagged and held.digest != moved.digest
    inventory = lab.inventory(product.folder / "lab.py", {"gpu": "cpu", "images": {"tiny": moved.tagged}})
    ran = product.drift(inventory)
    assert ran.code == 1, ran.text
    (odd,) = [finding for finding in product.findings(inventory) if finding["name"] == "fleet.image.tiny"]
    assert (odd["node"], odd["verdict"]) == ("node2", "fail")
    assert (odd["wanted"], odd["actual"]) == (held.digest, moved.digest)
    assert "node2" in ran.out and moved.digest[:19] in ran.out
