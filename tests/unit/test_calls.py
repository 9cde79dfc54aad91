"""What a line means by the call that it names and by its error: each row of calls.toml, and how a scanner uses it."""

from __future__ import annotations

import errno
import os
import re

import pytest

from shakedown import catalogue
from shakedown.catalogue import calls
from shakedown.logs.signatures import FailureScanner
from tests.unit.test_catalogue import _UNBOUNDED

ITERATION = " iteration 7/ 50 | elapsed time per iteration (ms): 900.0 | lm loss: 7.1E+00 |\n"


def scanned(*lines: str) -> FailureScanner:
    """Return a scanner that has read some lines."""
    scanner = FailureScanner()
    for line in lines:
        scanner.line(line + "\n")
    return scanner


@pytest.mark.parametrize("call", calls.calls(), ids=lambda call: f"{call.entry}-{call.about.pattern.pattern[:20]}")
def test_the_lines_of_a_row_lead_to_its_entry(call: calls.Call) -> None:
    assert call.shows
    for text in call.shows:
        found = calls.read_call(text, weak=True)
        assert found and found.name == call.entry, text
        assert any(mark in text for mark in calls.marks()), text
        assert (calls.read_call(text, weak=False) is None) == call.weak
    for text in call.shows_not:
        other = calls.read_call(text, weak=True)
        assert other is None or other.name != call.entry, text
    assert not _UNBOUNDED.search(call.about.pattern.pattern + (call.says.pattern.pattern if call.says else ""))


def test_the_errors_have_the_numbers_and_texts_of_the_system() -> None:
    for name, (number, text, *_) in calls._data()["errors"].items():
        assert (getattr(errno, name), os.strerror(number)) == (number, text)


@pytest.mark.parametrize(
    "line",
    [
        "writer: fsync(/ckpt/7) failed: {}",
        "E1129 10:00:00 7 writer.cc:71] fsync /ckpt/7: {}",
        'level=error msg="fsync of /ckpt/7" error="{}"',
    ],
)
@pytest.mark.parametrize(
    "error",
    [
        "No space left on device",
        "no space left on device",
        "errno 28",
        "ENOSPC",
        "设备上没有空间",
        "Auf dem Gerät ist kein Speicherplatz mehr verfügbar",
    ],
)
def test_an_error_is_read_in_each_form(line: str, error: str) -> None:
    found = calls.read_call(line.format(error), weak=False)
    assert found and found.name == "disk_full"


@pytest.mark.parametrize(
    "line",
    [
        "writer: fsync(/ckpt/7) failed: No space left on device, retrying",
        "warning: could not open /dev/kfd: Permission denied",
        "connect to tracker: connection refused, falling back to files",
        "0 errors in 7 checks of ibv_reg_mr",
        "opened /dev/kfd, mapped 7 pages with mmap",
    ],
)
def test_a_line_that_says_that_the_program_goes_on_is_none(line: str) -> None:
    assert calls.read_call(line, weak=True) is None


@pytest.mark.parametrize(
    "line",
    [
        "Exception: worker failed: Command '['/opt/env/bin/python', 'a.py']' returned non-zero exit status 1.",
        "RuntimeError: rank 0 died (exit code: -3). If exit code is -9 (SIGKILL), a common cause is the OOM killer.",
        "A worker process has failed. This could be caused by a segmentation fault.",
        "Error executing job with overrides: ['data=a.parquet']",
        "  Error:       No such file or directory (errno 2)",
        "Read -1, expected 10024, errno =1",
        "PSM3 can't open nic unit: 0 (err=23)",
        "No hostfile exists at /job/hostfile, failed",
        "SystemError: <built-in function load> returned NULL without setting an exception",
        "Exception: Failed to connect to etcd server with config ClientOptions { etcd_url: [] }",
        "[2023-02-11 08:22:31,042 E 41 77] core_worker.cc:1022: Failed to deserialize the argument of a task: invalid",
    ],
)
def test_a_number_a_guess_or_a_topic_alone_is_none(line: str) -> None:
    assert calls.read_call(line, weak=True) is None


