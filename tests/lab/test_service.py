"""The way back into service on real nodes: found, mended, checked, put under load, in service again.

The program that trains is small (tests/lab/isolation/torchrun): a load takes a second and no import of torch."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.lab import slurm
from tests.lab.conftest import RackMaker
from tests.lab.namespaces import Node, Rack
from tests.lab.node_spec import NodeSpec
from tests.lab.product import Product, Ran, finish, smoke, until
from tests.lab.slurm import Cluster

PROGRAM = Path(__file__).parent / "isolation" / "torchrun"
VENV = "/root/small"
NUMA = "/proc/sys/kernel/numa_balancing"
GPU_JOB = "class/kfd/kfd/proc/4242/vram_1"  # as amdgpu shows a process on a GPU


@pytest.fixture
def product(tmp_path: Path) -> Product:
    return Product(tmp_path)


def equip(lab: Rack) -> Rack:
    for node in lab:
        node.exec(f"mkdir -p {VENV}/bin && printf '#!/bin/sh\\necho shakedown lacks:\\n' > {VENV}/bin/python")
        node.exec(f"chmod 755 {VENV}/bin/python")
        node.write(f"{VENV}/bin/torchrun", PROGRAM.read_text())
        node.exec(f"chmod 755 {VENV}/bin/torchrun; echo 0 > {NUMA}")
        node.write("/etc/sysctl.d/90-lab.conf", "kernel.numa_balancing = 0\n")
    return lab


def inventory(lab: Rack, product: Product, **changes: Any) -> Path:
    site = smoke(venv=VENV, unreachable_s=60) | {"tuning": {"numa_balancing": False}, **changes}
    return lab.inventory(product.folder / "lab.py", site)


def service(product: Product, *arguments: str | Path) -> tuple[Ran, dict[str, dict[str, Any]]]:
    """Where each node stands."""
    ran = product.run("shakedown", "service", *arguments, "--format", "json", timeout=300)
    assert ran.out, ran.text
    return ran, {node["node"]: node for node in json.loads(ran.out)["nodes"]}


def numa(node: Node) -> str:
    return node.exec(f"cat {NUMA}").stdout.strip()


def steps_of(node: dict[str, Any]) -> list[tuple[str, str, str]]:
    return [(step["done"], step["rung"], step["outcome"]) for step in node["steps"]]


INTERRUPTED = [("begun", "mend", ""), ("ended", "mend", "interrupted")]
MENDED = [("begun", "mend", ""), ("ended", "mend", "done"), ("begun", "load", ""), ("ended", "load", "done")]


def interrupted_at(product: Product, site: Path, command: str) -> str:
    """What `--repair` says that gets SIGINT once it has begun this command."""
    process = product.start("shakedown", "service", site, "--repair")
    assert process.stderr is not None
    said = []
    for line in process.stderr:
        said.append(line)
        if line.startswith(f"$ {command}"):
            break
    process.send_signal(signal.SIGINT)
    code, text = finish(process, 120)
    assert code == 130, "".join(said) + text
    return "".join(said) + text


def test_this_machine_is_in_service_only_after_rung_check_and_load(product: Product) -> None:
    """Of one node there is no other that could bear witness; nothing is changed on it."""
    bin_folder = product.folder / "small/bin"
    bin_folder.mkdir(parents=True)
    for name, text in (("python", "#!/bin/sh\necho shakedown lacks:\n"), ("torchrun", PROGRAM.read_text())):
        (bin_folder / name).write_text(text)
        (bin_folder / name).chmod(0o755)
    asked = smoke(venv=str(bin_folder.parent))
    before, site = product.folder / "before.py", product.folder / "site.py"
    drifts = {"numa_balancing": None, "sysctl": {"kernel.hostname": "no-machine-has-this"}}
    before.write_text(f"nodes = (['@local'], {asked | {'tuning': drifts}!r})\n")
    site.write_text(f"nodes = (['@local'], {asked | {'tuning': {'numa_balancing': None}}!r})\n")
    assert product.drift(before, "--ledger").code == 3
    text = interrupted_at(product, site, "shakedown")  # Ctrl-C in the middle of the first rung
    ran, nodes = service(product, site, "--repair")
    assert ran.code == 0, ran.text
    node = nodes["@local"]
    assert (node["standing"], steps_of(node)) == ("in service", [*INTERRUPTED, *MENDED]), text + ran.text
    assert (node["passed"]["load"], node["passed"]["others"]) == ("smoke", 0)


@pytest.mark.long
def test_a_node_that_drifted_is_left_with_its_job_and_later_mended_and_loaded(
    rack: RackMaker, product: Product
) -> None:
    lab = equip(rack([NodeSpec(), NodeSpec(sys={GPU_JOB: "1024\n"})]))
    site = inventory(lab, product)
    node = lab["node2"]
    node.exec(f"echo 1 > {NUMA}")
    ran, nodes = service(product, site, "--repair")
    assert ran.code == 3, ran.text
    assert nodes["node1"]["standing"] == "in service"
    assert (nodes["node2"]["standing"], nodes["node2"]["steps"]) == ("suspect", []), ran.text
    assert "never a node with a job: on its GPUs: ? (4242)" in nodes["node2"]["next"], ran.text
    node.exec(f"rm -r /sys/{Path(GPU_JOB).parent}")
    told = product.run("shakedown", "service", site, "--repair", "--dry")
    assert "would run: shakedown run" in told.out and "--limit node2" in told.out, told.text
    assert numa(node) == "1", "neither has changed anything"

    ran, nodes = service(product, site, "--repair")
    assert ran.code == 0, ran.text
    assert {each["standing"] for each in nodes.values()} == {"in service"}
    assert numa(node) == "0"
    assert steps_of(nodes["node2"]) == MENDED, ran.text
    assert (nodes["node2"]["passed"]["load"], nodes["node2"]["passed"]["others"]) == ("smoke", 1)
    assert nodes["node1"]["steps"] == []


@pytest.mark.long
def test_what_is_interrupted_goes_on_where_it_stopped(rack: RackMaker, product: Product) -> None:
    lab = equip(rack(2))
    site = inventory(lab, product)
    lab["node2"].exec(f"echo 1 > {NUMA}")
    process = product.start("shakedown", "service", site, "--repair")
    until(lambda: numa(lab["node2"]) == "0", 120)  # in the middle of the first rung
    second = product.run("shakedown", "service", site, "--repair")
    assert second.code == 1 and "is held" in second.err, "two at once"
    process.send_signal(signal.SIGINT)
    code, text = finish(process, 90)
    assert code == 130, text
    _, nodes = service(product, site)
    assert nodes["node2"]["standing"] == "being mended", text
    assert steps_of(nodes["node2"])[-1][2] == "interrupted", text

    text = interrupted_at(product, site, "pyinfra")  # the load: what it has begun on the nodes is gone with it
    assert not any("torchrun" in line for node in lab for line in node.processes()), text
    _, nodes = service(product, site)
    assert nodes["node2"]["standing"] == "being mended" and nodes["node1"]["steps"] == []
    assert steps_of(nodes["node2"])[-2:] == [("begun", "load", ""), ("ended", "load", "interrupted")], text
    ran, nodes = service(product, site, "--repair")
    assert ran.code == 0, ran.text
    assert nodes["node2"]["standing"] == "in service"
    assert steps_of(nodes["node2"])[-2:] == [("begun", "load", ""), ("ended", "load", "done")]


@pytest.mark.long
def test_a_node_that_does_not_answer_has_its_power_cycled_by_the_sites_command(
    rack: RackMaker, product: Product, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = equip(rack(2))
    asked = product.folder / "asked"
    script = product.folder / "bmc"
    script.write_text(f'#!/bin/sh\necho "$1 $2 $IPMI_PASSWORD" > {asked}.part && mv {asked}.part {asked}\n')
    script.chmod(0o700)
    monkeypatch.setenv("SITE_BMC", "hunter2-of-the-bmc")
    bmc = {"command": [str(script), "{node}", "cycle"], "password_env": "SITE_BMC", "password_as": "IPMI_PASSWORD"}
    allowed = {"rungs": ["mend", "power cycle"], "bmc": {**bmc, "unasked": True}, "back_s": 120}
    site = inventory(lab, product, service=allowed)
    lab["node2"].down()
    process = product.start("shakedown", "service", site, "--repair", "--format", "json")
    until(asked.exists, 300)  # once it has not answered for two minutes
    lab["node2"].up()  # what a BMC does
    code, text = finish(process, 240)
    assert asked.read_text() == "node2 cycle hunter2-of-the-bmc\n"
    _, nodes = service(product, site)
    assert (nodes["node2"]["standing"], code) == ("in service", 0), text
    assert [step["rung"] for step in nodes["node2"]["steps"]] == ["power cycle", "power cycle", "load", "load"]
    kept = [path.read_bytes() for path in (product.folder / "runs").rglob("*") if path.is_file()]
    assert not any(b"hunter2-of-the-bmc" in each for each in kept) and "hunter2-of-the-bmc" not in text


@pytest.fixture
def cluster(rack: RackMaker, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    with slurm.cluster(equip(rack(3))) as made:
        monkeypatch.setenv("SLURM_CONF", str(made.conf))
        yield made


def states(cluster: Cluster) -> dict[str, str]:
    said = cluster.command("sinfo", "--noheader", "--Node", "--format=%N %T")
    return {name: state.rstrip("*") for name, state in (line.split() for line in said.splitlines())}


@pytest.mark.long
def test_in_slurm_a_suspect_is_drained_waited_for_mended_and_resumed(cluster: Cluster, product: Product) -> None:
    lab = cluster.lab
    allowed = {"scheduler": "slurm", "drain": "yes", "at_once": 2}
    site = inventory(lab, product, service=allowed)
    cluster.command("scontrol", "update", "NodeName=node1", "State=DRAIN", "Reason=bad fan")
    lab["node2"].exec(f"echo 1 > {NUMA}")
    cluster.command("sbatch", "--nodelist=node2", "--output=/dev/null", "--wrap", "sleep 600")
    until(lambda: states(cluster)["node2"] in ("allocated", "mixed"), 60)

    ran, nodes = service(product, site, "--repair")
    assert ran.code == 1, ran.text
    assert (nodes["node1"]["standing"], nodes["node3"]["standing"]) == ("out", "in service"), ran.text
    assert "bad fan" in nodes["node1"]["why"]
    assert [step["done"] for step in nodes["node2"]["steps"]] == ["drained"], ran.text
    assert states(cluster)["node2"] == "draining" and len(cluster.jobs()) == 1, "the job goes on"
    assert numa(lab["node2"]) == "1"
    reason = cluster.command("sinfo", "--noheader", "--nodes=node2", "--format=%200E").strip()
    assert reason.startswith("shakedown:") and "numa_balancing" in reason

    cluster.command("scancel", *cluster.jobs())
    until(lambda: states(cluster)["node2"] == "drained", 60)
    ran, nodes = service(product, site, "--repair")
    assert nodes["node2"]["standing"] == "in service", ran.text
    steps = steps_of(nodes["node2"])
    assert steps.pop(steps.index(("resumed", "", ""))), ran.text  # by the end of the load, which is a run, or after it
    assert steps == [("drained", "", ""), *MENDED], ran.text
    assert [step["done"] for step in nodes["node3"]["steps"]] == ["drained", "resumed"], "it bore witness"
    until(lambda: states(cluster) == {"node1": "drained", "node2": "idle", "node3": "idle"}, 60)
    assert "bad fan" in cluster.command("sinfo", "--noheader", "--nodes=node1", "--format=%E"), "somebody else's stays"


@pytest.mark.long
def test_in_slurm_a_load_that_is_interrupted_gives_its_witness_back(cluster: Cluster, product: Product) -> None:
    lab = cluster.lab
    site = inventory(lab, product, service={"scheduler": "slurm", "drain": "yes", "at_once": 2})
    lab["node2"].exec(f"echo 1 > {NUMA}")
    text = interrupted_at(product, site, "pyinfra")
    until(lambda: states(cluster) == {"node1": "idle", "node2": "drained", "node3": "idle"}, 60)
    reason = cluster.command("sinfo", "--noheader", "--nodes=node2", "--format=%200E").strip()
    assert reason.startswith("shakedown:") and "numa_balancing" in reason, text
    _, nodes = service(product, site)
    assert nodes["node2"]["standing"] == "being mended"
    steps = steps_of(nodes["node2"])
    assert steps == [("drained", "", ""), *MENDED[:3], ("ended", "load", "interrupted")], text
    ran, nodes = service(product, site, "--repair")
    assert ran.code == 0 and nodes["node2"]["standing"] == "in service", ran.text
    until(lambda: set(states(cluster).values()) == {"idle"}, 60)


@pytest.mark.long
def test_a_run_that_names_a_node_drains_it_and_one_that_clears_it_resumes_it(
    cluster: Cluster, product: Product
) -> None:
    site = inventory(cluster.lab, product, service={"scheduler": "slurm", "drain": "yes"})
    cluster.lab["node3"].write("/root/fault", "crash 3\n")
    ran = product.run("shakedown", "run", site, timeout=200)
    assert ran.code == 1, ran.text
    found = product.record()["diagnosis"]
    named = found["origin"] if found and found["confidence"] == "certain" else []
    assert named in (["node3"], []), "nobody else"
    drained = [name for name, state in states(cluster).items() if state.startswith("drain")]
    assert drained == named, ran.text
    cluster.lab["node3"].exec("rm /root/fault")
    ran = product.run("shakedown", "run", site, timeout=200)
    assert ran.code == 0, ran.text
    until(lambda: set(states(cluster).values()) == {"idle"}, 60)
