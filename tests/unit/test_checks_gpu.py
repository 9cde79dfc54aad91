"""The GPU checks: which verdict, naming what."""

from __future__ import annotations

from typing import Any

import pytest

from shakedown.checks import checks
from shakedown.checks.gpu import parse_version
from shakedown.desired.models import DesiredState
from shakedown.state.findings import Finding, Verdict
from shakedown.state.node import Why
from tests.states import DELETED, GIB, bare, desired, gpu, healthy, unreadable, with_

ALL = [
    checks()[name]
    for name in (
        "gpu_count",
        "gpu_model",
        "gpu_partition",
        "gpu_link",
        "gpu_xgmi",
        "gpu_ecc",
        "gpu_pcie_replays",
        "gpu_tool",
        "gpu_idle",
        "kfd_topology",
        "rocm_version",
    )
]


def found(changes: dict[Any, Any], state: Any = None, want: DesiredState | None = None) -> dict[str, Finding]:
    """All findings by name."""
    findings: dict[str, Finding] = {}
    for check in ALL:
        result: Any = check(want or desired(), with_(state or healthy(), changes), "node01")
        for finding in [] if result is None else [result] if isinstance(result, Finding) else result:
            findings[finding.name] = finding
    return findings


def verdicts(changes: dict[Any, Any], **kwargs: Any) -> dict[str, Verdict]:
    """The verdicts that are not ok."""
    return {name: x.verdict for name, x in found(changes, **kwargs).items() if x.verdict is not Verdict.OK}


def test_a_healthy_node_is_ok_in_every_respect() -> None:
    findings = found({})
    assert len(findings) == 16
    assert all(finding.verdict == "ok" for finding in findings.values())


def test_a_node_without_gpus_that_should_have_none_is_asked_nothing_more() -> None:
    assert {name: f.verdict for name, f in found({}, bare(), desired("cpu", nic=None)).items()} == {"gpu_count": "ok"}


def test_the_cpu_profile_on_instinct_gpus_says_which_profile_to_set() -> None:
    finding = found({}, want=desired("cpu", nic=None))["gpu_count"]
    assert finding.verdict == "fail" and finding.remedy is not None
    assert 'gpu="mi300x"' in finding.remedy.text and finding.actual == 8


def test_a_display_adapter_is_no_reason_to_refuse_the_cpu_profile() -> None:
    vga = {**gpu(0), "pci_id": "1002:73bf"}
    assert not verdicts({"gpus": [vga]}, state=bare(), want=desired("cpu", nic=None))


def test_a_missing_gpu_fails_and_the_others_are_named() -> None:
    finding = found({"gpus.3": DELETED})["gpu_count"]
    assert finding.verdict == "fail" and finding.actual == 7 and "0000:04:00.0" not in finding.evidence


def test_no_gpu_with_the_driver_up_fails_once_and_what_was_asked_of_it_was_not_seen() -> None:
    findings = found({"gpus": [], "kfd.gpu_nodes": 0})
    assert findings["gpu_count"].verdict == "fail"
    assert "no GPU on the PCI bus; the driver is up" in findings["gpu_count"].evidence
    for name in ("gpu_model", "gpu_model.vram", "gpu_partition.compute", "gpu_link.speed", "gpu_xgmi", "gpu_ecc"):
        assert findings[name].verdict == "unknown" and "see gpu_count" in findings[name].evidence


@pytest.mark.parametrize(
    ("change", "name", "verdict", "named"),
    [
        ({"gpus.2.pci_id": "1002:74a5"}, "gpu_model", "fail", {"0000:03:00.0": "1002:74a5"}),
        ({"gpus.2.vram_bytes": 168 * GIB}, "gpu_model.vram", "fail", {"0000:03:00.0": 168 * GIB}),
        ({"gpus.0.compute_partition": "CPX"}, "gpu_partition.compute", "drift", {"0000:01:00.0": "CPX"}),
        ({"gpus.0.memory_partition": "NPS4"}, "gpu_partition.memory", "drift", {"0000:01:00.0": "NPS4"}),
        ({"gpus.7.link.width": 8}, "gpu_link.width", "fail", {"0000:08:00.0": 8}),
        ({"gpus.7.link.speed_gts": 16.0}, "gpu_link.speed", "fail", {"0000:08:00.0": 16.0}),
        ({"gpus.1.ecc_uncorrectable": 2}, "gpu_ecc", "fail", {"0000:02:00.0": 2}),
        (
            {"gpu_processes": [{"pid": 4242, "name": "python3", "vram_bytes": GIB}]},
            "gpu_idle",
            "fail",
            {"4242": "python3"},
        ),
        ({"gpus.7.link.width": 63}, "gpu_link.width", "fail", {"0000:08:00.0": 63}),
        ({"gpus.3.vram_used_bytes": 150 * GIB}, "gpu_idle.vram", "fail", {"0000:04:00.0": 150 * GIB}),
        ({"gpus.3.vram_used_bytes": 2 * GIB}, "gpu_idle.vram", "fail", {"0000:04:00.0": 2 * GIB}),
        ({"gpus.4.ecc_correctable": 100_000}, "gpu_ecc.corrected", "warn", {"0000:05:00.0": 100_000}),
        ({"gpus.4.ecc_correctable": 1}, "gpu_ecc.corrected", "warn", {"0000:05:00.0": 1}),
        ({"gpus.5.pcie_replays": 1_000_000}, "gpu_pcie_replays", "warn", {"0000:06:00.0": 1_000_000}),
        ({"kfd.gpu_nodes": 7}, "kfd_topology", "fail", 7),
        ({"rocm_version": "6.2.4"}, "rocm_version", "fail", "6.2.4"),
        ({"rocm_version": unreadable("missing")}, "rocm_version", "fail", "none installed"),
    ],
)
def test_one_fault_is_one_finding_that_names_it(change: dict[Any, Any], name: str, verdict: str, named: Any) -> None:
    assert verdicts(change) == {name: verdict}
    finding = found(change)[name]
    assert finding.actual == named
    assert finding.remedy is not None


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"gpus.2.vram_bytes": unreadable("failed")}, "gpu_model.vram"),
        ({"gpus.2.compute_partition": unreadable("timed out")}, "gpu_partition.compute"),
        ({"gpus.2.ecc_uncorrectable": unreadable("not permitted")}, "gpu_ecc"),
        ({"gpus.2.link.width": unreadable("malformed")}, "gpu_link.width"),
        ({"gpu_processes": unreadable("not permitted")}, "gpu_idle"),
        ({"gpus.2.vram_used_bytes": unreadable("failed")}, "gpu_idle.vram"),
        ({"gpus.2.ecc_correctable": unreadable("failed")}, "gpu_ecc.corrected"),
        ({"gpus.2.pcie_replays": unreadable("failed")}, "gpu_pcie_replays"),
        ({"kfd.gpu_nodes": unreadable("missing")}, "kfd_topology"),
        ({"rocm_version": "unknown build"}, "rocm_version"),
        ({"rocm_version": unreadable("malformed")}, "rocm_version"),
    ],
)
def test_what_could_not_be_read_is_unknown(change: dict[Any, Any], name: str) -> None:
    assert verdicts(change) == {name: "unknown"}


