"""/dev/kfd, /dev/dri and /dev/infiniband: what is found when one thing is wrong."""

from __future__ import annotations

from typing import Any

import pytest

from shakedown.checks.devices import dri, infiniband, kfd
from shakedown.state.findings import Finding
from tests.states import DELETED, bare, desired, healthy, unreadable, with_

DESIRED = desired()
NO_AMDGPU = {"modules.loaded": ["ib_uverbs"], "devices.kfd": unreadable("missing", "/dev/kfd")}


def seen(check: Any, changes: dict[Any, Any]) -> Finding:
    finding = check(DESIRED, with_(healthy(), changes), "node01")
    assert isinstance(finding, Finding)
    return finding


@pytest.mark.parametrize("check", [kfd, dri, infiniband])
def test_a_healthy_node_is_ok(check: Any) -> None:
    assert seen(check, {}).verdict == "ok"


@pytest.mark.parametrize("check", [kfd, dri, infiniband])
def test_nothing_is_asked_of_a_node_that_should_have_no_gpus_and_no_rdma(check: Any) -> None:
    assert check(desired("cpu", nic=None), bare(), "node01") is None


@pytest.mark.parametrize("without", [{"modules": []}, {"count": 0}])
def test_render_nodes_are_asked_of_gpus_with_a_driver_only(without: dict[str, Any]) -> None:
    wanted = DESIRED.model_copy(update={"gpu": DESIRED.gpu.model_copy(update=without)})
    assert dri(wanted, healthy(), "node01") is None


def test_an_unloaded_driver_is_drift_that_loading_it_mends() -> None:
    finding = seen(kfd, NO_AMDGPU)
    assert finding.verdict == "drift" and finding.remedy is not None
    assert finding.remedy.operation == "devices.kfd" and finding.remedy.arguments["modules"] == ["amdgpu"]
    assert "not loaded: amdgpu" in finding.evidence


def test_a_blacklisted_driver_is_named_as_such() -> None:
    assert "blacklisted: amdgpu" in seen(kfd, {**NO_AMDGPU, "modules.blacklisted": ["amdgpu"]}).evidence


def test_no_kfd_although_the_driver_is_loaded_is_nothing_that_loading_mends() -> None:
    finding = seen(kfd, {"devices.kfd": unreadable("missing")})
    assert finding.verdict == "fail" and finding.remedy is not None and finding.remedy.operation is None
    assert "there is no /dev/kfd" in str(finding)
    unanswered = seen(kfd, {"devices.kfd_major": unreadable("missing")})
    assert unanswered.verdict == "fail" and "no driver is behind it" in str(unanswered)


@pytest.mark.parametrize("change", [{"devices.kfd.major": 1}, {"devices.kfd.kind": "other"}])
def test_another_file_in_the_place_of_kfd_fails(change: dict[Any, Any]) -> None:
    finding = seen(kfd, change)
    assert finding.verdict == "fail" and "major 234" in finding.evidence


@pytest.mark.parametrize("change", [{"devices.kfd.mode": "0600"}, {"devices.kfd.group": "root"}])
def test_wrong_mode_or_group_is_drift_that_the_operation_mends(change: dict[Any, Any]) -> None:
    finding = seen(kfd, change)
    assert finding.verdict == "drift" and finding.remedy is not None and finding.remedy.operation == "devices.kfd"


def test_a_wider_mode_than_wanted_is_right() -> None:
    assert seen(kfd, {"devices.kfd.mode": "0666"}).verdict == "ok"


def test_a_user_outside_the_group_is_told_to_join_it() -> None:
    outside = {"devices.kfd.openable": False, "account.groups": ["users"], "account.at_login": ["users"]}
    finding = seen(kfd, outside)
    assert finding.verdict == "drift" and finding.remedy is not None and finding.remedy.operation == "tuning.groups"
    assert finding.remedy.arguments == {"user": "root", "groups": ["render"]}
    assert seen(kfd, outside | {"account.at_login": ["render"]}).pending == "login pending"


def test_a_user_in_the_group_who_still_cannot_open_it_is_beyond_us() -> None:
    finding = seen(kfd, {"devices.kfd.openable": False})
    assert finding.verdict == "fail" and finding.remedy is not None and "cgroup" in finding.remedy.text


@pytest.mark.parametrize(
    "change",
    [
        {"devices.kfd": unreadable("not permitted")},
        {"devices.kfd_major": unreadable("malformed")},
        {"devices.kfd.openable": unreadable("timed out")},
    ],
)
def test_what_could_not_be_read_of_kfd_is_unknown(change: dict[Any, Any]) -> None:
    assert seen(kfd, change).verdict == "unknown"


def test_fewer_render_nodes_than_gpus_fail_with_the_driver_loaded() -> None:
    finding = seen(dri, {"devices.dri.7": DELETED})
    assert finding.verdict == "fail" and finding.actual == "7 render nodes"


def test_a_card_is_not_a_render_node() -> None:
    assert seen(dri, {"devices.dri.7.path": "/dev/dri/card7"}).verdict == "fail"


def test_a_render_node_of_another_group_is_named() -> None:
    finding = seen(dri, {"devices.dri.2.group": "root"})
    assert finding.verdict == "drift" and finding.actual == {"/dev/dri/renderD130": "0660 root"}


def test_missing_rdma_cm_is_drift_while_its_module_is_not_loaded() -> None:
    gone = {"devices.infiniband.0": DELETED}
    finding = seen(infiniband, {**gone, "modules.loaded": ["amdgpu", "ib_uverbs", "ib_umad"]})
    assert finding.verdict == "drift" and "not loaded: rdma_ucm" in finding.evidence
    assert seen(infiniband, gone).verdict == "fail"


def test_a_device_without_its_uverbs_is_found() -> None:
    finding = seen(infiniband, {"devices.infiniband.1": DELETED})
    assert finding.verdict == "fail" and "7 uverbs" in str(finding.actual)


def test_a_builtin_module_is_loaded() -> None:
    change = {"devices.infiniband.0": DELETED, "modules.loaded": ["amdgpu"], "modules.builtin": ["rdma_ucm"]}
    assert seen(infiniband, change).verdict == "fail"
    no_list = {"modules.loaded": unreadable("missing"), "modules.builtin": ["rdma_ucm"]}  # a kernel without modules
    assert seen(infiniband, change | no_list).verdict == "fail"


def test_umad_is_for_root_and_need_not_be_opened() -> None:
    change = {"devices.infiniband.9.openable": False, "devices.infiniband.9.mode": "0600"}
    assert seen(infiniband, change).verdict == "ok"


def test_uverbs_that_the_user_cannot_open_is_drift() -> None:
    assert seen(infiniband, {"devices.infiniband.1.mode": "0600"}).verdict == "drift"


def test_an_unreadable_folder_is_unknown() -> None:
    assert seen(infiniband, {"devices.infiniband": unreadable("timed out")}).verdict == "unknown"
    assert seen(dri, {"devices.dri": unreadable("timed out")}).verdict == "unknown"
