"""The odd one out: which nodes of a group differ from the others, and in what."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shakedown.checks.fleet import outliers
from shakedown.findings import Finding, Verdict
from tests.states import DELETED, desired, healthy, image, unreadable, with_

NAME = "rocm/megatron-lm:v25.5_py310"
ONE, OTHER = "sha256:" + "a" * 64, "sha256:" + "b" * 64


def compare(
    count: int,
    changes: Mapping[int, dict[Any, Any]],
    groups: Mapping[str, str] | None = None,
    offsets: Mapping[str, tuple[float, float]] | None = None,
) -> list[Finding]:
    """Findings other than ok over `count` nodes, of which some (by number, from 1) are changed."""
    names = {f"node{number:02d}": number for number in range(1, count + 1)}
    states = {name: with_(healthy(number), changes.get(number, {})) for name, number in names.items()}
    wanted = desired(images={"megatron": NAME})
    findings = outliers(states, groups or dict.fromkeys(names, "rack7"), dict.fromkeys(names, wanted), offsets)
    return [finding for finding in findings if finding.verdict is not Verdict.OK]


def test_equal_nodes_say_what_was_compared() -> None:
    names = ["node01", "node02"]
    found = outliers({n: healthy() for n in names}, dict.fromkeys(names, "rack7"), dict.fromkeys(names, desired()))
    assert [(f.node, f.verdict) for f in found] == [("node01", "ok"), ("node02", "ok")]
    for subject in (
        "kernel",
        "rocm",
        "gpu_driver",
        "gpu_firmware.smc",
        "nic_firmware",
        "bios",
        "provider_library.bnxt_re",
    ):
        assert subject in found[0].evidence


def test_one_node_alone_is_compared_with_nobody() -> None:
    assert outliers({"node01": healthy()}, {"node01": "rack7"}, {}) == []


def test_a_minority_is_found_on_its_own_nodes_with_both_values() -> None:
    (finding,) = compare(4, {3: {"system.kernel": "6.8.0"}})
    assert (finding.node, finding.name, finding.verdict) == ("node03", "fleet.kernel", "fail")
    assert finding.wanted == "5.15.0-131-generic" and finding.actual == "6.8.0"
    assert "5.15.0-131-generic: node01, node02, node04" in finding.evidence and "6.8.0: node03" in finding.evidence


def test_two_against_two_makes_suspects_of_all() -> None:
    changed = {"rocm_version": "6.3.0"}
    found = compare(4, {1: changed, 2: changed})
    assert sorted(f.node for f in found) == ["node01", "node02", "node03", "node04"]
    assert all("6.3.0: node01, node02" in f.evidence and "6.4.1: node03, node04" in f.evidence for f in found)
    assert all("no majority" in str(f.wanted) for f in found)


def test_the_most_frequent_of_three_values_is_the_measure() -> None:
    found = compare(4, {1: {"system.bios_version": "2.0"}, 2: {"system.bios_version": "2.1"}})
    assert [(f.node, f.wanted) for f in found] == [("node01", "2.4.4"), ("node02", "2.4.4")]


def test_nodes_of_different_groups_are_not_compared() -> None:
    groups = {"node01": "a", "node02": "a", "node03": "b", "node04": "b"}
    changed = {"system.product": "another"}
    assert compare(4, {3: changed, 4: changed}, groups) == []


def test_one_gpu_with_other_firmware_makes_its_node_the_odd_one() -> None:
    (finding,) = compare(3, {2: {"gpus.5.firmware": {"smc": "85.99", "vbios": "113-M3000100-103"}}})
    assert finding.name == "fleet.gpu_firmware.smc" and finding.actual == "85.121.0, 85.99"


def test_library_and_image_digests_are_compared() -> None:
    changes = {number: {"containers.images": [image(NAME, OTHER if number == 2 else ONE)]} for number in (1, 2, 3)} | {
        3: {"containers.images": [image(NAME, ONE)], "verbs.providers.0.sha256": "ee" * 32}
    }
    found = {f.name: (f.node, f.actual) for f in compare(3, changes)}
    assert found == {
        "fleet.image.megatron": ("node02", OTHER),
        "fleet.provider_library.bnxt_re": ("node03", "ee" * 32),
    }


def test_a_node_that_has_not_pulled_yet_is_not_odd() -> None:
    assert compare(3, {1: {"containers.images": [image(NAME, ONE)]}}) == []


def test_what_is_unreadable_on_one_node_alone_is_unknown_there() -> None:
    (finding,) = compare(3, {2: {"system.bios_version": unreadable("not permitted")}})
    assert (finding.node, finding.verdict) == ("node02", "unknown") and "node01, node03" in finding.evidence


def test_nodes_without_a_nic_need_no_libibverbs() -> None:
    bare = {"rdma": [], "verbs.providers": []}
    states = {
        "node01": with_(healthy(1), bare),
        "node02": with_(healthy(2), {**bare, "verbs.abi": unreadable("missing")}),
    }
    wanted = desired("cpu", None)
    found = outliers(states, dict.fromkeys(states, "rack7"), dict.fromkeys(states, wanted))
    assert [finding.verdict for finding in found] == [Verdict.OK] * 2 and "libibverbs" not in found[0].evidence


def test_firmware_that_could_not_be_read_on_one_node_is_unknown_there() -> None:
    unread = {f"gpus.{index}.firmware": unreadable("timed out", "amdsmi") for index in range(8)}
    (finding,) = compare(3, {2: unread})
    assert (finding.node, finding.name, finding.verdict) == ("node02", "fleet.gpu_firmware", "unknown")


def test_what_is_unreadable_everywhere_says_nothing() -> None:
    unread = {"system.bios_version": unreadable("missing")}
    assert compare(3, {1: unread, 2: unread, 3: unread}) == []


def test_the_number_of_gpus_is_not_mistaken_for_their_firmware() -> None:
    assert compare(3, {2: {"gpus.7": DELETED}}) == []


def test_clocks_are_judged_by_their_spread() -> None:
    def suspects(*offsets: float, error: float = 0.1) -> list[str]:
        clocks = {f"node{number:02d}": (offset, error) for number, offset in enumerate(offsets, start=1)}
        return [f.node for f in compare(len(offsets), {}, offsets=clocks) if f.verdict == verdict]

    verdict = "fail"

    assert suspects(0.0, 29.0, 1.0) == []
    assert suspects(0.1, 40.0, 0.2) == ["node02"]
    assert suspects(0.0, 40.0) == ["node01", "node02"]
    assert suspects(500.0, 500.1, 500.2) == []
    assert suspects(0.1, 40.0, 0.2, error=30.0) == [], "a slow exchange is no wrong clock"
    verdict = "unknown"
    assert suspects(0.1, 40.0, 0.2, error=30.0) == ["node02"], "and no right one"


def test_the_limit_of_the_clocks_itself_is_within_it() -> None:
    def suspects(*offsets: float, error: float) -> dict[str, str]:
        clocks = {f"node{number:02d}": (offset, error) for number, offset in enumerate(offsets, start=1)}
        found = compare(len(offsets), {}, offsets=clocks)
        return {f.node: str(f.verdict) for f in found if f.name == "fleet.clock_skew" and f.verdict != "ok"}

    assert suspects(0.0, 15.0, 40.0, error=0.125) == {"node03": "fail"}
    assert suspects(0.0, 20.0, 35.5, error=0.5) == {"node01": "fail", "node03": "unknown"}


def test_a_node_with_devices_that_nobody_asked_for_is_compared_in_its_libibverbs() -> None:
    wanted = desired(nic=None)
    states = {
        f"node{number:02d}": with_(healthy(number), {"verbs.abi": 34 if number < 3 else 59}) for number in (1, 2, 3)
    }
    found = outliers(states, dict.fromkeys(states, "rack7"), dict.fromkeys(states, wanted))
    assert [(f.node, f.name) for f in found if f.verdict != Verdict.OK] == [("node03", "fleet.libibverbs")]
