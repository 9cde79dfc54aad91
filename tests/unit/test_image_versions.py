"""What a container prints of itself, held against the page of its image."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

import shakedown.jobs.plan
from shakedown.gates import judge_log, read_log
from shakedown.gates.judge import PARSERS
from shakedown.gates.registry import rules
from shakedown.recipes.documents import published, same_version
from shakedown.state.images import parse
from tests.plans import DIGEST, IMAGE, rack

AS_LISTED = {
    "rocm": "6.3.0",
    "pytorch": "2.7.0a0+git6374332",
    "python": "3.10.12",
    "transformer_engine": "1.11.0",
    "flash_attn": "3.0.0.post1",
    "triton": "3.1.0",
}


def gate(printed: dict[str, str], image: str | None = IMAGE) -> Any:
    lines = [f"shakedown image: {name} {version}\n" for name, version in printed.items()]
    gates = {gate.name: gate for gate in judge_log(read_log(lines), {}, image=image)}
    return gates.get("image_versions")


def test_the_components_of_the_page_are_compared_and_one_that_is_silent_is_named() -> None:
    found = gate(AS_LISTED)
    assert found.verdict == "ok" and "no container printed hipblaslt" in found.evidence
    assert set(published(parse(IMAGE)).versions) == {*AS_LISTED, "hipblaslt"}  # type: ignore[union-attr]


def test_a_node_that_stays_silent_is_named_and_is_not_taken_for_the_others() -> None:
    lines = [f"shakedown image: {name} {version}\n" for name, version in AS_LISTED.items()]
    logs: dict[str, Any] = {"n1": read_log(lines), "n2": read_log(["something else\n"]), "n3": read_log([])}
    seen = {each.name: each for each in judge_log(logs, {}, image=IMAGE)}["image_versions"]
    assert seen.verdict == "unknown" and "no version from n2, n3" in seen.evidence
    all_of_them = {name: read_log(lines) for name in logs}
    assert {each.name: each for each in judge_log(all_of_them, {}, image=IMAGE)}["image_versions"].verdict == "ok"


@pytest.mark.parametrize("component", sorted(AS_LISTED))
def test_another_version_under_the_images_tag_fails(component: str) -> None:
    found = gate(AS_LISTED | {component: "9.9.9"})
    assert found.verdict == "fail" and f"{component} 9.9.9" in found.evidence and found.remedy


def test_an_image_without_a_page_and_a_container_that_prints_nothing_are_not_judged() -> None:
    assert gate(AS_LISTED, "registry.example/own:1") is None
    assert gate({}) is None
    assert gate(AS_LISTED, None) is None
    assert gate({"rocm": "10.0.0"}, "rocm/primus:v26.7").verdict == "ok"
    assert gate({"rocm": "7.15.0"}, "rocm/primus:v26.7").verdict == "fail"


@pytest.mark.parametrize("recipe", ["llama3.1-8b-fp8", "pytorch-training"])
def test_the_tag_of_an_image_that_the_plan_pins_by_digest_leads_to_its_page(recipe: str) -> None:
    """Also where the program has a report of its own, as document 002's."""
    options = {"mode": "pretrain", "model": "Flux", "precision": "BF16"} if recipe == "pytorch-training" else {}
    plan = rack(recipe, options=options)
    assert plan.declared_image == IMAGE and plan.image == f"rocm/megatron-lm@{DIGEST}"
    (rule,) = (rule for rule in rules() if rule.name == "image_versions")
    for triton, verdict in (("3.1.0", "ok"), ("3.2.0", "fail")):
        logs = {"node01": read_log([f"shakedown image: triton {triton}\n"])}
        assert rule.outcomes(PARSERS[plan.parser].observe(logs, plan))["image_versions"].verdict == verdict


def test_every_version_on_the_page_of_document_002_is_known() -> None:
    listed = published(parse("rocm/pytorch-training:v25.3")).versions  # type: ignore[union-attr]
    assert set(listed) == {*AS_LISTED, "hipblaslt"}
    assert gate(AS_LISTED, "rocm/pytorch-training:v25.3").verdict == "ok"
    assert gate({**AS_LISTED, "triton": "3.2.0"}, "rocm/pytorch-training:v25.3").verdict == "fail"


@pytest.mark.parametrize(
    ("tag", "printed"),
    [
        ("v26.7", {"pytorch": "2.12.0+rocm10.0.0", "transformer_engine": "2.17.0+rocm10.0.0", "flash_attn": "2.8.1"}),
        ("v26.6", {"rocm": "7.15.0a20260727", "triton": "3.8.0+git4cff872c.rocm7.15.0a20260727"}),
        ("v26.2", {"python": "3.12.3", "pytorch": "2.10.0a0+git449b176"}),  # v26.3's is 2.10.0+git94c6e04
    ],
)
def test_images_of_primus_are_what_their_release_notes_list(tag: str, printed: dict[str, str]) -> None:
    assert gate(printed, f"rocm/primus:{tag}").verdict == "ok"
    assert gate(printed, "rocm/primus:v26.1").verdict == "fail"


@pytest.mark.parametrize(
    ("actual", "listed", "same"),
    [
        ("3.10.12", "3.10", True),
        ("3.1.0", "3.10", False),
        ("3.1.0", "3.1", True),
        ("6.3.0-39", "6.3.0", True),
        ("10.0.0", "1.0.0", False),
        ("7.15.0a20260701", "7.15.0", True),
        ("2.7.0a0+git637433", "2.7.0a0+gite2f9759", False),
        ("2.7.0a0+git6374332", "2.7.0a0+git637433", True),  # as rocm/pytorch-training:v25.4 prints it
        ("2.7.0a0+git637", "2.7.0a0+git637433", False),
        ("2.7.01", "2.7.0", False),
    ],
)
def test_versions_are_compared_part_by_part(actual: str, listed: str, same: bool) -> None:
    assert same_version(actual, listed) is same


@pytest.mark.skipif(Path("/opt/rocm").exists(), reason="this machine has a ROCm of its own")
def test_the_jobs_script_prints_what_python_knows_before_the_command(tmp_path: Path) -> None:
    (tmp_path / "rocm_sdk_core-10.0.0.dist-info").mkdir()
    (tmp_path / "rocm_sdk_core-10.0.0.dist-info/METADATA").write_text("Name: rocm-sdk-core\nVersion: 10.0.0\n")
    script = tmp_path / "job.sh"
    script.write_text((Path(shakedown.jobs.plan.__file__).parent / "job.sh").read_text("utf-8"), "utf-8")
    done = subprocess.run(
        ["bash", str(script), "--without-torchrun", "echo", "trains"],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )
    *printed, last = [*done.stderr.splitlines(), *done.stdout.splitlines()]
    assert last == "trains" and any(line.startswith("shakedown image: python 3.") for line in printed)
    assert "shakedown image: rocm 10.0.0" in printed, "of wheels, where there is no /opt/rocm"
