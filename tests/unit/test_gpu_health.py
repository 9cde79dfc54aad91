"""The health of the GPUs: what is judged how, on states; tests/unit/test_probe_smi.py reads them by AMD's package."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from shakedown import checks
from shakedown.checks import gpu_health
from shakedown.node import smi
from shakedown.node.tree import Tree, attempt
from shakedown.state.findings import Finding
from tests.states import HEALTH, desired, healthy, unreadable, with_, with_health

BDFS = [f"0000:{index + 1:02x}:00.0" for index in range(8)]
NAMES = {"gpu_bad_pages", "gpu_power_cap", "gpu_error_records", "gpu_throttled", "gpu_peers"}


def found(changes: dict[Any, Any], want: Any = None) -> dict[str, Finding]:
    findings = checks.evaluate(want or desired(), with_(with_health(healthy()), changes), "node01")
    return {finding.name: finding for finding in findings}


def test_a_healthy_node_is_ok_in_every_respect() -> None:
    findings = found({})
    assert {name: findings[name].verdict.value for name in NAMES} == dict.fromkeys(NAMES, "ok")
    assert findings["gpu_bad_pages"].actual == "0 of 128 pages" and findings["gpu_peers"].actual == "XGMI to 7"


def test_a_state_of_an_earlier_probe_says_nothing_and_nothing_is_ok() -> None:
    findings = checks.evaluate(desired(), healthy(), "node01")
    assert not NAMES & {finding.name for finding in findings}


@pytest.mark.parametrize("name", ["bad_pages", "power_cap", "error_records", "throttled"])
def test_what_a_version_does_not_offer_is_never_ok(name: str) -> None:
    gone = {f"gpus.{index}.{name}": unreadable("missing", "amdsmi: this version has no x") for index in range(8)}
    finding = found(gone)[f"gpu_{name}"]
    assert (finding.verdict, finding.actual) == ("warn", "not reported") and "this version" in finding.evidence
    for why in ("timed out", "failed", "not permitted"):
        finding = found({f"gpus.3.{name}": unreadable(why)})[f"gpu_{name}"]  # type: ignore[arg-type]
        assert finding.verdict == "unknown" and finding.remedy is not None
    assert f"gpu_{name}" not in found({"gpu_tool": unreadable("failed")}), "which gpu_tool says"


PAGES = [
    ({"retired": 3}, "ok"),
    ({"retired": 114}, "ok"),
    ({"retired": 116}, "warn"),
    ({"retired": 127, "pending": 1}, "fail"),
    ({"retired": 130}, "fail"),
    ({"pending": 1}, "warn"),
    ({"unreservable": 1}, "warn"),
    ({"retired": 1, "limit": unreadable("not permitted")}, "unknown"),
    ({"limit": unreadable("missing")}, "ok"),
    ({"retired": 1, "limit": 0}, "ok"),
]


@pytest.mark.parametrize(("pages", "verdict"), PAGES)
def test_retired_pages(pages: dict[str, Any], verdict: str) -> None:
    finding = found({"gpus.2.bad_pages": {**HEALTH["bad_pages"], **pages}})["gpu_bad_pages"]
    assert finding.verdict == verdict
    if verdict != "ok":
        assert list(finding.actual) == [BDFS[2]] and finding.remedy is not None


def test_a_capped_gpu_fails() -> None:
    capped = {"gpus.5.power_cap": {"watts": 600.0, "default_watts": 750.0, "most_watts": 750.0}}
    finding = found(capped)["gpu_power_cap"]
    assert finding.verdict == "fail" and finding.actual == {BDFS[5]: "600 of 750 W"}
    assert finding.remedy is not None and "750 W" in finding.remedy.text
    agreed = {"power_cap_w": 600}
    assert found(capped, desired(gpu={**desired().gpu.model_dump(), **agreed}))["gpu_power_cap"].verdict == "ok"
    unknown = {**capped["gpus.5.power_cap"], "default_watts": unreadable("missing")}
    assert found({"gpus.5.power_cap": unknown})["gpu_power_cap"].verdict == "warn"


def record(severity: str, *afids: int) -> dict[str, Any]:
    return {"severity": severity, "at": "2026/11/20 10:11:12", "afids": list(afids)}


RECORDS = [
    (record("fatal", 20), "fail", "exchanged"),
    (record("fatal", 27), "fail", "run the job again"),
    (record("fatal", 18), "fail", "screws"),
    (record("fatal", 19), "warn", "at the next service"),
    (record("fatal", 19, 20), "fail", "exchanged"),
    (record("fatal", 3), "fail", "power-cycle"),
    (record("fatal", 99), "fail", "no name"),
    (record("fatal"), "fail", "no name"),
    (record("non_fatal_corrected", 30), "fail", "exchanged"),
    (record("non_fatal_uncorrected", 22), "warn", "run the job again"),
    (record("non_fatal_corrected", 33), "warn", "no name"),
    (record("unused", 24), "warn", ""),
    (record("non_fatal_corrected", 24), "ok", ""),
    ({**record("non_fatal_corrected"), "afids": unreadable("failed", "malformed")}, "ok", ""),
    ({**record("fatal"), "afids": unreadable("failed", "malformed")}, "fail", "no name"),
]


@pytest.mark.parametrize(("entry", "verdict", "words"), RECORDS)
def test_error_records(entry: dict[str, Any], verdict: str, words: str) -> None:
    finding = found({"gpus.1.error_records": [record("non_fatal_corrected", 29), entry]})["gpu_error_records"]
    assert finding.verdict == verdict
    if verdict != "ok":
        assert list(finding.actual) == [BDFS[1]] and finding.remedy is not None and words in finding.remedy.text


@pytest.mark.parametrize("driver", ["30.30.1", "30.40.0", "6.16.13", "6.18.2"])
def test_a_driver_that_reports_fatal_records_of_healthy_gpus_needs_another_sign(driver: str) -> None:
    """https://github.com/ROCm/device-metrics-exporter/issues/506."""
    fatal = {"gpus.1.error_records": [record("fatal", 30)]}
    new = {**fatal, "gpus.1.driver": driver}
    finding = found(new)["gpu_error_records"]
    assert finding.verdict == "warn" and "no other sign" in finding.actual[BDFS[1]]
    assert found({**new, "gpus.1.ecc_uncorrectable": 1})["gpu_error_records"].verdict == "fail"
    pages = {**HEALTH["bad_pages"], "retired": 1}
    assert found({**new, "gpus.1.bad_pages": pages})["gpu_error_records"].verdict == "fail"
    for older in ("30.30", "6.16.6", "6.12.12"):
        assert found({**fatal, "gpus.1.driver": older})["gpu_error_records"].verdict == "fail"
    other = {**new, "gpus.1.pci_id": "1002:75a3"}
    assert found(other)["gpu_error_records"].verdict == "fail", "of another model no such report is known"


