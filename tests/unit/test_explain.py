"""`shakedown explain`: each form of a kernel's log, a job's log, and input that is none."""

from __future__ import annotations

import gzip
import json
import os
import tomllib
import tracemalloc
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from shakedown.catalogue.lines import read
from shakedown.catalogue.model import entries
from shakedown.cli import main
from shakedown.gates import explain as explaining
from shakedown.gates.explain import explain
from shakedown.logs.source import LogSource
from tests.at_once import at_once

LOGS = Path(__file__).parents[1] / "data/logs"
LOST = "nvme nvme2: controller is down; will reset: CSTS=0xffffffff, PCI_STATUS=0xffff"
UNKNOWN = "frobnicator 0000:0b:00.0: calibration failed (-17)"


def run(text: str | bytes, *argv: str) -> Result:
    return CliRunner().invoke(main, ["explain", *argv], input=text)


def explained(text: str | bytes, *argv: str) -> dict:
    return json.loads(run(text, "--format", "json", *argv).stdout)


# One record in each form that a tool writes: dmesg, dmesg -T, -x, -r, --json, /dev/kmsg, journalctl and syslog.
FORMS = {
    "message alone": "MESSAGE",
    "dmesg": "[ 1234.567890] MESSAGE",
    "dmesg before boot's end": "[    0.000000] MESSAGE",
    "dmesg of a thread": "[ 1234.567890][ T1234] MESSAGE",
    "dmesg of a processor": "[ 1234.567890][    C3] MESSAGE",
    "dmesg -T": "[Mon Nov 23 10:11:12 2026] MESSAGE",
    "dmesg --time-format iso": "2026-11-23T10:11:12,123456+00:00 MESSAGE",
    "dmesg -d": "[ 1234.567890 <    0.000012>] MESSAGE",
    "dmesg -e": "[Nov23 10:11] MESSAGE",
    "dmesg -t": "MESSAGE",
    "dmesg -x": "kern  :err   : [ 1234.567890] MESSAGE",
    "dmesg -xT": "kern  :err   : [Mon Nov 23 10:11:12 2026] MESSAGE",
    "dmesg -r": "<3>[ 1234.567890] MESSAGE",
    "/dev/kmsg": "3,1234,1234567890,-;MESSAGE",
    "/dev/kmsg with the caller": "3,1234,1234567890,-,caller=T1;MESSAGE",
    "priority alone": "<3>MESSAGE",
    "journalctl -k": "Nov 23 10:11:12 node1 kernel: MESSAGE",
    "journalctl -o short-iso": "2026-11-23T10:11:12+0000 node1 kernel: MESSAGE",
    "journalctl -o short-iso-precise": "2026-11-23T10:11:12.123456+00:00 node1 kernel: MESSAGE",
    "journalctl -o short-full": "Mon 2026-11-23 10:11:12 UTC node1 kernel: MESSAGE",
    "journalctl -o short-monotonic": "[ 1234.567890] node1 kernel: MESSAGE",
    "journalctl -o short-unix": "1795428672.123456 node1 kernel: MESSAGE",
    "journalctl -o with-unit": "Mon 2026-11-23 10:11:12 UTC node1 kernel: MESSAGE",
    "syslog": "Nov 23 10:11:12 node1 kernel: [ 1234.567890] MESSAGE",
    "syslog with its priority": "<3>Nov 23 10:11:12 node1 kernel: [ 1234.567890] MESSAGE",
    "syslog RFC 5424": "<3>1 2026-11-23T10:11:12.003Z node1 kernel - - - [ 1234.567890] MESSAGE",
    "rsyslog": "2026-11-23T10:11:12.123456+00:00 node1 kernel: [ 1234.567890] MESSAGE",
    "journalctl -o json": json.dumps(
        {"MESSAGE": "MESSAGE", "PRIORITY": "3", "_TRANSPORT": "kernel", "SYSLOG_IDENTIFIER": "kernel"}
    ),
    "journalctl -o json-pretty": json.dumps(
        {"MESSAGE": "MESSAGE", "PRIORITY": "3", "_TRANSPORT": "kernel", "SYSLOG_IDENTIFIER": "kernel"}, indent=1
    ),
    "journalctl -o export": "__CURSOR=s=1\nPRIORITY=3\n_TRANSPORT=kernel\nSYSLOG_IDENTIFIER=kernel\nMESSAGE=MESSAGE\n",
    "Talos": "192.0.2.21: kern:     err: [2026-11-23T10:11:12.656944804Z]: MESSAGE",
    "syslogd with its facility": "Nov 23 10:11:12 node1 kern.err kernel: [ 1234.567890] MESSAGE",
    "a container's syslog": "2026-11-23 10:11:12 +0000 UTC kern.err kernel: MESSAGE",
    "wall": "kernel:[ 1234.567890] MESSAGE",
    "without a date": "node1 kernel: [ 1234.567890] MESSAGE",
    "dmesg -T, German": "[Mo Nov 23 10:11:12 2026] MESSAGE",
    "dmesg -T, Chinese": "[一 11月 23 10:11:12 2026] MESSAGE",
    "journalctl, French": "nov. 23 10:11:12 node1 kernel: MESSAGE",
    "grep over files": "/var/log/kern.log:Nov 23 10:11:12 node1 kernel: MESSAGE",
    "grep -n": "4711:[ 1234.567890] MESSAGE",
    "a recorded console": "[2026-11-23 10:11:12] [ 1234.567890] MESSAGE",
    "a quotation": "| [ 1234.567890] MESSAGE",
    "serial console": "\x1b[0;33m[ 1234.567890] MESSAGE\x1b[0m",
    "carriage returns": "[ 1234.567890] MESSAGE\r",
}


