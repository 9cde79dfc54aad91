"""Access control and read requests: which functions and devices are named, and what there is nothing to read of."""

from __future__ import annotations

from typing import Any

import pytest

from shakedown.checks import checks
from shakedown.checks.tuning import max_read_request
from shakedown.state.findings import Finding
from tests.states import desired, healthy, with_


def seen(check: Any, changes: dict[Any, Any], **site: Any) -> Finding:
    finding = check(desired(**site), with_(healthy(), changes), "n")
    assert isinstance(finding, Finding)
    return finding


@pytest.mark.parametrize(
    ("count", "named"), [(1, "on at f0"), (4, "on at f0, f1, f2, f3"), (5, "on at f0, f1, f2, f3 and 1 more")]
)
def test_four_functions_are_named_and_the_rest_counted(count: int, named: str) -> None:
    finding = seen(checks()["pcie_acs"], {"acs.enabled": [f"f{number}" for number in range(count)]})
    assert finding.verdict == "drift" and finding.evidence.endswith(named)


def test_of_functions_of_their_own_alone_read_requests_are_asked() -> None:
    virtual = {f"rdma.{index}.physical_function": "0000:ff:00.0" for index in range(1, 8)}
    virtual |= {f"rdma.{index}.max_read_request": 128 for index in range(1, 8)}
    one = seen(max_read_request, virtual)
    assert one.verdict == "ok" and one.actual == "4096"
    wrong = seen(max_read_request, virtual | {"rdma.0.max_read_request": 512})
    assert wrong.remedy is not None and wrong.remedy.text.startswith("set PCIe read requests of 4096 bytes for")
    assert "bnxt_re0 512" in wrong.evidence and "bnxt_re1" not in wrong.evidence
    later = seen(max_read_request, virtual | {"boot_unit.settings": {}})
    assert later.remedy is not None and "for bnxt_re0," in later.remedy.text


@pytest.mark.parametrize("count", [8, 0])
def test_without_such_a_function_the_reason_is_told(count: int) -> None:
    rdma = {"rdma": {"count": count}}
    soft = {f"rdma.{index}.bdf": None for index in range(8)}
    finding = seen(max_read_request, soft, **rdma)
    assert finding.verdict == "unknown" and "no PCI function of their own: bnxt_re0, bnxt_re1" in finding.evidence
    none = seen(max_read_request, {"rdma": []}, **rdma)
    assert none.verdict == ("unknown" if count else "ok")
    assert ("see rdma_count" in none.evidence) == bool(count)