OUTPUTS = tomllib.loads((Path(__file__).parents[1] / "data/machines/afid.toml").read_text())["output"]
SEVERITIES = {"FATAL": "fatal", "CORRECTED": "non_fatal_corrected", "UNCORRECTED": "non_fatal_uncorrected"}


class Decoder:
    """AMD's package with a decoder that gives what a real one printed."""

    def __init__(self, afid: int) -> None:
        self.afid = afid

    def amdsmi_get_afids_from_cper(self, records: list[dict[str, Any]]) -> tuple[list[int], int]:
        assert all(0 <= byte < 256 for byte in records[0]["bytes"]), "7.0.2 gives them with a sign"
        return [self.afid], 1


@pytest.mark.parametrize("output", OUTPUTS, ids=lambda output: str(output["text"]))
def test_records_of_real_machines(output: dict[str, Any]) -> None:
    records = []
    for afid, severity in (pair.split(":") for pair in output["text"].split(",")):
        raw = {"bytes": [67, 80, -1, -128], "size": 4}
        opened: Any = smi.Gpus(Tree("/"), Decoder(int(afid)), (26, 0, 2), {})
        afids = attempt(smi._afids, opened, raw)
        assert afids == [int(afid)] if int(afid) < 35 else afids["unreadable"] == "malformed"
        records.append({**record(SEVERITIES[severity]), "afids": afids})
    changes = {"gpus.0.error_records": records, "gpus.0.driver": output.get("driver", "6.12.12")}
    assert found(changes)["gpu_error_records"].verdict == output["verdict"]


def test_a_limited_gpu_without_a_job_is_advice() -> None:
    finding = found({"gpus.0.throttled": ["prochot", "hbm_thermal"]})["gpu_throttled"]
    assert finding.verdict == "warn" and finding.actual == {BDFS[0]: "prochot, hbm_thermal"}


def test_a_gpu_that_is_reached_by_pcie_or_by_slow_links() -> None:
    by_pcie = found({("gpus", 0, "peers", BDFS[3], "kind"): "PCIe"})["gpu_peers"]
    assert by_pcie.verdict == "fail" and by_pcie.actual == {BDFS[0]: f"{BDFS[3]} by PCIe"}
    slow = found({("gpus", 0, "peers", BDFS[3], "gts"): 16})["gpu_peers"]
    assert slow.verdict == "warn" and slow.actual == {BDFS[0]: f"{BDFS[3]} at 16 GT/s"}


def test_the_blocks_and_the_processes_of_the_library_are_named() -> None:
    block = {"XGMI_WAFL": {"correctable": 9, "uncorrectable": 1, "deferred": 0}}
    finding = found({"gpus.2.ecc_blocks": block, "gpus.2.ecc_uncorrectable": 1})["gpu_ecc"]
    assert f"{BDFS[2]} XGMI_WAFL: 1 uncorrected, 9 corrected, 0 deferred" in finding.evidence
    finding = found({"gpus.2.processes": [{"pid": 77, "name": "python3", "vram_bytes": 1 << 30}]})["gpu_idle"]
    assert finding.verdict == "fail" and finding.actual == {"77": "python3"}


def test_every_event_has_an_action() -> None:
    knowledge = json.loads((Path(gpu_health.__file__).parent / "afid.json").read_text())
    assert list(knowledge["events"]) == [str(number) for number in range(1, 35)], "all of AMD's table"
    for _, kind, action in knowledge["events"].values():
        assert kind in ("fatal", "works", "uncorrected", "corrected", "unread") and knowledge["actions"][action]