@pytest.mark.parametrize(
    "line",
    [
        "ERROR: reading /opt/{}/pieces.yaml failed",
        "ValueError: invalid literal for int() with base 10: '{}'",
        "error: the option --{} is invalid",
        "worker: error: the pieces of kind={} are missing",
        "worker: error: invalid value of TRACK_KIND={}",
        "RuntimeError: the step on {}-7 failed",
        "error: the pin {}==4.5.1 failed the check",
        "error: the mail to {}@example.org failed",
        "ValueError: unknown kind, must be one of a, {}, b",
        "ERROR: the pieces failed. Try {} at once.",
        "ERROR: the pieces failed (if you use {}, raise the limit)",
    ],
)
@pytest.mark.parametrize("topic", ["redis", "wandb", "hipcc", "podman", "rdma", "prted", "libfabric", "raylet"])
def test_a_topic_that_is_only_mentioned_is_none(line: str, topic: str) -> None:
    assert calls.read_call(line.format(topic), weak=True) is None


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("open('/data/gloo/x'): Permission denied. The sudo rule was kept.", "file_permission"),
        ("open('/a/b'): No such file or directory; the tokenizer was read", "file_missing"),
        ("ls: cannot access '/data/mount': Input/output error", "io_error"),
        ("error: open /work/chown/x: operation not permitted", "file_permission"),
        ("error: write /data/gloo/x: broken pipe", None),
        ("error: the read of 7 pieces: Connection timed out. The master went on.", None),
        ("ERROR: the step of the job failed. The redis cache was kept.", None),
        ("ERROR: the step of the job failed. It took 7 s with hipcc", None),
        ("ERROR: the redis cache is cold. The step failed", "database_failed"),
        ("worker: connect() to the master failed. Reason: Connection refused", "master_unreachable"),
        ("/opt/redis/bin/redis-server: error: cannot start", "database_failed"),
        ("/opt/rocm/bin/hipcc: error: invalid pieces", "gpu_compile"),
    ],
)
def test_an_error_and_its_topic_stand_in_one_clause(line: str, name: str | None) -> None:
    found = calls.read_call(line, weak=True)
    assert (found.name if found else None) == name


def test_a_short_topic_counts_in_a_short_line_alone() -> None:
    few = "{} failed on a node"
    many = few + " that the step of the job had begun on, with 7 pieces of 8 and so on"
    for topic, long in (
        ("redis", None),
        ("the GPU's MR: it could not register memory of a GPU", "rdma_gpu_memory"),
    ):
        found, other = (calls.read_call(line.format(topic), weak=False) for line in (few, many))
        assert found and (other.name if other else None) == long, topic


def test_a_reading_respects_what_speaks_against_its_entry() -> None:
    assert calls.read_call("rocBLAS error: No hipBLASLt solution found", True) is None


def test_a_program_that_trains_has_survived_what_was_only_read() -> None:
    line = "monitor: rsmi_dev_power_get failed"
    trains = scanned(line)
    trains.went_on()
    trains.close()
    assert trains.matches == []
    ends = scanned(line)
    assert ends.matches == []  # no supervisor ends a job for these words
    ends.close()
    assert [match.name for match in ends.matches] == ["gpu_not_answering"]


def test_a_known_text_is_the_root_before_what_was_only_read() -> None:
    scanner = scanned("monitor: rsmi_dev_power_get failed", "RuntimeError: HIP out of memory. Tried to allocate 7 GiB")
    assert scanner.root and scanner.root.name == "out_of_memory"
    scanner.close()
    assert scanner.root.name == "out_of_memory"


def test_what_was_only_read_explains_a_failure_and_establishes_none() -> None:
    line = "monitor: rsmi_dev_power_get failed"
    well = scanned(line)
    well.close(failed=False)
    assert well.matches == []
    behind = scanned(line, "NCCL WARN socketProgress: Connection closed by remote peer node02<4242>")
    behind.close()
    assert behind.root and behind.root.name == "gpu_not_answering"
    later = scanned(
        "worker 3: error: could not allocate 7 MB of device memory", "torch.OutOfMemoryError: HIP out of memory"
    )
    assert later.root and later.root.name == "out_of_memory" and not later.optional


def test_a_storm_of_one_line_is_read_once() -> None:
    calls._read.cache_clear()
    scanned(*(f"rank {at}: poll of 0x{at:08x} at {at + 10_000} failed: IBV_WC_LOC_PROT_ERR" for at in range(10)))
    assert calls._read.cache_info().misses <= 10
    for at in range(10):
        calls.read_call(f"poll of 0x{at:08x} at {at + 10_000} failed: IBV_WC_LOC_PROT_ERR", True)
    assert calls._read.cache_info().hits >= 9


def test_each_row_names_an_entry_of_jobs() -> None:
    for call in calls.calls():
        known = catalogue.entry(call.entry)
        assert known is not None and known.log == "job"
        assert re.search(r"\w", call.about.pattern.pattern) or call.errors
