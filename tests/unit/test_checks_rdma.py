"""The RDMA checks: which verdict, naming which device."""

from __future__ import annotations

from typing import Any

import pytest

from shakedown.checks import checks
from shakedown.state.findings import Finding, Verdict
from tests.states import DELETED, bare, desired, healthy, unreadable, with_

ALL = [
    checks()[name]
    for name in (
        "rdma_count",
        "rdma_state",
        "rdma_rate",
        "rdma_link",
        "rdma_gid",
        "rdma_firmware",
    )
]
SETTINGS = desired()


def found(changes: dict[Any, Any], want: Any = SETTINGS) -> dict[str, Finding]:
    findings: dict[str, Finding] = {}
    for check in ALL:
        result: Any = check(want, with_(healthy(), changes), "node01")
        for finding in [] if result is None else [result] if isinstance(result, Finding) else result:
            findings[finding.name] = finding
    return findings


def verdicts(changes: dict[Any, Any]) -> dict[str, Verdict]:
    return {name: x.verdict for name, x in found(changes).items() if x.verdict is not Verdict.OK}


def test_a_healthy_node_is_ok_and_its_gid_index_is_told() -> None:
    findings = found({})
    assert len(findings) == 8
    assert findings["rdma_count"].evidence == ", ".join(f"bnxt_re{index}" for index in range(8))
    assert all(finding.verdict == "ok" for finding in findings.values())
    assert findings["rdma_gid"].actual == "index 3" and findings["rdma_gid"].evidence == ""


def test_a_node_that_should_have_no_rdma_is_asked_nothing() -> None:
    want = desired("cpu", nic=None)
    assert not [r for check in ALL if (r := check(want, bare(), "n")) not in (None, [])]


@pytest.mark.parametrize(
    ("change", "name", "named"),
    [
        ({"rdma.3.state": "DOWN"}, "rdma_state", {"bnxt_re3": "DOWN"}),
        ({"rdma.3.phys_state": "Disabled"}, "rdma_state.link", {"bnxt_re3": "Disabled"}),
        ({"rdma.5.rate_gbps": 200.0}, "rdma_rate", {"bnxt_re5": 200.0}),
        ({"rdma.0.link.width": 8}, "rdma_link.width", {"bnxt_re0": 8}),
        ({"rdma.0.link.speed_gts": 16.0}, "rdma_link.speed", {"bnxt_re0": 16.0}),
        ({"rdma.6.firmware": "230.0.1.0"}, "rdma_firmware", {"bnxt_re6": "230.0.1.0"}),
        ({"rdma.2": DELETED}, "rdma_count", 7),
        ({"rdma.2.vendor": "15b3"}, "rdma_count", 7),
        ({"rdma.1.gids": []}, "rdma_gid", {"bnxt_re1": "none"}),
        ({"interfaces.2.ipv4": []}, "rdma_gid", {"bnxt_re1": "none"}),
        ({"rdma.1.gids.3.type": "IB/RoCE v1"}, "rdma_gid", {"bnxt_re1": "none"}),
    ],
)
def test_one_fault_is_one_finding_that_names_the_device(change: dict[Any, Any], name: str, named: Any) -> None:
    assert verdicts(change) == {name: "fail"}
    finding = found(change)[name]
    assert finding.actual == named and finding.remedy is not None


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"rdma.3.state": unreadable("malformed")}, "rdma_state"),
        ({"rdma.3.rate_gbps": unreadable("missing")}, "rdma_rate"),
        ({"rdma.3.firmware": unreadable("missing")}, "rdma_firmware"),
        ({"rdma.3.gids": unreadable("timed out")}, "rdma_gid"),
        ({"interfaces": unreadable("timed out")}, "rdma_gid"),
    ],
)
def test_what_could_not_be_read_is_unknown(change: dict[Any, Any], name: str) -> None:
    assert verdicts(change) == {name: "unknown"}


def test_no_device_at_all_fails_once_and_what_was_asked_of_it_was_not_seen() -> None:
    findings = found({"rdma": []})
    assert set(findings) == set(found({}))
    assert {name for name, finding in findings.items() if finding.verdict == "fail"} == {"rdma_count"}
    others = [finding for name, finding in findings.items() if name != "rdma_count"]
    assert all(finding.verdict == "unknown" and "see rdma_count" in finding.evidence for finding in others)


def test_with_no_device_wanted_and_none_there_nothing_is_unknown() -> None:
    none = desired(rdma={"count": 0})
    assert all(finding.verdict == "ok" for finding in found({"rdma": []}, none).values())
    assert found({"rdma": []}, none)["rdma_rate"].actual == "none wanted"


def test_an_index_that_differs_from_the_published_one_is_told_and_right() -> None:
    change = {f"rdma.{index}.gids": with_(healthy(), {}).model_dump()["rdma"][index]["gids"][3:] for index in range(8)}
    for rows in change.values():
        rows[0]["index"] = 1
    finding = found(change)["rdma_gid"]
    assert finding.verdict == "ok" and finding.actual == "index 1"
    assert "published settings for this family say 3" in finding.evidence


def test_devices_of_one_node_with_different_indices_are_told_and_right() -> None:
    finding = found({"rdma.4.gids.3.index": 9})["rdma_gid"]
    assert finding.verdict == "ok" and "bnxt_re4 9" in finding.evidence
    assert finding.actual["bnxt_re4"] == "index 9" and finding.actual["bnxt_re0"] == "index 3"


def test_a_software_device_has_no_pcie_link_to_judge() -> None:
    alone = {f"rdma.{index}.link": None for index in range(8)}
    assert verdicts(alone) == {"rdma_link.speed": "unknown", "rdma_link.width": "unknown"}
    assert "nothing of the kind on bnxt_re0" in found(alone)["rdma_link.width"].evidence


@pytest.mark.parametrize("also", [{}, {"rdma.3.bdf": None}, {"rdma.3.bdf": None, "rdma.3.vendor": None}])
def test_one_nic_without_a_pcie_link_beside_seven_with_one_fails(also: dict[Any, Any]) -> None:
    change = {"rdma.3.link": None, **also}
    assert verdicts(change) == {"rdma_link.speed": "fail", "rdma_link.width": "fail"}
    assert found(change)["rdma_link.width"].actual == {"bnxt_re3": 0}


def test_a_nic_that_has_left_the_bus_has_no_63_lanes() -> None:
    assert verdicts({"rdma.3.link.width": 63}) == {"rdma_link.width": "fail"}


def test_a_device_of_another_vendor_is_not_judged_as_one_of_the_family() -> None:
    assert "bnxt_re2" not in found({"rdma.2.vendor": "15b3", "rdma.2.state": "DOWN"})["rdma_state"].evidence
    assert verdicts({"rdma.2.vendor": "15b3", "rdma.2.state": "DOWN"}) == {"rdma_count": "fail"}


def test_the_count_names_what_is_there_and_what_is_not_counted() -> None:
    foreign = found({"rdma.2.vendor": "15b3"})["rdma_count"]
    assert "not counted for the family thor2: bnxt_re2" in foreign.evidence and "bnxt_re1" in foreign.evidence
    none = found({"rdma": []})["rdma_count"]
    assert none.evidence == "no device of the family in /sys/class/infiniband"
    assert found({"rdma": []})["rdma_state"].evidence == (
        "there is no RDMA device of the family thor2 to judge: see rdma_count"
    )
