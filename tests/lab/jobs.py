"""One job over the nodes of a rack, as `shakedown.operations.smoke` runs it, without the rest of a deploy."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

from shakedown.evidence.diagnosis.model import Diagnosis
from shakedown.evidence.diagnosis.origin import decide
from shakedown.evidence.results import JobResult
from shakedown.jobs.launch import LaunchPlan, NodePlan
from shakedown.runs.diagnosis import signs_of
from shakedown.runs.directory import Evidence, JobRecord, RunDirectory
from tests.lab.namespaces import Node, Rack
from tests.torchrun import TINY

CHECKOUT = Path(__file__).parents[2]
SECRET = "hf_lab_secret"


def plan(
    lab: Rack,
    run_id: str,
    iterations: int,
    stall_s: float = 60,
    unreachable_s: float = 20,
    before: tuple[str, ...] = (),
    venv: str = sys.prefix,
) -> LaunchPlan:
    """The small GPT, one rank on each node; `before`: what stands before its program in the command."""
    master = str(lab.nodes[0].address)
    nodes = [
        NodePlan(
            name=node.name,
            node_rank=rank,
            ranks=1,
            address=str(node.address),
            interface=node.interface,
            command=[
                f"{venv}/bin/torchrun",
                *("--nnodes", str(len(lab.nodes)), "--node-rank", str(rank), "--nproc-per-node", "1"),
                *("--master-addr", master, "--master-port", "29511", *before),
                "{run_dir}/workload/train.py",
                *f"{TINY} --global-batch-size {4 * len(lab)}".split(),
                *("--train-iters", str(iterations)),
            ],
            environment={"GLOO_SOCKET_IFNAME": node.interface, "OMP_NUM_THREADS": "1", "PACE_S": "0.1"},
            secrets=["HF_TOKEN"],
            upload=["shakedown.jobs.workload"],
            cleanup=[["sh", "-c", "echo cleaned >> /root/cleaned"]],
        )
        for rank, node in enumerate(lab.nodes)
    ]
    return LaunchPlan(
        run_id=run_id,
        recipe="gpt_small",
        runtime="process",
        nodes=nodes,
        world_size=len(nodes),
        micro_batch=4,
        global_batch=4 * len(lab),
        seq_length=64,
        iterations=iterations,
        master_address=master,
        master_port=29511,
        start_timeout_s=120,
        stall_timeout_s=stall_s,
        timeout_s=300,
        unreachable_s=unreachable_s,
    )


class Run:
    """pyinfra with the deploy of `tests/lab/smoke`, while it runs and afterwards."""

    def __init__(self, lab: Rack, folder: Path, launch: LaunchPlan, *options: str, user: str | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.lab, self.folder, self.plan = lab, folder, launch
        (folder / "plan.json").write_text(launch.model_dump_json())
        command = [
            f"{sys.prefix}/bin/pyinfra",
            str(lab.inventory(folder / "lab.py", user=user)),
            "tests/lab/smoke/deploy.py",
            "-y",
        ]
        with (folder / "output").open("wb") as output:
            self.process = subprocess.Popen(
                [*command, *options],
                cwd=CHECKOUT,
                env={**os.environ, "SMOKE_OUT": str(folder)},
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def output(self) -> str:
        """What pyinfra has printed so far."""
        return (self.folder / "output").read_text()

    def until(self, pattern: str, timeout: float = 90) -> None:
        """Wait until the output shows it."""
        deadline = time.monotonic() + timeout
        while not re.search(pattern, self.output):
            assert self.process.poll() is None, self.output
            assert time.monotonic() < deadline, self.output
            time.sleep(0.1)

    def until_it_trains(self) -> None:
        """Wait until it is in the middle."""
        self.until(r"iteration [1-9]\d+/")

    def end(self, timeout: float = 120) -> JobResult:
        """The result, once pyinfra has ended."""
        self.process.wait(timeout)
        return JobResult.model_validate_json((self.folder / "result.json").read_text())


def rank_pid(node: Node) -> int:
    """The training process of the node's rank, as the machine numbers it: not torchrun, which came first."""
    ranks = [process for process in node.processes() if "train.py" in " ".join(process.args)]
    return max(process.pid for process in ranks)


def diagnosis(result: JobResult, lab: Rack, folder: Path) -> Diagnosis:
    """What the job died of, as its record tells it."""
    running = {node.name: node.running_at_end for node in result.nodes}
    logs = {
        node.name: [kept.model_copy(update={"path": str(Path(kept.path).relative_to(folder))}) for kept in node.kept]
        for node in result.nodes
    }
    evidence = Evidence(failures=result.failures, running=running, logs=logs)
    job = JobRecord(plan=plan(lab, result.run_id, 1))
    found = decide(signs_of(job, evidence, RunDirectory(folder)))
    assert found is not None, result
    return found


def diagnosed(result: JobResult, lab: Rack, folder: Path) -> tuple[str, str, tuple[str, ...]]:
    """The same in short: how sure, what, and on which nodes."""
    found = diagnosis(result, lab, folder)
    return found.confidence, found.name, found.origin or found.among