@at_once("form", FORMS.values())
def test_a_line_is_known_in_each_form(form: str) -> None:
    found = explained(form.replace("MESSAGE", LOST) + "\n")
    assert [(each["name"], each["part"], each["severity"]) for each in found["lines"]] == [
        ("nvme_lost", "disk", "fatal")
    ]
    assert found["unknown"] == []


@at_once("form", FORMS.values())
def test_an_unknown_line_is_told_in_each_form(form: str) -> None:
    result = run(form.replace("MESSAGE", UNKNOWN) + "\n", "--format", "json")
    found = json.loads(result.stdout)
    assert (found["lines"], len(found["unknown"]), result.exit_code) == ([], 1, 4)
    assert "calibration failed" in found["unknown"][0]["line"]


@pytest.mark.parametrize(
    "line",
    [
        "[2026-11-23 10:11:12] frobnicator: failed",
        "[10:11:12] frobnicator: failed",
        "epoch 12 10:11:12 rank0 trainer: failed",
        "train.py:12: failed",
    ],
)
def test_a_line_of_a_job_is_not_taken_for_the_kernels(line: str) -> None:
    assert not read(line).kernel and read(line).message == line


EXPORTED = "__CURSOR=s=1\n_TRANSPORT=kernel\nPRIORITY"


@pytest.mark.parametrize(
    ("line", "unknown"),
    [
        ("<3>[ 1.0] frobnicator: level 9", True),
        ("<2>[ 1.0] frobnicator: level 9", True),
        ("<4>[ 1.0] frobnicator: error 9", False),
        ("kern  :crit  : [ 1.0] frobnicator: level 9", True),
        ("kern  :info  : [ 1.0] frobnicator: failed", False),
        ("6,1,1,-;frobnicator: failed", False),
        ("[ 1.0] frobnicator: failed", True),
        ("[ 1.0] frobnicator: level 9", False),
        ("[ 1.0] frobnicator: 0 changed, unhung", False),
        ('{"MESSAGE": "frobnicator: error", "PRIORITY": "5", "_TRANSPORT": "kernel"}', False),
        (f"{EXPORTED}=3\nMESSAGE=frobnicator: level 9\n\n{EXPORTED}=6\nMESSAGE=fine\n", True),
        (f"{EXPORTED}=6\nMESSAGE=fine\n\n{EXPORTED}=5\nMESSAGE=frobnicator: error\n", False),
        ("Nov 23 10:11:12 node1 sshd[88]: error: kex_exchange_identification", False),
        ("Nov 23 10:11:12 node1 sshd(pam_unix)[88]: authentication failure; uid=0", False),
        ("Nov 9 12:01:01 node1 gmetad: Warning: failed to resolve a source", False),
        ("Nov 9 12:01:01 node1 kernel: frobnicator: failed", True),
    ],
)
def test_a_priority_decides_over_an_error_word(line: str, unknown: bool) -> None:
    assert bool(explained(line + "\n")["unknown"]) == unknown


