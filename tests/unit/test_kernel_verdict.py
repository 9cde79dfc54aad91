"""What the kernel's log means for a node and for a run: priorities, links, what is new, and what a node sends."""

from __future__ import annotations

import json
from typing import Any

import pytest

from shakedown.agent import program
from shakedown.catalogue import entries
from shakedown.catalogue.kernel import compiled, matcher
from shakedown.catalogue.lines import read
from shakedown.checks.kernel import kernel_log, own_lines
from shakedown.desired.models import DesiredState
from shakedown.evidence.diagnosis.signs import of_match
from shakedown.evidence.telemetry.kernel import KernelWindow
from shakedown.evidence.telemetry.kernel import kernel_log as kernel_matches
from shakedown.evidence.telemetry.kernel import read as read_window
from shakedown.gates.judgement import watched_counters
from shakedown.gates.nodes import no_kernel_fault
from shakedown.gates.observed import NodeWatch
from shakedown.node.kernel_log import FIRST, KEPT, LAST, Record, candidates, form
from shakedown.node.kernel_verdict import Matcher, judge
from shakedown.state.findings import Finding, Verdict
from shakedown.transport import bundle
from tests.docs.kernel_words import words
from tests.gates import judged
from tests.states import desired, healthy, unreadable, with_

STRANGE = "frobnicator 0000:7a:00.0: cannot spin up: -5"
CORRECTED = "EDAC MC4: 1 CE on mc#4csrow#1channel#2 (csrow:1 channel:2 page:0x1b7a20 offset:0x600 grain:64)"
OTHER = "amdgpu 0000:05:00.0: amdgpu: frobnicating the ring failed (-22)"  # of a general entry
RESET = "amdgpu 0000:05:00.0: amdgpu: GPU reset begin!"


def record(message: str, priority: int = 3, number: int = 7) -> dict[str, Any]:
    return {"number": number, "priority": priority, "seconds": 1.5, "message": message}


def seen(
    *records: dict[str, Any], changes: dict[str, Any] | None = None, wanted: DesiredState | None = None
) -> Finding:
    state = with_(healthy(), {"kernel_log": {"records": list(records)}, **(changes or {})})
    found = kernel_log(wanted or desired(), state, "node01")
    assert isinstance(found, Finding)
    return found


@pytest.mark.parametrize(
    ("message", "priority", "verdict"),
    [
        (STRANGE, 0, "fail"),
        (STRANGE, 2, "fail"),
        (STRANGE, 3, "warn"),
        (STRANGE, 4, "ok"),
        (RESET, 6, "fail"),
        ("EDAC MC0: 0 UE page, 0 CE", 6, "ok"),
        ("amdgpu 0000:05:00.0: amdgpu: 0 uncorrectable hardware errors detected in umc block", 6, "ok"),
        ("mce: CPU0: Thermal monitoring enabled (TM1)", 6, "ok"),
        ("RIP: 0010:amdgpu_vm_bo_update+0x134/0x7b0 [amdgpu]", 2, "ok"),
        (OTHER, 2, "fail"),
        (OTHER, 3, "warn"),
        ("Memory cgroup out of memory: Killed process 904 (python) total-vm:1kB, anon-rss:1kB", 3, "ok"),
    ],
)
def test_the_priority_decides_what_no_entry_names(message: str, priority: int, verdict: str) -> None:
    finding = seen(record(message, priority))
    assert finding.verdict == verdict
    assert (message in finding.evidence) is (verdict != "ok" or "cgroup" in message)


def test_a_line_that_no_entry_names_is_quoted_and_has_a_remedy() -> None:
    finding = seen(record(STRANGE, 2), record(RESET, 3, 9))
    assert finding.actual == "2 lines of a fault" and finding.remedy is not None
    assert STRANGE in finding.evidence and f"gpu_reset: {RESET}" in finding.evidence


def test_many_kinds_of_line_are_counted() -> None:
    finding = seen(*(record(f"part{'x' * n}: gone", 2, n) for n in range(5)))
    assert finding.evidence.endswith("and 2 more kinds of line") and finding.actual == "5 lines of a fault"