def test_a_wrong_gpu_is_a_fail_although_another_could_not_be_read() -> None:
    change = {"gpus.2.ecc_uncorrectable": unreadable("failed"), "gpus.3.ecc_uncorrectable": 1}
    assert verdicts(change) == {"gpu_ecc": "fail"}


def test_a_gpu_with_a_link_down_is_named() -> None:
    finding = found({"gpus.2.xgmi_links": 6})["gpu_xgmi"]
    assert (finding.verdict, finding.wanted, finding.actual) == ("fail", 7, {"0000:03:00.0": 6})


def test_links_are_asked_of_a_library_that_tells_of_them() -> None:
    old = {f"gpus.{index}.xgmi_links": unreadable("missing") for index in range(8)}
    finding = found(old)["gpu_xgmi"]
    assert (finding.verdict, finding.actual, finding.fixed_by) == ("drift", "not reported", "person")
    assert "25.2.0" in finding.evidence, "before ROCm 6.4 the library knows nothing of them"
    assert verdicts({"gpus.2.xgmi_links": unreadable("missing")}) == {"gpu_xgmi": "unknown"}
    assert verdicts({"gpus.2.xgmi_links": unreadable("failed")}) == {"gpu_xgmi": "unknown"}
    silent = {f"gpus.{index}.xgmi_links": unreadable("timed out") for index in range(8)}
    assert verdicts(silent | {"gpu_tool": unreadable("timed out")}) == {
        "gpu_tool": "unknown",
        "gpu_xgmi": "unknown",
    }


def test_unreadable_gpus_are_unknown_everywhere() -> None:
    assert set(verdicts({"gpus": unreadable("timed out")}).values()) == {"unknown"}


def test_the_partition_is_mended_by_an_operation_that_jobs_notice() -> None:
    remedy = found({"gpus.0.memory_partition": "NPS4"})["gpu_partition.memory"].remedy
    assert remedy is not None and remedy.operation == "devices.gpu_partition"
    assert remedy.arguments == {"memory": "NPS1"} and remedy.risk == "disruptive"


def test_partitioned_gpus_may_be_more_nodes_than_gpus() -> None:
    whole = desired()
    cpx = whole.model_copy(update={"gpu": whole.gpu.model_copy(update={"compute_partition": "CPX"})})
    verdicts = {
        gpus: checks()["kfd_topology"](
            cpx, with_(healthy(), {"kfd.gpu_nodes": 8 * gpus, "kfd.gpus": gpus}), "n"
        ).verdict  # type: ignore[union-attr]
        for gpus in (7, 8, 9)
    }
    assert verdicts == {7: "fail", 8: "ok", 9: "fail"}


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("6.4.1", (6, 4, 1)),
        ("6.4.1-83", (6, 4, 1)),
        ("7.0.0.70000-17~22.04", (7, 0, 0)),
        ("6.10", (6, 10, 0)),
        ("n/a", None),
        ("", None),
    ],
)
def test_versions_are_compared_by_number(text: str, version: tuple[int, ...] | None) -> None:
    assert parse_version(text) == version


def test_6_10_is_newer_than_6_3() -> None:
    assert not verdicts({"rocm_version": "6.10.0"})


@pytest.mark.parametrize("why", ["timed out", "failed", "missing"])
def test_a_library_that_does_not_answer_is_unknown_although_the_driver_s_files_answer(why: Why) -> None:
    finding = found({"gpu_tool": unreadable(why, "amdsmi: no answer")})["gpu_tool"]
    assert finding.verdict == "unknown" and "no answer" in finding.evidence