def test_the_document_has_what_a_program_needs() -> None:
    found = explained(f"[ 1.0] fine\n[ 2.0] {LOST}\n[ 3.0] {UNKNOWN}\n")
    (line,) = found["lines"]
    assert set(line) >= {"line", "name", "part", "severity", "cause", "remedy"}
    assert (line["number"], line["line"]) == (2, f"[ 2.0] {LOST}")
    assert found["unknown"] == [{"line": f"[ 3.0] {UNKNOWN}", "number": 3, "priority": None}]


EXITS = {
    "nothing of note": ("[ 1.0] usb 1-1: new high-speed USB device number 2 using xhci_hcd\n", 0),
    "a fatal line": ("[ 1.0] Kernel panic - not syncing: Fatal exception\n", 1),
    "an error": (f"[ 1.0] {LOST}\n", 1),
    "an error and an unknown line": (f"[ 1.0] {LOST}\n[ 2.0] {UNKNOWN}\n", 1),
    "an unknown line": (f"[ 1.0] {UNKNOWN}\n", 4),
    "corrected": ("[ 1.0] EDAC MC0: 1 CE memory read error on CPU_SrcID#0_MC#0_Chan#0_DIMM#0 (channel:0)\n", 0),
    "a program's fault": ("[ 1.0] python3[881]: segfault at 0 ip 00007f1 sp 00007ffd error 4 in a.so[7f1+2]\n", 0),
    "noise": ("[ 1.0] ata1: SATA link down (SStatus 0 SControl 300)\n", 0),
    "a job that failed": ("torch.OutOfMemoryError: HIP out of memory. Tried to allocate 2.00 GiB\n", 1),
    "a job with an unknown error": ("[rank0]: INFO fine\nERROR: the frobnicator lost its grip\n", 4),
}


@pytest.mark.parametrize(("text", "code"), EXITS.values(), ids=EXITS)
def test_the_exit_code_says_what_was_found(text: str, code: int) -> None:
    assert run(text).exit_code == code


def test_noise_is_shown_on_demand() -> None:
    line = "[ 1.0] ata1: SATA link down (SStatus 0 SControl 300)\n"
    assert (explained(line)["lines"], explained(line)["unknown"]) == ([], [])
    assert [each["severity"] for each in explained(line, "-v")["lines"]] == ["noise"]


def test_a_person_reads_part_severity_cause_and_remedy() -> None:
    told = run(f"[ 2.0] {LOST}\n[ 3.0] {UNKNOWN}\n").stdout
    assert "fatal  disk  nvme_lost: " in told
    assert f"line 1: [ 2.0] {LOST}" in told
    assert "what to do: " in told
    assert told.index("without an entry") < told.index(UNKNOWN)
    assert told.endswith("2 lines read: 1 fatal, 1 unknown\n")


AER = """\
pcieport 0000:40:01.1: AER: {head} error message received from 0000:41:00.0
mlx5_core 0000:41:00.0: PCIe Bus Error: severity={severity}, type=Data Link Layer, (Receiver ID)
mlx5_core 0000:41:00.0:   device [15b3:1021] error status/mask={status}
mlx5_core 0000:41:00.0:    [{bit}] {what}
"""
GHES = """\
{{1}}[Hardware Error]: Hardware error from APEI Generic Hardware Error Source: 4
{{1}}[Hardware Error]: event severity: {severity}
{{1}}[Hardware Error]:  Error 0, type: {severity}
{{1}}[Hardware Error]:   section_type: {section}
"""
OOM = """\
python3 invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0
oom-kill:constraint={constraint},nodemask=(null),cpuset=/,mems_allowed=0-1,{scope},task=python3,pid=4711,uid=1000
{killed}: Killed process 4711 (python3) total-vm:1048576kB, anon-rss:524288kB, file-rss:0kB
"""
GROUPS = {
    "AER, corrected": (
        AER.format(head="Corrected", severity="Corrected", status="00000001/00002000", bit=" 0", what="RxErr (First)"),
        {("PCIe", "corrected")},
    ),
    "AER, not corrected": (
        AER.format(
            head="Uncorrected (Fatal)",
            severity="Uncorrected (Fatal)",
            status="00000020/00000000",
            bit=" 5",
            what="SDES (First)",
        ),
        {("PCIe", "fatal")},
    ),
    "GHES, corrected": (GHES.format(severity="corrected", section="memory error"), {("memory", "corrected")}),
    "GHES, fatal": (GHES.format(severity="fatal", section="memory error"), {("memory", "fatal")}),
    "GHES, PCIe": (GHES.format(severity="fatal", section="PCIe error"), {("PCIe", "fatal")}),
    "GHES, CPU": (
        GHES.format(severity="recoverable", section="general processor error")
        + "{1}[Hardware Error]:   processor_type: 0, IA32/X64\n",
        {("CPU", "error")},
    ),
    "OOM of the host": (
        OOM.format(constraint="CONSTRAINT_NONE", scope="global_oom,task_memcg=/", killed="Out of memory"),
        {("memory", "error")},
    ),
    "OOM of a cgroup": (
        OOM.format(
            constraint="CONSTRAINT_MEMCG",
            scope="oom_memcg=/slurm/job_7,task_memcg=/slurm/job_7",
            killed="Memory cgroup out of memory",
        ),
        {("memory", "user")},
    ),
}