def test_a_log_that_may_not_be_read_is_unknown() -> None:
    finding = kernel_log(desired(), with_(healthy(), {"kernel_log": {"records": unreadable("not permitted")}}), "a")
    assert isinstance(finding, Finding) and finding.verdict == "unknown"
    assert kernel_log(desired("cpu", nic=None), healthy(), "a") is None


def down(name: str, driver: str = "bnxt_en", bdf: str = "0000:06:00.0") -> str:
    return f"{driver} {bdf} {name}: NIC Link is Down"


def test_only_a_link_of_the_fabric_counts_and_only_while_it_is_down() -> None:
    device = healthy().rdma[0]  # type: ignore[index]
    name = str(device.netdev)
    dead = {"rdma.0.state": "DOWN", "interfaces": []}
    assert seen(record(down(name), 4), changes=dead).verdict == "fail"
    assert seen(record(down(name), 4), record(down(name).replace("Down", "Up"), 6, 9), changes=dead).verdict == "ok"
    assert seen(record(down(name), 4)).verdict == "ok", "the link is up now"
    assert seen(record(down(name), 4), changes={"interfaces": []}).verdict == "ok", "the RDMA port is active"
    for other in (
        down("eno1"),
        down("eno1", "igb"),
        "bond0: (slave eno1): link status definitely down, disabling slave",
    ):
        assert seen(record(other, 4), changes=dead).verdict == "ok", other
    assert seen(record(down("eno1"), 4), changes={"rdma": unreadable("failed")}).verdict == "fail"


def test_a_port_without_a_cable_counts_where_the_fabric_uses_the_port() -> None:
    device = healthy().rdma[0]  # type: ignore[index]
    dead = {"rdma.0.state": "DOWN", "interfaces": []}
    for bdf, verdict in ((str(device.bdf), "fail"), ("0000:fe:00.1", "ok")):
        line = f"mlx5_core {bdf}: Port module event: module 1, Cable unplugged"
        assert seen(record(line, 6), changes=dead).verdict == verdict
        plugged = record(line.replace("unplugged", "plugged"), 6, 9)
        assert seen(record(line, 6), plugged, changes=dead).verdict == "ok"


def window(*lines: str, before: str | None = None) -> KernelWindow:
    head = ["# begin monotonic=1.0 wall=1.0 source=kmsg"]
    head += ["# before", *(["# before " + before] if before else [])] if before is not None else []
    return read_window(["\n".join([*head, *lines, "# end monotonic=9.0", ""]).encode()])


@pytest.mark.parametrize(
    ("line", "before", "verdict"),
    [
        (f"<2>[    5.000000] {STRANGE}", form(STRANGE), "fail"),
        (f"<3>[    5.000000] {STRANGE}", "", "unknown"),
        (f"<3>[    5.000000] {STRANGE}", None, "unknown"),
        (f"<3>[    5.000000] {STRANGE}", form(STRANGE), "warn"),
        (f"<4>[    5.000000] {STRANGE}", "", "ok"),
        (f"<3>[    5.000000] {OTHER}", "", "unknown"),
        (f"<3>[    5.000000] {OTHER}", form(OTHER), "warn"),
        (f"[    5.000000] {OTHER}", "", "warn"),
        (f"<4>[    5.000000] {RESET}", form(RESET), "fail"),
        ("<4>[    5.000000] " + down("eno1"), "", "ok"),
        ("<4>[    5.000000] " + down("ens1"), "", "fail"),
    ],
)
def test_a_line_while_the_job_runs(line: str, before: str | None, verdict: str) -> None:
    gate = judged(no_kernel_fault(NodeWatch(kernel={"a": window(line, before=before)}, links={"a": ["ens1"]})))
    assert gate.verdict == verdict
    assert (gate.remedy is None) is (verdict == "ok")
    assert ("line " in gate.evidence and line.split("] ")[1] in gate.evidence) is (verdict != "ok")


