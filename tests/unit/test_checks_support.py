"""Advice about the job: GPUs that are supported in part, and variables that were made for others."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from shakedown.checks import evaluate
from shakedown.checks.support import environment, image_version, support
from shakedown.recipes.recipe import families
from shakedown.state.findings import Finding, Verdict
from shakedown.state.images import parse
from tests.states import DELETED, GIB, desired, healthy, image, unreadable, with_


def told(result: Finding | Iterable[Finding] | None) -> list[Finding]:
    if result is None:
        return []
    return [result] if isinstance(result, Finding) else list(result)


SMOKE = {"recipe": "stanford-gpt", "image": "stanford"}
IMAGES = {"stanford": "rocm/stanford-megatron-lm@sha256:" + "0" * 64}


@pytest.mark.parametrize(
    ("gpu", "verdict"),
    [
        ("mi300x", Verdict.OK),
        ("mi250x", Verdict.WARN),
        ("mi210", Verdict.WARN),
        ("mi355x", Verdict.FAIL),
        ("radeon", Verdict.FAIL),
        ("cpu", Verdict.FAIL),
    ],
)
def test_the_documents_devices(gpu: str, verdict: Verdict) -> None:
    (finding,) = told(support(desired(gpu, None, smoke=SMOKE, images=IMAGES), healthy(), "node"))
    assert finding.verdict == verdict
    assert (finding.remedy is None) == (verdict == Verdict.OK)


def test_a_recipe_without_such_a_list_says_nothing() -> None:
    assert support(desired(smoke={"recipe": "gpt-small"}), healthy(), "node") is None
    assert support(desired(), healthy(), "node") is None


@pytest.mark.parametrize("variable", [("HSA_ENABLE_SDMA", "0"), ("NCCL_IB_DISABLE", "1")])
def test_a_workstations_variable_on_an_instinct_node_is_a_warning(variable: tuple[str, str]) -> None:
    name, value = variable
    smoke = {"recipe": "gpt-small", "environment": {name: value}}
    (finding,) = told(environment(desired("mi300x", smoke=smoke), healthy(), "node"))
    assert finding.name == f"environment.{name}" and finding.verdict == Verdict.WARN
    assert finding.remedy is not None and finding.remedy.operation is None
    assert not told(environment(desired("radeon", None, smoke=smoke), healthy(), "node"))
    harmless = {"recipe": "gpt-small", "environment": {name: "1" if value == "0" else "0"}}
    assert not told(environment(desired("mi300x", smoke=harmless), healthy(), "node"))


def test_the_radeon_profile_brings_the_documents_environment() -> None:
    asked = desired("radeon", None)
    assert asked.gpu.environment["HSA_ENABLE_SDMA"] == "0"
    assert asked.gpu.pci_ids == ["1002:744c", "1002:747e"]


def test_the_image_is_the_one_that_the_document_links_to() -> None:
    link = (Path(__file__).parents[1] / "data/documents/004_image.txt").read_text().splitlines()[-1]
    repository, _, rest = link.partition("/layers/")[2].partition("/images/")
    name, tag = repository.rsplit("/", 1)
    image = parse(families()["stanford"].container.image or "")
    assert (image.name, image.tag) == (f"docker.io/{name}", tag)
    assert image.digest == rest.replace("sha256-", "sha256:")


DOCUMENTED = parse(families()["stanford"].container.image or "")
WANTED = "rocm 6.3.0, pytorch 2.4.0, python 3.12, ubuntu 24.04"
ALL = {"rocm_version": "6.3.0.60300-39", "com.site.pytorch-version": "2.4.0+rocm6.3", "python.version": "3.12.9"}
ALL |= {"ubuntu.version": "24.04"}


def version_of(stored: dict[str, Any], reference: str = "site/stanford:1", engine: str = "docker") -> Finding:
    wanted = desired("mi300x", None, smoke=SMOKE, images={"stanford": reference})
    state = with_(healthy(), {"containers.images": [stored], "containers.engine": engine})
    (finding,) = told(image_version(wanted, state, "node"))
    assert finding.wanted == WANTED and finding.name == "image_version"
    assert (finding.remedy is None) == (finding.verdict == "ok")
    return finding


def test_the_documents_own_image_is_ok_by_its_digest_under_any_name() -> None:
    assert version_of(image("site/stanford:1", DOCUMENTED.digest or "")).verdict == "ok"
    mirrored = image("registry:5000/mirror/stanford:1", DOCUMENTED.digest or "")
    assert version_of(mirrored, "registry:5000/mirror/stanford:1").verdict == "ok"


@pytest.mark.parametrize(
    ("labels", "verdict", "actual", "says"),
    [
        (ALL, "ok", "rocm 6.3.0.60300-39, pytorch 2.4.0+rocm6.3, python 3.12.9, ubuntu 24.04", "labels"),
        ({}, "unknown", None, "no label names rocm, pytorch, python, ubuntu"),
        ({**ALL, "ubuntu.version": DELETED}, "unknown", None, "no label names ubuntu"),
        ({**ALL, "rocm_version": "6.4.0"}, "fail", None, "another rocm"),
        ({**ALL, "python.version": "3.120"}, "fail", None, "another python"),
        ({"rocm_version": "6.3.01"}, "fail", "rocm 6.3.01", "another rocm"),
        ({**ALL, "rocm_version": "6.3"}, "fail", None, "another rocm"),
    ],
)
def test_another_image_is_judged_by_its_labels(labels: Any, verdict: str, actual: str | None, says: str) -> None:
    kept = {key: value for key, value in labels.items() if value is not DELETED}
    finding = version_of({**image("site/stanford:1", "sha256:" + "5" * 64), "labels": kept})
    assert finding.verdict == verdict and says in finding.evidence
    assert actual is None or finding.actual == actual


def test_a_tag_that_sounds_right_proves_nothing() -> None:
    named = f"{DOCUMENTED.repository}:{DOCUMENTED.tag}"
    assert version_of(image(named, "sha256:" + "5" * 64), named).verdict == "unknown"


def test_an_image_that_is_not_there_is_unknown_and_a_recipe_that_names_no_version_is_not_asked() -> None:
    assert "see images.stanford" in version_of(image("other:1", "sha256:" + "5" * 64)).evidence
    closed = with_(healthy(), {"containers.images": unreadable("not permitted")})
    (finding,) = told(image_version(desired("mi300x", None, smoke=SMOKE, images=IMAGES), closed, "node"))
    assert finding.verdict == "unknown"
    assert image_version(desired(), healthy(), "n") is None
    mine = desired(images={"it": "rocm/x:1"}, smoke={"recipe": "llama3.1-8b-fp8", "image": "it"})
    assert image_version(mine, healthy(), "n") is None
    without = desired("mi300x", None, smoke={"recipe": "stanford-gpt"})
    assert image_version(without, healthy(), "n") is None


def test_the_versions_are_those_of_the_tag_that_the_document_links_to() -> None:
    versions, tag = families()["stanford"].container.versions, DOCUMENTED.tag or ""
    for part, version in (("rocm", "rocm"), ("ubuntu", "ubuntu"), ("python", "py"), ("pytorch", "pytorch")):
        assert f"{version}{versions[part]}" in tag


@pytest.mark.parametrize(
    ("changes", "verdicts"),
    [
        ({}, {"memory": "ok", "mpi": "ok", "rccl": "ok"}),
        ({"memory.total_bytes": int(32 * GIB * 0.9)}, {"memory": "fail"}),
        ({"memory.total_bytes": int(32 * GIB * 0.9) + 1}, {"memory": "ok"}),
        ({"software.mpi": unreadable("missing", "mpirun")}, {"mpi": "drift"}),
        ({"software.rccl": unreadable("missing", "librccl.so.1")}, {"rccl": "drift"}),
        ({"software.mpi": unreadable("not permitted", "x")}, {"mpi": "unknown"}),
        ({"software": {}}, {"mpi": "unknown", "rccl": "unknown"}),
    ],
)
def test_what_the_adaptation_guide_asks_of_the_node(changes: dict[Any, Any], verdicts: dict[str, str]) -> None:
    there = {"software": {"mpi": "Open MPI (/usr/bin/mpirun)", "rccl": "2.22.3 (/opt/rocm/lib/librccl.so.1)"}}
    state = with_(with_(healthy(), there), changes)
    found = {finding.name: finding for finding in evaluate(desired("radeon", None), state, "n")}
    assert {name: found[name].verdict for name in verdicts} == verdicts
    for name in verdicts:
        assert (found[name].fixed_by == "person") == (verdicts[name] != "ok")
    assert not {"memory", "mpi", "rccl"} & {finding.name for finding in evaluate(desired(), state, "n")}