@pytest.mark.parametrize(("text", "wanted"), GROUPS.values(), ids=GROUPS)
def test_the_lines_of_one_event_have_one_severity(text: str, wanted: set[tuple[str, str]]) -> None:
    found = explained(text)
    assert {(each["part"], each["severity"]) for each in found["lines"]} == wanted
    assert found["unknown"] == []


def test_a_detail_before_two_events_belongs_to_the_first_one() -> None:
    corrected = AER.format(head="Corrected", severity="Corrected", status="1/0", bit=" 0", what="RxErr").splitlines()
    fatal = AER.format(head="Uncorrected (Fatal)", severity="x", status="20/0", bit=" 5", what="SDES").splitlines()
    found = explained("\n".join([corrected[3], corrected[0], fatal[0], ""]))
    assert [each["severity"] for each in found["lines"]] == ["corrected", "corrected", "fatal"]


def test_one_record_of_the_firmware_says_nothing_of_the_next() -> None:
    records = [("recoverable", "PCIe error"), ("corrected", "memory error"), ("corrected", "general processor error")]
    found = explained("".join(GHES.format(severity=severity, section=section) for severity, section in records))
    assert [(each["part"], each["severity"]) for each in found["lines"]] == [
        *[("PCIe", "error")] * 4,
        *[("memory", "corrected")] * 4,
        *[("CPU", "corrected")] * 4,
    ]


def test_events_far_apart_do_not_mix() -> None:
    corrected = AER.format(head="Corrected", severity="Corrected", status="1/0", bit=" 0", what="RxErr")
    fatal = AER.format(head="Uncorrected (Fatal)", severity="Uncorrected (Fatal)", status="20/0", bit=" 5", what="SDES")
    found = explained(corrected + "fine\n" * 300 + fatal)
    assert [each["severity"] for each in found["lines"]] == ["corrected"] * 4 + ["fatal"] * 4


@pytest.mark.parametrize(
    ("status", "severity", "said"),
    [
        ("0x9c2040000000011b", "corrected", "corrected"),
        ("0xbea0000000000108", "fatal", "uncorrected"),
        ("0xbc00200000000111", "fatal", "uncorrected"),
        ("0x9c80000000000111", "fatal", "task context corrupt"),
        ("0x9c00080000000111", "error", "poison"),
        ("0x9c00100000000111", "error", "deferred"),
    ],
)
def test_a_bank_of_the_gpu_is_decoded(status: str, severity: str, said: str) -> None:
    text = (
        "amdgpu 0000:c1:00.0: amdgpu: [Hardware Error]: Accelerator Check Architecture events logged\n"
        f"amdgpu 0000:c1:00.0: amdgpu: [Hardware Error]: ACA[01/01].STATUS={status}\n"
    )
    bank = explained(text)["lines"][-1]
    assert (bank["part"], bank["severity"]) == ("GPU", severity)
    assert said in bank["note"]