def test_a_link_that_came_back_while_the_job_ran_warns() -> None:
    lines = [f"<4>[    5.000000] {down('ens1')}", f"<6>[    6.000000] {down('ens1').replace('Down', 'Up')}"]
    assert (
        judged(no_kernel_fault(NodeWatch(kernel={"a": window(*lines, before="")}, links={"a": ["ens1"]}))).verdict
        is Verdict.WARN
    )


def test_the_worst_line_decides() -> None:
    lines = [f"<3>[    5.000000] {STRANGE}", f"<4>[    6.000000] {RESET}"]
    assert judged(no_kernel_fault(NodeWatch(kernel={"a": window(*lines), "b": window()}))).verdict is Verdict.FAIL


def test_each_form_of_a_general_entry_is_a_kind_of_its_own() -> None:
    lines = [f"<2>[    {at}.000000] {line}" for at, line in enumerate([OTHER, OTHER.replace("ring", "pipe"), OTHER])]
    assert judged(no_kernel_fault(NodeWatch(kernel={"a": window(*lines)}))).actual == 2


def test_a_log_that_nobody_saw_is_unknown_where_it_is_wanted() -> None:
    assert judged(no_kernel_fault(NodeWatch(kernel={"a": None}))).verdict is Verdict.OK
    assert judged(no_kernel_fault(NodeWatch(kernel={"a": None}, kernel_wanted=True))).verdict is Verdict.UNKNOWN


def test_a_fault_while_the_job_ran_raises_the_counter_of_faults() -> None:
    before = watched_counters(desired(), healthy())
    after = watched_counters(desired(), with_(healthy(), {"kernel_log": {"records": [record(RESET, 4)]}}))
    assert (before["kernel_log/newest_fault"], after["kernel_log/newest_fault"]) == (0, 8)


@pytest.mark.parametrize("count", [0, 8])
def test_an_unreadable_counter_of_a_gpu_counts_where_gpus_are_wanted(count: int) -> None:
    unread = {"unreadable": "timed out", "detail": "amdsmi"}
    state = with_(healthy(), {"counters": {"ras/0000:05:00.0/correctable": unread, "ras/0000:06:00.0/correctable": 3}})
    kept = watched_counters(desired(gpu={"count": count}), state)
    assert {name for name in kept if name.startswith("ras/0000:05")} == (
        {"ras/0000:05:00.0/correctable"} if count else set()
    )
    assert kept["ras/0000:06:00.0/correctable"] == 3


def _record(line: str | tuple[str, int]) -> dict[str, Any]:
    return record(line) if isinstance(line, str) else record(*line)


def own(*logs: list[str | tuple[str, int]] | None, groups: dict[str, str] | None = None) -> dict[str, Finding]:
    """Return the findings of `fleet.kernel_log`, by node; None: a log that could not be read."""
    states = {
        f"node{at}": with_(
            healthy(),
            {"kernel_log": {"records": unreadable("failed") if log is None else [_record(line) for line in log]}},
        )
        for at, log in enumerate(logs)
    }
    found = own_lines(states, groups or {}, dict.fromkeys(states, desired()))
    assert len({finding.node for finding in found}) == len(found)
    return {finding.node: finding for finding in found}


def test_an_unknown_error_line_that_no_peer_has_is_unknown() -> None:
    found = own([STRANGE], [], [], [], [])
    assert set(found) == {"node0"} and found["node0"].verdict == "unknown" and found["node0"].evidence == STRANGE
    other = STRANGE.replace("7a", "c1").replace("-5", "-110")
    assert not own([STRANGE], [other], [], [], []), "a fourth of the other nodes has the form, with other numbers"
    assert not own([STRANGE], [], [], []), "three other nodes are too few"
    assert not own([STRANGE], [], [], [], None), "a log that nobody could read is no peer's"
    assert not own([STRANGE], [], [], [], [], groups={"node0": "a"}), "another group"
    assert set(own([OTHER], [], [], [], [])) == {"node0"}, "an entry of any message of a driver explains nothing"
    assert not own([(STRANGE, 2)], [], [], [], []), "what fails alone needs no peers"
    assert not own([CORRECTED], [], [], [], []), "a known line that warns is explained"
    assert not own([RESET], [], [], [], []), "a known fault fails in its own finding"
    assert set(own([STRANGE], [STRANGE], *[[]] * 19)) == {"node0", "node1"}, "one of 20 is less than a tenth"
    assert not own(*[[STRANGE]] * 3, *[[]] * 18), "two of 20 are a tenth"


