"""PyTorch training in real containers: stand-in scripts of MAD, which print what torchtitan and MAD's report say."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs import schemas
from tests.lab import git_server, images, registry
from tests.lab.cache import debian
from tests.lab.conftest import RackMaker
from tests.lab.node_spec import NodeSpec
from tests.lab.product import Product

SETUP = """#!/bin/bash
[ "$HF_TOKEN" = sesame-1207 ] || { echo "ERROR: HF_TOKEN environment variable is not set"; exit 1; }
"""
REPORT = """#!/bin/bash
while getopts "t:m:p:s:" option; do [ $option != m ] || model=$OPTARG; done
echo "[rank0]:[titan] - root - INFO - Training starts at step 1, with local batch size 4, total steps 50 (warmup 10)"
for step in $(seq 1 50); do
    loss=$(awk "BEGIN { print 12 - $step / 10 }")
    [ $step != "$(cat ../../nan_at 2>/dev/null)" ] || loss=nan
    echo "[rank0]:[titan] - root - INFO - step: $step  loss: $loss  memory: 1.00GiB(5.00%)  tps: 1,0$step  mfu: 33.06%"
done
printf 'model,performance,metric,mode\\n%s,1030.5,tok_per_s_per_gpu,pretrain\\n' "$model" > ../perf_$model.csv
"""


class Mad:
    """A repository with stand-in scripts."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        scripts = folder / "scripts/pytorch_train"
        scripts.mkdir(parents=True)
        (scripts / "pytorch_benchmark_setup.sh").write_text(SETUP)
        (scripts / "pytorch_benchmark_report.sh").write_text(REPORT)
        self.git("init", "--quiet")
        self.good = self.commit()
        (folder / "nan_at").write_text("37\n")
        self.bad = self.commit()

    def git(self, *words: str) -> str:
        identity = ["-c", "user.name=lab", "-c", "user.email=lab@example.org"]
        done = subprocess.run(["git", "-C", self.folder, *identity, *words], capture_output=True, text=True, check=True)
        return done.stdout.strip()

    def commit(self) -> str:
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", "scripts")
        return self.git("rev-parse", "HEAD")


@pytest.fixture
def mad(tmp_path: Path) -> Iterator[Mad]:
    yield Mad(tmp_path / "served/MAD")


def test_a_benchmark_is_run_gated_and_recorded(rack: RackMaker, mad: Mad, tmp_path: Path) -> None:
    lab = rack(1, NodeSpec(docker=True))
    node = lab["node1"]
    node.wait_for_docker()
    token = tmp_path / "token"
    token.write_text("sesame-1207\n")
    token.chmod(0o600)
    product = Product(tmp_path)
    address = str(lab.slot.gateway)
    packages = (Path(images.__file__).parent / "training_packages.txt").read_text().split()
    base = debian("training-base", "bookworm", packages)
    with registry.serve(lab) as store, git_server.serve(mad.folder.parent, address) as url:
        image = store.publish(images.Image("sdlab/pytorch-training", (base,)))
        benchmark: dict[str, object] = {
            "mode": "pretrain",
            "model": "Llama-3.1-70B",
            "precision": "BF16",
            "seq_length": 8192,
            "image": "pytorch",
            "url": f"{url}/MAD",
            "commit": mad.good,
            "devices": [],
            "hf_token_file": str(token),
            "expect": {"tokens_per_gpu": 1000.0},
        }

        def deploy(**changes: object) -> tuple[int, str]:
            site = {"gpu": "cpu", "images": {"pytorch": {"reference": image.tagged, "insecure": True}}}
            inventory = lab.inventory(tmp_path / "lab.py", {**site, "benchmark": benchmark | changes})
            done = product.deploy(inventory, "pytorch_training", "-y")
            return done.code, done.text

        code, said = deploy()
        assert code == 0, said
        assert "benchmark: PASSED" in said and "1,030.5 tokens/s/GPU" in said
        record = product.record()
        assert record["verdict"] == "ok" and record["nodes"][0]["exit_code"] == 0
        assert {(gate["name"], gate["node"]) for gate in record["gates"]} >= {
            ("loss_finite", "node1"),
            ("tokens_per_gpu", "node1"),
        }
        results = json.loads((tmp_path / "runs/latest/benchmark/node1.json").read_text())
        assert len(results["steps"]) == 50 and results["total_steps"] == 50
        assert schemas.problems_of(tmp_path / "runs/latest") == []
        kept = subprocess.run(["grep", "-rl", "sesame-1207", tmp_path / "runs"], capture_output=True, text=True)
        assert kept.stdout == "", "a secret is in the record"
        # The scripts end with 0 whatever became of the training.
        code, said = deploy(commit=mad.bad)
        assert code == 1 and "not finite at step 37" in said
        assert product.record()["verdict"] == "fail"
        code, said = deploy(expect={"tokens_per_gpu": 2000.0})
        assert code == 1 and "benchmark: FAILED" in said
        token.write_text("wrong\n")
        code, said = deploy()
        assert code == 1 and product.record()["nodes"][0]["exit_code"] == 1
        code, said = deploy(precision="FP8")
        assert code == 2 and "only Llama-3.1-8B supports FP8" in said
    assert node.exec("docker ps --all --quiet").stdout == ""