def test_a_bank_of_a_processor_is_decoded() -> None:
    found = explained("mce: [Hardware Error]: CPU 3: Machine Check: 0 Bank 5: bea0000000000108\n")["lines"][0]
    assert (found["part"], found["severity"]) == ("CPU", "fatal")
    assert "uncorrected" in found["note"]


def test_a_link_that_came_back_is_no_fault() -> None:
    down = "[ 9.0] bnxt_en 0000:06:00.0 ens1np0: NIC Link is Down\n"
    up = "[12.0] bnxt_en 0000:06:00.0 ens1np0: NIC Link is Up, 400000 Mbps full duplex, Flow control: none\n"
    other = up.replace("ens1np0", "ens2np0").replace("06:00.0", "07:00.0")
    assert explained(down)["lines"][0]["severity"] == "error"
    assert explained(down + other)["lines"][0]["severity"] == "error"
    back = explained(down + up)["lines"][0]
    assert (back["severity"], back["note"]) == ("corrected", "the link came back on line 2")


def test_of_a_traceback_only_the_exception_counts() -> None:
    found = explained((LOGS / "out_of_memory.log").read_text())
    assert {each["name"] for each in found["lines"]} >= {"out_of_memory"}
    assert not [each for each in found["unknown"] if "Traceback" in each["line"] or "File" in each["line"]]


def test_a_job_that_was_ended_failed_without_a_line_of_a_fault() -> None:
    found = run((LOGS / "sigterm.log").read_text())
    assert found.exit_code == 1 and "SIGTERM death signal" in found.stdout


HARD = {
    "gzip": gzip.compress(f"[ 1.0] {LOST}\n".encode()),
    "UTF-16": f"[ 1.0] {LOST}\n".encode("utf-16"),
    "bytes that are no UTF-8": b"[ 0.5] \xff\xfe\x80 noise \x00\x00\n" + f"[ 1.0] {LOST}\n".encode(),
    "characters that are not seen": f"[ 1.0] {LOST}".replace(" is ", "\u200b is\u2060 ").encode(),
    "blanks of a web page": f"[ 1.0] {LOST}".replace(" ", "\u00a0").encode(),
    "no end of line": f"[ 1.0] {LOST}".encode(),
    "DOS": f"[ 0.5] fine\r\n[ 1.0] {LOST}\r\n".encode(),
    "a line of a megabyte": b"[ 0.5] " + b"x" * (1 << 20) + f"\n[ 1.0] {LOST}\n".encode(),
    "a torn JSON record before it": b'{"MESSAGE": "x", \n' + f"[ 1.0] {LOST}\n".encode(),
    "deep JSON": b"[" * 100_000 + b"\n" + f"[ 1.0] {LOST}\n".encode(),
}


@pytest.mark.parametrize("content", HARD.values(), ids=HARD)
def test_a_fault_is_found_in_what_is_hard_to_read(content: bytes) -> None:
    assert [each["name"] for each in explained(content)["lines"]] == ["nvme_lost"]


def test_nothing_moves_a_terminal() -> None:
    told = run(f"[ 1.0] \x1b[2J\x1b]0;x\x07{LOST}\u202e\n[ 2.0] \x1b[31mfrobnicator: failed\x1b[0m\n")
    assert told.exit_code == 1
    assert not {"\x1b", "\x07", "\u202e"}.intersection(told.stdout)


UNUSABLE = {
    "nothing": (b"", "holds no line: nothing to explain"),
    "blank lines": (b"\n \n\n", "holds no line: nothing to explain"),
    "a program": (bytes(range(256)) * 64, "is not text"),
    "xz": (b"\xfd7zXZ\x00" + b"\0" * 64, "unpack it first (xz -dc)"),
    "the beginning of gzip": (gzip.compress(os.urandom(4000))[:200], "was cut"),
}


@pytest.mark.parametrize(("content", "why"), UNUSABLE.values(), ids=UNUSABLE)
def test_what_is_no_log_is_refused_in_words(content: bytes, why: str) -> None:
    result = run(content)
    assert (result.exit_code, result.stdout) == (2, "")
    assert why in result.stderr


def test_a_folder_and_a_missing_file_are_refused(tmp_path: Path) -> None:
    assert (run("", str(tmp_path)).exit_code, run("", str(tmp_path / "no")).exit_code) == (2, 2)