def kmsg(*records: tuple[int, str]) -> str:
    return "\n".join(f"{priority},{number},1000,-;{message}" for number, (priority, message) in enumerate(records))


def test_each_line_that_matters_is_a_candidate_at_any_priority() -> None:
    known = words()
    for entry in entries("kernel"):
        for line in entry.shows:
            lines = judge(matcher(), [read(f"<6>[    1.000000] {line}", 1)])
            if lines and lines[0].verdict != "ok":
                kept, _ = candidates(kmsg((6, line)), known)
                assert len(kept) == 1, line


def test_ordinary_lines_stay_on_the_node_and_error_lines_do_not() -> None:
    text = kmsg((6, "usb 1-1: new high-speed device number 2"), (3, "qq 7"), (4, "qq 8"), (6, RESET))
    assert [each.message for each in candidates(text, words())[0]] == ["qq 7", RESET]
    assert len(candidates(text, [""])[0]) == 4


def test_what_a_node_sends_is_bounded_and_a_storm_hides_nothing() -> None:
    storm = [(3, f"dev{number}: storm at 0x{number:x}") for number in range(5000)]
    kept, left_out = candidates(kmsg((2, STRANGE), *storm, (6, RESET)), words())
    assert len(kept) == FIRST + LAST + 2 and left_out == 5000 - FIRST - LAST
    assert kept[0].message == STRANGE and kept[-1].message == RESET and kept == sorted(kept)
    assert [each.number for each in kept[1:-1]] == [*range(1, FIRST + 1), *range(5001 - LAST, 5001)]
    many = [(3 if number == 5 else 6, f"error of kind {'x' * number}") for number in range(KEPT + 50)]
    kept, left_out = candidates(kmsg(*many), words())
    assert len(kept) == KEPT and left_out == 50 and kept[0].number == 5


def test_a_form_has_no_numbers() -> None:
    assert form("nvme3: I/O 17 timeout at 0xdeadBEEF, id c1:00.0 ef") == "nvme#: I/O # timeout at #, id #:#.# ef"


def test_records_of_the_node_are_read_as_they_are() -> None:
    (one,), _ = candidates("30,5,2500000,-,caller=T1;systemd[1]: said\n SUBSYSTEM=x\nx,y;z\n1,2,3;four\n", [""])
    assert one == Record(5, 6, 2.5, "systemd[1]: said")


def test_the_agent_carries_the_same_catalogue_and_the_probe_its_words() -> None:
    files = program.build().files
    carried = Matcher(json.loads(files["shakedown/node/agent/kernel.json"]))
    assert json.loads(files["shakedown/node/agent/kernel.json"]) == json.loads(json.dumps(compiled()))
    found = carried.match(RESET)
    assert found is not None and found["name"] == "gpu_reset"
    for made in (bundle.build().files, files):
        assert json.loads(made["shakedown/node/kernel_words.json"]) == words()


def test_the_diagnosis_takes_known_faults_and_links_that_came_back_of_the_jobs_ports() -> None:
    back = down("ens1").replace("Down", "Up")
    lines = [f"<4>[ 1.0] {down('ens1')}", f"<6>[ 2.0] {back}", f"<4>[ 3.0] {down('eno1')}", f"<2>[ 4.0] {STRANGE}"]
    found = kernel_matches([*lines, f"<3>[ 5.0] {RESET}"], ["ens1"])
    assert [(match.name, match.line_number) for match in found] == [("link_down", 1), ("gpu_reset", 5)]
    assert all(of_match(match, "a", "kernel.log").role == "origin" for match in found)


