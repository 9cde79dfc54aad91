"""Waivers: a known exception is a warning on its nodes or parts until its day, and nothing else is."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from shakedown import checks
from shakedown.catalogue.model import entries
from shakedown.checks import waivers
from shakedown.checks.examination import Examination, Reading, resting
from shakedown.desired.layers import HostLayers, Layer
from shakedown.desired.problems import DesiredStateError
from shakedown.report import markdown, screen
from shakedown.report.formats import Findings
from shakedown.runner.features import resolve
from shakedown.runner.waivers import accepts
from shakedown.state.findings import Finding, FixedBy, Verdict
from shakedown.state.node import NodeState
from tests import forks
from tests.states import desired, healthy, unreadable, with_

LATER = str(datetime.now(UTC).date() + timedelta(days=30))
GONE = str(datetime.now(UTC).date() - timedelta(days=1))
SLOW = {("rdma", 3, "rate_gbps"): 200.0}
GUID = "B83F:D203:0001:0003"  # of bnxt_re3 of node01


def waiver(**values: Any) -> dict[str, Any]:
    whole = {"finding": "rdma_rate", "reason": "cable ordered", "owner": "anna", "until": LATER, **values}
    return {key: value for key, value in whole.items() if value is not None}


def judged(changes: dict[Any, Any], state: NodeState | None = None, **held: dict[str, Any]) -> dict[str, Finding]:
    """Return the findings of node01 that are not ok, by name."""
    found = checks.evaluate(desired(waivers=held), with_(state or healthy(), changes), "node01")
    return {finding.name: finding for finding in found if finding.verdict != Verdict.OK}


def test_a_waived_failure_is_a_warning_that_says_who_answers_for_it_until_when() -> None:
    finding = judged(SLOW, cable=waiver(hosts=["node[01-04]"]))["rdma_rate"]
    assert finding.verdict == Verdict.WARN and finding.waiver == "cable"
    assert finding.evidence.startswith(f"waived until {LATER} by anna: cable ordered (waivers.cable)")
    assert finding.remedy is not None and finding.remedy.by == FixedBy.PERSON


def test_a_waived_drift_is_left_to_no_operation() -> None:
    changes = {"numa.balancing.running": "1"}
    assert judged(changes)["numa_balancing"].fixed_by == FixedBy.OPERATION
    after = judged(changes, old=waiver(finding="numa_balancing", hosts=["node*"]))["numa_balancing"]
    assert after.verdict == Verdict.WARN and after.fixed_by == FixedBy.PERSON


@pytest.mark.parametrize(
    "held",
    [
        waiver(hosts=["node02"]),
        waiver(hosts=["node01"], until=GONE),
        waiver(hosts=["node01"], finding="rdma_state"),
        waiver(parts=["b83f:d203:0001:0004"]),
        waiver(parts=["b83f:d203:0009:0003"]),  # replaced: no part of the node has this number
        waiver(parts=[GUID], hosts=["node02"]),
        waiver(finding=None, entry="nvme_timeout", hosts=["node01"]),
    ],
)
def test_a_waiver_of_another_thing_changes_nothing(held: dict[str, Any]) -> None:
    assert judged(SLOW, held=held)["rdma_rate"].verdict == Verdict.FAIL


def test_a_waiver_holds_through_its_last_day() -> None:
    today = str(datetime.now(UTC).date())
    assert judged(SLOW, held=waiver(hosts=["node01"], until=today))["rdma_rate"].verdict == Verdict.WARN


def test_a_part_is_waived_by_its_number_and_no_other_part_with_it() -> None:
    assert judged(SLOW, held=waiver(parts=[GUID]))["rdma_rate"].verdict == Verdict.WARN
    both = {**SLOW, ("rdma", 5, "rate_gbps"): 200.0}
    assert judged(both, held=waiver(parts=[GUID]))["rdma_rate"].verdict == Verdict.FAIL
    two = waiver(parts=[GUID, "b83f:d203:0001:0005"])
    assert judged(both, held=two)["rdma_rate"].verdict == Verdict.WARN


def test_the_number_of_the_board_stands_for_the_node() -> None:
    assert judged(SLOW, held=waiver(parts=["cn0-node01"]))["rdma_rate"].verdict == Verdict.WARN
    other = {**SLOW, ("system", "board_serial"): "CN0OTHER"}
    assert judged(other, held=waiver(parts=["cn0-node01"]))["rdma_rate"].verdict == Verdict.FAIL


def test_what_could_not_be_read_stays_unknown() -> None:
    changes = {("rdma", 3, "rate_gbps"): unreadable("failed", "ethtool")}
    assert judged(changes, held=waiver(hosts=["node01"]))["rdma_rate"].verdict == Verdict.UNKNOWN


def kernel(*messages: str) -> dict[Any, Any]:
    records = [
        {"number": n, "seconds": float(n), "priority": 3, "message": message} for n, message in enumerate(messages)
    ]
    return {("kernel_log", "records"): records}


def test_the_lines_of_a_waived_entry_do_not_fail_and_all_others_do() -> None:
    held = waiver(finding=None, entry="nvme_timeout", hosts=["node01"])
    line = "nvme nvme0: I/O 12 QID 3 timeout, aborting"
    before = judged(kernel(line))["kernel_log"]
    assert before.verdict == Verdict.FAIL
    after = judged(kernel(line), disk=held)["kernel_log"]
    assert after.verdict == Verdict.WARN and after.waiver == "disk" and "waivers.disk" in after.evidence
    other = next(entry.shows[0] for entry in entries("kernel") if entry.severity == "fatal" and not entry.level)
    more = judged(kernel(line, other), disk=held)
    assert more["kernel_log"].verdict == Verdict.FAIL and more["kernel_log"].waiver is None


@pytest.mark.parametrize(
    ("entry", "line", "grave"),
    [
        ("ata_error", "ata3: hard resetting link", "ata3.00: error: { UNC }"),
        ("raid_degraded", "md/raid1:md0: Disk failure on sdb2, disabling device.",
         "md/raid:md0: read error not correctable (sector 90412 on sdc1)."),
        ("gpu_xgmi", "amdgpu 0000:c1:00.0: amdgpu: WAFL PCS CRCErr detected",
         "amdgpu 0000:c1:00.0: amdgpu: XGMI PCS DataLossErr detected"),
    ],
)  # fmt: skip
def test_of_an_entry_that_a_site_may_accept_the_lines_of_lost_data_still_fail(
    entry: str, line: str, grave: str
) -> None:
    held = waiver(finding=None, entry=entry, hosts=["node01"])
    assert judged(kernel(line), w=held)["kernel_log"].verdict == Verdict.WARN
    assert judged(kernel(line, grave), w=held)["kernel_log"].verdict == Verdict.FAIL


def test_a_line_of_an_uncorrected_error_is_never_waived() -> None:
    held = waiver(finding=None, entry="nvme_error", hosts=["node01"])
    line = "nvme0n1: Read(0x2) @ LBA 1, 8 blocks, Unrecovered Read Error (sct 0x2 / sc 0x81) DNR"
    found = judged(kernel(line), disk=held)["kernel_log"]
    assert "nvme_error" in found.evidence and found.verdict == Verdict.FAIL


@pytest.mark.parametrize(
    ("held", "path", "words"),
    [
        (waiver(finding="gpu_count", hosts=["a"]), "finding", "stay failures"),
        (
            waiver(finding="drive_health", hosts=["a"]),
            "finding",
            "no site can accept drive_health: missing GPUs, failing drives,",
        ),
        (waiver(finding="gpu_ecc", hosts=["a"]), "finding", "stay failures"),
        (waiver(finding="images.megatron", hosts=["a"]), "finding", "stay failures"),
        (waiver(finding="provider_library", hosts=["a"]), "finding", "stay failures"),
        (waiver(finding="kernel_log", hosts=["a"]), "finding", "stay failures"),
        (waiver(finding="fleet.machine", hosts=["a"]), "finding", "stay failures"),
        (waiver(finding="fleet.*", hosts=["a"]), "finding", "the whole name"),
        (waiver(finding="rdma_rate.", hosts=["a"]), "finding", "the whole name"),
        (waiver(finding="loss_falling", hosts=["a"]), "finding", "gates cannot be waived"),
        (waiver(finding="rdma_rat", hosts=["a"]), "finding", "such as rdma_rate"),
        (waiver(finding=None, entry="memory_uncorrected", hosts=["a"]), "entry", "stay failures"),
        (waiver(finding=None, entry="nvme_timeou", hosts=["a"]), "entry", "such as nvme_timeout"),
        (waiver(hosts=["a"], until="2999-01-01"), "until", "at most 90 days ahead"),
        (waiver(hosts=["a"], until="2026-02-30"), "until", ""),
        (waiver(hosts=["a"], until=None), "until", ""),
        (waiver(hosts=["a"], owner=None), "owner", ""),
        (waiver(), "", "hosts or parts"),
        (waiver(hosts=["a"], entry="nvme_timeout"), "", "either finding or entry"),
        (waiver(hosts=["node09"]), "hosts", "hosts of the inventory"),
        (waiver(hosts=["a"], reason=" "), "reason", "words"),
        (waiver(hosts=["a"], owner=" "), "owner", "words"),
        (waiver(parts=["0000:0000:0000:0000"]), "parts", "a part's own"),
        (waiver(parts=["To Be Filled By O.E.M."]), "parts", "a part's own"),
    ],
)
def test_a_waiver_that_cannot_be_is_refused_before_connecting(held: dict[str, Any], path: str, words: str) -> None:
    layer = Layer("site", {"gpu": "mi300x", "nic": "thor2", "waivers": {"held": held}})
    with pytest.raises(DesiredStateError) as refused:
        resolve([HostLayers("a", [layer], user="root")], whole=True)
    (problem,) = refused.value.problems
    assert problem.path == "waivers.held" + (f".{path}" if path else "") and words in problem.expected


def test_every_fatal_entry_and_every_check_of_what_is_missing_or_wrong_is_refused() -> None:
    assert not [entry.name for entry in entries("kernel") if entry.severity == "fatal" and accepts(entry)]
    assert checks.not_waivable() == {
        "gpu_count", "kfd", "dri", "kfd_topology", "gpu_ecc", "gpu_bad_pages", "gpu_error_records", "images",
        "provider_library", "kernel_log", "drive_health",
    }  # fmt: skip


def fleet() -> Examination:
    states = {f"node0{n}": healthy(n) for n in range(1, 5)}
    states["node03"] = with_(states["node03"], {("system", "kernel"): "5.4.0-1-odd"})
    held = {"old_kernel": waiver(finding="fleet.kernel", hosts=["node03"]), "cable": waiver(hosts=["node01"])}
    examination = Examination({node: desired(waivers=held) for node in states})
    states["node01"] = with_(states["node01"], SLOW)
    for node, state in states.items():
        examination.keep(node, Reading(state))
    examination.judge()
    return examination


def test_findings_beside_other_nodes_are_waived_and_reports_say_what_rests_on_waivers() -> None:
    examination = fleet()
    found = {(finding.node, finding.name): finding for finding in examination.all_findings()}
    assert found["node03", "fleet.kernel"].waiver == "old_kernel"
    assert found["node01", "rdma_rate"].waiver == "cable"
    text = resting(examination.all_findings())
    assert text == "the verdicts of 2 nodes rest on 2 waivers: cable (node01), old_kernel (node03)"
    document = Findings(examination.verdict(), 4, examination.all_findings())
    assert text in markdown.markdown(document).replace("\\", "")
    lines = [str(line) for line in screen.table(replace(document, inventory="rack.py", columns=100))]
    assert "2 waived" in lines[0] and any("waived" in line and "rdma_rate" in line for line in lines[1:])
    assert all("waived" not in name for names in examination.warnings().values() for name in names)


def test_a_finding_without_a_waiver_is_written_as_before() -> None:
    without = Finding(name="x", node="n", verdict=Verdict.OK)
    assert "waiver" not in without.model_dump_json()
    assert json.loads(without.model_copy(update={"waiver": "w"}).model_dump_json())["waiver"] == "w"


def test_a_text_that_says_that_there_are_more_is_covered_by_no_part() -> None:
    (held,) = desired(waivers={"w": waiver(parts=[GUID])}).waivers.values()
    assert waivers.covers(held, healthy(), "bnxt_re3: 200 Gb/s")
    assert not waivers.covers(held, healthy(), "bnxt_re3: 200 Gb/s, and 2 more")
    assert not waivers.covers(held, healthy(), "bnxt_re31: 200 Gb/s")
    assert not waivers.covers(held, None, "bnxt_re3: 200 Gb/s")


KINDS = ("gpus", "rdma", "nvme")
NOT_READ = unreadable("failed", "timed out")


@pytest.mark.parametrize("kind", KINDS)
def test_parts_of_a_kind_that_could_not_be_read_have_no_numbers_and_the_others_keep_theirs(kind: str) -> None:
    disk = {"name": "nvme0", "bdf": "0000:e1:00.0", "model": "PM9A3", "firmware": "1", "serial": "S64H1"}
    whole = with_(healthy(), {"nvme": [disk]})
    held = {each: waivers.parts(with_(whole, {other: [] for other in KINDS if other != each})) for each in KINDS}
    assert all(held.values()) and waivers.parts(whole) == {**held["gpus"], **held["rdma"], **held["nvme"]}
    others = {name: number for each in KINDS if each != kind for name, number in held[each].items()}
    assert waivers.parts(with_(whole, {kind: NOT_READ})) == others


@pytest.mark.parametrize("place", [("gpus", 2, "serial"), ("rdma", 2, "guid")])
def test_a_part_without_a_readable_number_is_known_by_its_name_alone(place: tuple[str, int, str]) -> None:
    before, after = waivers.parts(healthy()), waivers.parts(with_(healthy(), {place: NOT_READ}))
    assert before.keys() == after.keys()
    changed = {name for name in before if before[name] != after[name]}
    assert changed and all(after[name] == "" for name in changed)


def test_the_command_lists_the_waivers_with_the_days_left(tmp_path: Path) -> None:
    soon = str(datetime.now(UTC).date() + timedelta(days=10))
    held = {"cable": waiver(hosts=["node01"]), "old": waiver(hosts=["node02"], until=GONE)}
    held["soon"] = waiver(hosts=["node02", "node03", "node04"], until=soon)
    inventory = tmp_path / "rack.py"
    names = [f"node0{number}" for number in range(1, 5)]
    inventory.write_text(f"rack = ({names!r}, {{'gpu': 'mi300x', 'nic': 'thor2', 'waivers': {held!r}}})\n")
    command = [str(Path(sys.executable).with_name("shakedown")), "waivers", str(inventory)]
    _code, shown, _err = forks.run(command, tmp_path, os.environ)
    shown = " ".join(shown.split())  # the lines of a narrow terminal are wrapped
    assert f"cable: rdma_rate on node01: until {LATER}, 30 days left" in shown
    assert f"old: rdma_rate on node02: ended on {GONE}: what it names fails again; renew it or remove it" in shown
    assert f"soon: rdma_rate on node[02-04]: until {soon}, 10 days left; renew it or remove it by then" in shown
    code, written, _err = forks.run([*command, "--format", "json"], tmp_path, os.environ)
    assert code == 0
    rows = json.loads(written)
    assert [row["name"] for row in rows["waivers"]] == ["cable", "old", "soon"]


@pytest.mark.parametrize(
    "name",
    ["gpu_ras_poison", "memory_failure", "nvme_error", "scsi_error", "device_left", "nvme_other", "gpu_sub_block",
     "ext4_error", "btrfs_error"],
)  # fmt: skip
def test_an_entry_of_lost_data_or_of_any_message_is_refused(name: str) -> None:
    (entry,) = [entry for entry in entries("kernel") if entry.name == name]
    assert not accepts(entry)


@pytest.mark.parametrize(
    "line",
    [
        "nvme0n1: I/O Cmd(0x2) @ LBA 1, 8 blocks, I/O Error (sct 0x2 / sc 0x81)",
        "Memory failure: 0x1f3a2c0: Killing python3:9041 due to hardware memory corruption",
        "nvme0: Media and data integrity error",
        "ata3.00: error: { UNC }",
        "critical medium error, dev sdb, sector 90412 op 0x0:(READ) flags 0x0 phys_seg 1 prio class 0",
        "Buffer I/O error on dev dm-3, logical block 811, lost async page write",
        "md/raid:md0: read error not correctable (sector 90412 on sdc1).",
        "amdgpu 0000:c1:00.0: amdgpu: XGMI PCS DataLossErr detected",
        "amdgpu 0000:c1:00.0: amdgpu: GFX SubBlock TCP_CACHE_RAM, Instance[1][4], DED 1",
    ],
)
def test_lines_of_lost_data_have_many_words(line: str) -> None:
    assert waivers.GRAVE.search(line)


def test_all_findings_beside_other_nodes_at_once_cannot_be_waived() -> None:
    layer = Layer("site", {"gpu": "mi300x", "nic": "thor2", "waivers": {"w": waiver(finding="fleet", hosts=["a"])}})
    with pytest.raises(DesiredStateError, match="such as fleet"):
        resolve([HostLayers("a", [layer], user="root")], whole=True)