def test_a_log_that_was_cut_is_not_fine() -> None:
    text = "".join(f"[ {number}.0] usb 1-{number % 7}: number {number * 7919 % 1000}\n" for number in range(9000))
    result = run(gzip.compress(text.encode())[:-2000])
    assert result.exit_code == 4
    assert "was cut" in result.stderr


def test_the_memory_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explaining, "MOST", 50)
    monkeypatch.setattr(explaining, "MOST_ALIKE", 50)
    log = tmp_path / "dmesg"
    with log.open("w") as file:
        for number in range(2_000):
            file.write(f"[ {number}.0] {LOST} {number}\n[ {number}.5] {UNKNOWN} {number}\n")
    explain(LogSource(log))
    tracemalloc.start()
    try:
        found = explain(LogSource(log))
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (len(found.lines), len(found.unknown), found.left_out) == (50, 50, 2 * 2_000 - 100)
    assert found.exit_code == 1
    assert most < 1 << 20
    assert "3900 further lines are not listed" in explaining.as_text(found)


def test_a_storm_hides_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    storm = "EDAC MC0: 1 CE memory read error on CPU_SrcID#0_MC#0_Chan#0_DIMM#0 (channel:0)\n"
    monkeypatch.setattr(explaining, "MOST_ALIKE", 3)
    found = explained(storm * 9 + f"{LOST}\n")
    assert ([each["severity"] for each in found["lines"]], found["left_out"]) == (["corrected"] * 3 + ["fatal"], 6)
    monkeypatch.setattr(explaining, "MOST", 3)
    assert run(storm * 9 + f"{LOST}\n").exit_code == 1


def test_standard_input_is_the_default() -> None:
    assert run(f"{LOST}\n").exit_code == run(f"{LOST}\n", "-").exit_code == 1


def test_a_device_is_read_to_its_present_end(tmp_path: Path) -> None:
    """/dev/kmsg waits for the next record where its reader does not refuse to wait; a terminal does likewise."""
    leader, follower = os.openpty()
    try:
        with open(leader, "wb", buffering=0, closefd=False) as terminal:
            terminal.write(f"{LOST}\n".encode())
        text = b"".join(LogSource(os.ttyname(follower)))
    finally:
        os.close(leader)
        os.close(follower)
    assert LOST.encode() in text


# The kernel's signals that end a process: what bash, dash, zsh, torchrun and srun print of each (bash siglist.c, zsh
# signames.c, glibc strsignal).
SIGNALS = {
    "bus_error": ("Bus error", "bus error", 7, "SIGBUS"),
    "segmentation_fault": ("Segmentation fault", "segmentation fault", 11, "SIGSEGV"),
    "illegal_instruction": ("Illegal instruction", "illegal hardware instruction", 4, "SIGILL"),
    "aborted": ("Aborted", "abort", 6, "SIGABRT"),
    "killed": ("Killed", "killed", 9, "SIGKILL"),
}


@pytest.mark.parametrize("name", SIGNALS)
def test_a_process_that_a_signal_ended_is_named_in_each_shell(name: str) -> None:
    word, zsh, number, signal = SIGNALS[name]
    core = "" if name == "killed" else "(core dumped) "
    for line in (
        f"bash: line 1:   132 {word:<24}{core}python pretrain_gpt.py",
        f"/opt/run.sh: line 184: 2324239 {word:<24}python pretrain_gpt.py",
        f"zsh: {zsh}  python pretrain_gpt.py",
        f"fish: Job 1, 'python train.py' terminated by signal {signal} (of some kind)",
        f"failed (exitcode: -{number}) local_rank: 0 (pid: 56003) of binary: /usr/bin/python",
        f"srun: error: node7: task 3: {word}",
    ):
        document = explained(line)
        right = [name] if name != "aborted" or "srun" not in line else ["task_ended"]  # which both know as little of
        assert [found["name"] for found in document["lines"]] == right, line


def test_other_signals_are_named_too() -> None:
    for line, name in (
        ("run.sh: line 3: 99 Trace/breakpoint trap   (core dumped) python train.py", "aborted"),
        ("run.sh: line 3: 99 Hangup                  python train.py", "terminated"),
        ("run.sh: line 3: 99 User defined signal 1   python train.py", "terminated"),
        ("timeout: sending signal TERM to command 'python'", "time_limit"),
        (":0:rocdevice.cpp  :2159: 12230237400 us: Device::callbackQueue aborting with status: 0x29", "hsa_exception"),
        ("Loss is nan at iteration 120, exiting", "nan_loss"),
    ):
        assert [found["name"] for found in explained(line)["lines"]] == [name], line