@pytest.mark.parametrize("count", [0, 8])
def test_an_unreadable_counter_of_an_interface_counts_where_rdma_is_wanted(count: int) -> None:
    unread = {"unreadable": "timed out", "detail": "ethtool"}
    state = with_(healthy(), {"counters": {"ethtool/ens0np0/rx_errors": unread}})
    kept = watched_counters(desired(rdma={"count": count}), state, "ens0np0")
    assert ("ethtool/ens0np0/rx_errors" in kept) is (count > 0)


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("Oops: general protection fault, probably for", "kernel_oops"),
        ("kworker/7:1: page allocation failure:", "memory_allocation_failed"),
        ("lost page write due to", "block_io_error"),
        ("DMAR: [DMA Read NO_PASID] Request device [0b:00.0]", "iommu_fault"),
        ('VFS: Cannot open root device "PARTLABEL=rootfs" or', "kernel_panic"),
        ("BUG bio-176 (Not tainted): Objects remaining in bio-176", "kernel_memory_corrupted"),
        ("(NULL device *): queue 0 connect admin queue failed (-111).", "nvme_fabric_lost"),
        ("EXT4-fs warning (device dm-2): ext4_dirblock_csum_verify:405: No space for directory leaf checksum.", ""),
        ("megaraid_sas 0000:03:00.0: FW provided TM TaskAbort/Reset timeout: 0 secs/0 secs", "noise_disks_start"),
    ],
)
def test_a_line_that_a_terminals_width_cut_and_one_beside_noise_keep_their_entry(line: str, name: str) -> None:
    found = matcher().match(line)
    assert (found["name"] if found and (name or found["severity"] == "noise") else "") == name


# Lines of the kernel with a name that any user chooses: of a process (15 characters), of a file, of a cgroup.
CHOSEN = [
    ("{}[77]: segfault at 0 ip 0000000000401126 sp 00007ffd12345678 error 6 in x[401000+1000]", 15),
    ("x[77]: segfault at 0 ip 0000000000401126 sp 00007ffd12345678 error 6 in {}[401000+1000] likely on CPU 3", 255),
    ("traps: {}[77] general protection fault ip:4011 sp:7ffc error:0 in x[401000+1000]", 15),
    ("traps: x[77] control protection ip:4011 sp:7ffc ssp:7f2a error:1(near ret) in {}[401000+1000]", 255),
    ("Memory cgroup out of memory: Killed process 77 ({}) total-vm:1kB, anon-rss:1kB, UID:1000 pgtables:1kB", 15),
    ("oom_reaper: reaped process 77 ({}), now anon-rss:0kB, file-rss:0kB, shmem-rss:0kB", 15),
    ("{} invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0", 15),
    ("CPU: 3 UID: 1000 PID: 77 Comm: {} Not tainted 6.8.0-48-generic #48-Ubuntu", 15),
    ("[     77]  1000    77     1234      567    45056        0             0 {}", 15),
    ("oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/u/{},task=x,pid=7", 255),
    ("Memory cgroup stats for /user.slice/{}:", 255),
    ("Tasks in /user.slice/{} are going to be killed due to memory.oom.group set", 255),
    ("Task in /user.slice/{} killed as a result of limit of /user.slice/{}", 255),
    ("cgroup: fork rejected by pids controller in /user.slice/{}", 255),
    ("process 'home/{}' started with executable stack", 255),
    ("warning: `{}' uses 32-bit capabilities (legacy support in use)", 15),
]


@pytest.mark.parametrize(("line", "longest"), CHOSEN, ids=range(len(CHOSEN)))
def test_no_user_s_name_for_a_process_file_or_cgroup_is_an_event_of_the_node(line: str, longest: int) -> None:
    usual = matcher().match(line.replace("{}", "python3"))
    for entry in entries("kernel"):
        for pieces in entry.forms:
            name = "".join([*(f"{driver}: " for driver in entry.drivers[:1]), *pieces])
            if len(name) <= longest and "/" not in name:
                assert matcher().match(line.replace("{}", name)) == usual, name