def test_lines_that_are_a_job_s_in_another_log_are_read_as_a_job_s() -> None:
    """Two times before a rank's line, a line of a service in JSON, and what a system's log has of Slurm's daemon."""
    for line, name in (
        (
            "2025-11-09 15:39:31.043 +08:00 [2025-11-09 07:39:30] node28:238:1219 [0] transport/net_ib.cc:180 NCCL "
            "WARN NET/IB : mlx5_ib0:1 async fatal event on QP (0x7f69): local access violation work queue error",
            "rdma_protection",
        ),
        (
            "Feb 02 09:52:07 node4 slurmd[12912]: slurmd: fatal: can't stat gres.conf file /dev/nvidia0: No such file "
            "or directory",
            "scheduler_setup",
        ),
    ):
        assert [found["name"] for found in explained(line)["lines"]] == [name]
    assert explained('{"level":"error","logger":"amdgpu-node-labeller","msg":"Fail to glob properties"}')["lines"] == []


def test_what_the_kernel_s_general_entries_would_take_is_a_job_s_first() -> None:
    """They are of a driver's name and a word of error, which stand in a job's log as well."""
    for line, name in (
        ("Failed to open /dev/kfd read-write: Permission denied", "kfd_no_access"),
        (
            "[1641382252.649812] [n-31-9:154364:0]  dc_mlx5.c:505  UCX  ERROR mlx5dv_create_qp(DCT) failed",
            "rdma_resources",
        ),
        (
            "[c1:31180:0:31180] ib_mlx5_log.c:143 Transport retry count exceeded on mlx5_0:1/RoCE",
            "rdma_retry_exceeded",
        ),
    ):
        assert [found["name"] for found in explained(line)["lines"]] == [name], line
    general = [one.name for one in entries("kernel") if one.general]
    for path in sorted((LOGS.parent / "corpus/jobs").glob("*.toml")):
        for excerpt in tomllib.loads(path.read_text())["excerpt"]:
            found = {line.name for line in explain([excerpt["text"]]).lines if line.severity != "noise"}
            assert not found.intersection(general), (path.name, excerpt["source"], found)


def test_the_syslog_of_daemons_is_no_jobs_log_and_one_line_of_a_job_makes_it_one() -> None:
    lines = [
        "Nov 30 07:00:01 node01 systemd[1]: Started Slurm node daemon.\n",
        "Nov 30 07:00:03 node01 sshd[3001]: error: kex_exchange_identification: Connection closed by remote host\n",
        'Nov 30 07:00:04 node01 dockerd[12]: level=error msg="Handler returned error: no space left on device"\n',
        'Nov 30 07:00:05 node01 kubelet[13]: "Error syncing pod" err="StartContainer failed with CrashLoopBackOff"\n',
    ]
    assert run("".join(lines)).exit_code == 0
    ended = [*lines, "Nov 30 07:00:06 node01 train[9]: RuntimeError: HIP error: invalid device\n"]
    assert run("".join(ended)).exit_code == 1


def test_a_guess_says_that_it_is_one() -> None:
    guess = "ValueError: FSDP wants 7 pieces\n"
    cause = next(entry.cause for entry in entries("job") if entry.name == "wrapper_refused")
    assert f"wrapper_refused: perhaps {cause}" in run(guess).output
    assert explained(guess)["lines"][0]["cause"] == f"perhaps {cause}"
    assert explained(guess)["job"]["remedy"].startswith("perhaps ")
    sure = explained("torch.OutOfMemoryError: HIP out of memory. Tried to allocate 7 GiB\n")
    assert "perhaps" not in f"{sure['lines'][0]['cause']}{sure['job']['remedy']}"


def test_an_exception_whose_words_would_stand_behind_it_is_shown_and_not_what_stands_there() -> None:
    raised = "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:"
    text = f'Traceback (most recent call last):\n  File "/opt/run.py", line 3, in main\n{raised}\n{"=" * 60}\n'
    found = explained(text)
    assert [line["line"] for line in found["lines"]] == [raised]
