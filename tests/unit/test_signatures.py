"""Lines that mean failure, in a log as it grows: tracebacks, several ranks, what is harmless."""

from __future__ import annotations

from pathlib import Path

import pytest

from shakedown.catalogue import calls, entry
from shakedown.evidence.telemetry.kernel import kernel_log
from shakedown.gates import judge_log, read_log
from shakedown.logs.signatures import FailureScanner, marks
from tests.training_logs import first_failure, rccl

LOGS = Path(__file__).parents[1] / "data" / "logs"
CLEAN_STOP = (LOGS / "sigterm.log").read_text().splitlines(keepends=True)[-11:]


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1", "nccl_error"),
        ("[rank1]: NCCL error: unhandled system error", "nccl_error"),
        ("[rank3]:[E924] Some NCCL operations have failed or timed out.", "collective_timeout"),
        ("NCCL timeout in collective 7", "collective_timeout"),
        ("ncclRemoteError: A call failed possibly due to a network error", "nccl_remote_error"),
        ("[rank3]:[E] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7)", "collective_timeout"),
        ("HW Exception by GPU node-1 (Agent handle: 0x55) reason :GPU Hang", "gpu_hang"),
        ("reason :GPU Hang", "gpu_hang"),
        ("GPU Reset", "gpu_hang"),
        ("Uncorrectable error on GPU 3", "uncorrectable_error"),
        ("torch.distributed.elastic.multiprocessing.errors.ChildFailedError:", "rank_failed"),
        ("torch.OutOfMemoryError: HIP out of memory. Tried to allocate 2.00 GiB", "out_of_memory"),
        ("RuntimeError: CUDA out of memory", "out_of_memory"),
        ("Fatal Python error: Segmentation fault", "segmentation_fault"),
        ("failed (exitcode: -9) local_rank: 3 (pid: 904) of binary: python", "killed"),
        ("  exitcode  : 137 (pid: 904)", "killed"),
        ("Process group initialization failed", "rendezvous"),
        ("RuntimeError: No CUDA GPUs are available", "gpu_not_visible"),
        ("OSError: You are trying to access a gated repo.", "gated_repo"),
        ("errno: 98 - Address already in use", "address_in_use"),
        ("RuntimeError: Gloo connectFullMesh failed with ...", "gloo_interface"),
        ("AssertionError: Rank 3: found NaN in local forward loss calculation.", "nan_loss"),
    ],
)
def test_each_failure_of_a_training_log_is_named(line, name):
    match = first_failure(["fine\n", line + "\n"])
    assert (match.name, match.line_number, match.line) == (name, 2, line.strip())
    assert match.cause
    assert match.remedy


@pytest.mark.parametrize(
    "line",
    [
        "  exit_signal_handler ............................. False",
        "  check_for_nan_in_loss_and_grad .................. True",
        "NCCL version 2.22.3-HEAD:5cf7b4f",
        "process finished with exit code: 0",
        "  exitcode  : 0 (pid: 904)",
        "W0924 Sending process 4026324 closing signal SIGKILL",
    ],
)
def test_ordinary_lines_are_no_failure(line):
    assert first_failure([line]) is None


def test_an_agent_that_ends_after_the_masters_is_no_failure_and_a_rendezvous_that_fails_still_is():
    """What torch 2.13 prints where the store goes first; the exception itself is caught."""
    warning = [
        "[W1121 07:27:59 TCPStore.cpp:138] [c10d] recvValueWithTimeout failed: Failed to recv, got 0 bytes.\n",
        "Exception raised from recvBytes at c10d/Utils.hpp:787 (most recent call first):\n",
        "frame #2: c10::DistNetworkError::DistNetworkError(c10::SourceLocation, std::string) + 0x72 (libc10.so)\n",
    ]
    record = "E1121 07:56:08.461000 18 torch/distributed/elastic/agent/server/api.py:1008] "
    barrier = [
        f"{record}Error waiting on exit barrier. Elapsed: 0.007157325744628906 seconds\n",
        f"{record}Traceback (most recent call last):\n",
        f'{record}  File "torch/distributed/elastic/agent/server/api.py", line 994, in _exit_barrier\n',
        f"{record}torch.distributed.DistNetworkError: Failed to recv, got 0 bytes. Connection was likely closed.\n",
    ]
    assert first_failure([*warning, *barrier]) is None
    found = first_failure([*warning, *barrier, "torch.distributed.DistNetworkError: failed to connect\n"])
    assert found is not None and (found.name, found.line_number) == ("rendezvous", 8)
    found = first_failure([line.replace("08.461", f"08.46{n}") for n, line in enumerate(barrier)])
    assert found is not None, "another record is not covered"


def test_torchruns_traceback_on_sigterm_is_no_failure_and_what_follows_still_is():
    assert "Traceback" in CLEAN_STOP[0]
    assert first_failure(CLEAN_STOP) is None
    assert first_failure([f"[default0]:{line}" for line in CLEAN_STOP]) is None
    assert first_failure([*CLEAN_STOP, "Segmentation fault\n"]).name == "segmentation_fault"
    killed = [line.replace("signal: 15", "signal: 9") for line in CLEAN_STOP]
    assert first_failure(killed).name == "killed"


def test_a_traceback_is_named_by_its_exception_even_when_two_ranks_are_mixed():
    match = first_failure((LOGS / "out_of_memory.log").open())
    assert (match.name, match.line_number) == ("out_of_memory", 35)
    assert match.line.startswith("[rank3]: torch.OutOfMemoryError")


def test_other_output_inside_a_traceback_does_not_end_it():
    mixed = [*CLEAN_STOP[:5], "Number of parameters in billions: 6.98\n", *CLEAN_STOP[5:]]
    assert first_failure(mixed) is None
    quoting = [*CLEAN_STOP[:2], '    raise RuntimeError("NCCL error: " + text)\n', *CLEAN_STOP[2:]]
    assert first_failure(quoting) is None


def test_an_exception_that_python_ignores_is_no_failure_and_the_next_one_is():
    traceback = ["Traceback (most recent call last):\n", '  File "a.py", line 1\n', "ChildProcessError: none\n"]
    ignored = ["[rank1]: Exception ignored in: <function A.__del__>\n", *(f"[rank1]: {line}" for line in traceback)]
    assert first_failure(ignored) is None
    assert first_failure([*ignored, *traceback]).line_number == 7
    assert first_failure([ignored[0], "on we go\n", "and on\n", *ignored[1:]]).name == "traceback"


def test_of_more_ranks_at_once_than_a_node_can_have_the_last_is_taken_for_a_failure():
    ranks = range(1024)
    lines = [f"[rank{rank}]: Exception ignored in: x\n" for rank in ranks]
    tracebacks = {
        rank: [f"[rank{rank}]: Traceback (most recent call last):\n", f"[rank{rank}]: ValueError: x\n"]
        for rank in (1023, 1024)
    }
    assert first_failure([*lines, *tracebacks[1023]]) is None
    assert first_failure([*lines, "[rank1024]: Exception ignored in: x\n", *tracebacks[1024]]).name == "traceback"


def test_an_exception_without_a_signature_is_a_failure_with_its_own_words():
    match = first_failure(["Traceback (most recent call last):\n", '  File "a.py", line 1\n', "ValueError: bad\n"])
    assert (match.name, match.line_number, match.line) == ("traceback", 3, "ValueError: bad")


@pytest.mark.parametrize(
    ("first", "second", "root"),
    [
        ("torch.distributed.DistStoreError: Socket Timeout", "RuntimeError: HIP out of memory", "out_of_memory"),
        ("NCCL error in: x.cpp:1, unhandled system error", "Call to ibv_query_port failed", "verbs_call"),
        ("terminate called after throwing an instance of 'x'", "ncclRemoteError: x", "nccl_remote_error"),
        ("terminate called after throwing an instance of 'x'", "  what():  NCCL failure: x", "nccl_error"),
        ("n1: [5] Aborted (core dumped)", "node7: task 3: Exited with exit code 1", "aborted"),
        (
            "*** JOB 42 ON node7 CANCELLED AT x DUE TO TIME LIMIT ***",
            "srun: error: node7: task 3: Killed",
            "time_limit",
        ),
        ("job 42 DUE TO PREEMPTION", "srun: error: node7: task 3: Killed", "preempted"),
        ("srun: error: node7: task 3: Killed", "*** JOB 42 CANCELLED DUE TO TIME LIMIT ***", "killed"),
        ("RuntimeError: HIP out of memory", "Memory access fault by GPU node-3", "out_of_memory"),
        ("torch.distributed.elastic.multiprocessing.errors.ChildFailedError:", "exitcode  : -9", "killed"),
        (
            "n1:8:9 [0] NCCL WARN Net : Connection closed by remote peer",
            "NCCL error in: x.cpp:1, u",
            "rccl_peer_closed",
        ),
        # of a program's own exception and an echo the first counts
        ("KeyError: 'tokens'", "ncclRemoteError: x", "key_missing"),
        ("ncclRemoteError: x", "AttributeError: 'NoneType' object has no attribute 'a'", "nccl_remote_error"),
    ],
)
def test_of_several_failures_the_one_that_explains_the_others_is_the_root(first, second, root):
    scanner = FailureScanner()
    scanner.batch([f"{first}\n", f"{second}\n"])
    assert scanner.root is not None and scanner.root.name == root


@pytest.mark.parametrize("text", ["Stale file handle", "RuntimeError: HIP error: invalid device function"])
@pytest.mark.parametrize(
    "mild",
    [
        "WARNING 06-12 10:00:00 a.py:7] ",
        "2026-11-24 07:00:00 [INFO] cache: ",
        "[W1121 socket.cpp:464] ",
        "W1121 07:56:08.461000 18 torch/a.py:1] ",
        "/opt/a.py:7: UserWarning: ",
        "[1669.1] [node1:1:0] a.c:7  UCX  WARN ",
        "[NeMo W 2026-11-24 a:1] ",
        "[2026-11-24T07:00:00.000] debug2: ",
        "slurmd: debug:  ",
        "node1:1:2 [0] NCCL INFO ",
        "[rank3]: WARNING:root:",
        ":3:hip_platform.cpp         :715 : 8802962852 us: ",
        ":3:hip_error.cpp            :36  : 8802962852 us: ",
        "/opt/errors.py:7: UserWarning: ",
    ],
)
def test_a_line_that_a_logger_marks_as_a_warning_is_no_failure(mild, text):
    assert first_failure([f"{mild}{text}\n"]) is None
    assert first_failure([f"node1:1:2 [0] NCCL WARN {text}\n"]) is not None
    assert first_failure([f"node1:1:2 [0] include/socket.h:360 WARN {text}\n"]) is not None
    assert first_failure([f"{text} (run with NCCL_DEBUG=INFO: WARNING)\n"]) is not None


def test_a_traceback_that_was_cut_is_a_failure():
    match = first_failure(["ok\n", "Traceback (most recent call last):\n", '  File "a.py", line 1\n'])
    assert (match.name, match.line_number) == ("traceback", 2)


def test_a_live_log_tells_on_the_very_line():
    scanner = FailureScanner()
    assert [scanner.line(line) for line in ("fine\n", "fine\n")] == [None, None]
    assert scanner.line("HIP out of memory\n").line_number == 3
    assert scanner.line("CUDA out of memory\n") is None, "each kind where it first stood"
    assert scanner.line("Segmentation fault\n").line_number == 5
    assert (scanner.matches[0].name, [match.name for match in scanner.matches][1:]) == (
        "out_of_memory",
        ["segmentation_fault"],
    )


def test_batches_find_the_same_as_single_lines():
    for path in LOGS.glob("*.log"):
        lines = path.read_text().splitlines(keepends=True)
        scanner = FailureScanner()
        for start in range(0, len(lines), 7):
            scanner.batch(lines[start : start + 7])
        scanner.close()
        assert next(iter(scanner.matches), None) == first_failure(lines)
        assert scanner.lines == len(lines)


def test_rccl_lines_and_those_that_matter_only_with_rdma():
    lines = (LOGS / "rccl_untuned.log").read_text().splitlines()
    assert [match.name for match in rccl(lines)] == ["numa_balancing", "iommu_pt", "libibverbs_missing"]
    assert [match.name for match in rccl(lines, rdma=True)][-1] == "tcp_fallback"


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("amdgpu 0000:c1:00.0: amdgpu: GPU reset begin!", "gpu_reset"),
        ("amdgpu: Fatal error during GPU init", "gpu_init_failed"),
        ("amdgpu: 3 uncorrectable hardware errors detected in umc block", "gpu_ras_uncorrectable"),
        ("amdgpu: Queue preemption failed for queue with doorbell_id", "gpu_queue_preemption"),
        ("bnxt_en 0000:06:00.0 ens1: NIC Link is Down", "link_down"),
        ("bnxt_re: error CQE, status 5", "cqe_error"),
        ('"echo 0 > /proc/sys/kernel/hung_task_timeout_secs" disables this message.', "hung_task"),
        ("watchdog: BUG: soft lockup - CPU#3 stuck for 22s!", "soft_lockup"),
        ("infiniband bnxt_re0: ib_umem_get failed! rc = -14", "umem"),
    ],
)
def test_each_fault_of_the_kernel_log_is_named(line, name):
    assert [match.name for match in kernel_log(["[1.0] boot", f"[9.1] {line}"])] == [name]


def test_what_every_boot_prints_is_no_fault():
    boot = ["mce: CPU supports 32 MCE banks", "amdgpu: 0 uncorrectable hardware errors detected"]
    assert kernel_log([*boot, "ata1: SATA link down (SStatus 0 SControl 300)"]) == []


PREFIXES = [
    "",
    "node07: ",
    "gpu-rack1.site: 3: ",
    "trainer: ",
    "0: [rank3]: ",
    "[default0]:",
    "[1,3]<stderr>:",
    "w-0  | ",
]
TIMES = [*PREFIXES, "2026-11-24T07:00:0{}.123Z ", "[2026-11-24 07:00:0{},000] "]
STEPS = [f" iteration {at}/3 | elapsed time per iteration (ms): 650.0 | lm loss: {9 - at}.0 |\n" for at in (1, 2, 3)]


def lines_of(before: str, *lines: str) -> list[str]:
    """The lines behind a prefix, in which the time goes on from line to line."""
    return [f"{before.format(at)}{line}\n" for at, line in enumerate(lines)]


def optional_import(logged: str = "INFO:x: Import of y failed with: ") -> list[str]:
    return [
        f"{logged}Traceback (most recent call last):",
        '  File "/opt/x/utils.py", line 7, in try_import',
        "    import y",
        "ModuleNotFoundError: No module named 'y'",
    ]


@pytest.mark.parametrize("before", TIMES)
def test_the_exception_is_quoted_whatever_stands_before_it(before: str) -> None:
    frames = ["Traceback (most recent call last):", '  File "t.py", line 1, in f', "    x()", "x.FooError: it broke"]
    found = read_log(lines_of(before, *frames)).failure
    assert found is not None and found.line_number == 4 and found.line.endswith("x.FooError: it broke")


@pytest.mark.parametrize(
    ("behind", "name", "quoted"),
    [
        (["Sizes of tensors must match except in dimension 1."], "tensor_shapes", "ValueError: Sizes of tensors"),
        (["[rank1]: KeyError: 'x'", "Sizes of tensors must match"], "tensor_shapes", "ValueError: Sizes of tensors"),
        (["", "Sizes of tensors must match except in dimension 1."], "traceback", "ValueError:"),
        (["torch.OutOfMemoryError: HIP out of memory."], "out_of_memory", "torch.OutOfMemoryError: HIP"),
        (['  File "t.py", line 7, in g', "torch.OutOfMemoryError: HIP out of memory."], "out_of_memory", "torch.Out"),
        ([], "traceback", "ValueError:"),
    ],
)
def test_the_words_of_an_exception_may_begin_on_its_next_line(behind: list[str], name: str, quoted: str) -> None:
    frames = ["Traceback (most recent call last):", '  File "t.py", line 1, in f', "    x()", "ValueError: "]
    lines = ["[rank1]: Traceback (most recent call last):", *(f"[rank0]: {line}" for line in frames)]
    scanner = FailureScanner()
    for line in [*lines, *(line if line.startswith("[") else f"[rank0]: {line}" for line in behind)]:
        scanner.line(f"{line}\n")
    scanner.close()
    match = next(match for match in scanner.matches if match.name == name)
    assert match.line.startswith(f"[rank0]: {quoted}") and scanner.root == match


@pytest.mark.parametrize("before", TIMES)
@pytest.mark.parametrize("logged", ["", "INFO:x: Import of y failed with: "])
def test_an_import_that_failed_before_the_training_was_handled(before: str, logged: str) -> None:
    log = read_log([*lines_of(before, *optional_import(logged)), *STEPS])
    assert log.failure is None and "handled" in (log.harmless or ("handled",))[0]
    assert read_log(lines_of(before, *optional_import(logged))).failure is not None, "where nothing follows"


def test_what_a_logger_wrote_of_any_exception_was_handled_too() -> None:
    lines = ["cannot warm up: Traceback (most recent call last):", '  File "t.py", line 1', "ValueError: 3"]
    assert read_log([*lines_of("", *lines), *STEPS]).failure is None
    own = ["Traceback (most recent call last):", '  File "t.py", line 1', "ValueError: 3"]
    assert read_log([*lines_of("", *own), *STEPS]).failure is not None


def test_what_a_logger_wrote_was_handled_where_its_end_is_cut_off_too() -> None:
    log = read_log([*lines_of("", *optional_import("cannot warm up: ")[:2]), *STEPS])
    assert log.failure is None and read_log([*lines_of("", *optional_import("")[:2]), *STEPS]).failure is not None


def test_an_import_that_fails_after_the_training_is_a_failure() -> None:
    both = [*lines_of("", *optional_import("")), *STEPS, *lines_of("", *optional_import(""))]
    found = read_log(both).failure
    assert found is not None and found.line_number == len(both)


def test_a_failed_import_is_the_first_failure_where_another_follows() -> None:
    scanner = FailureScanner()
    lines = [*lines_of("", *optional_import("")), "torch.OutOfMemoryError: HIP out of memory\n"]
    answers = [match.name for line in lines if (match := scanner.line(line))]
    assert answers == ["module_missing"] and scanner.matches[0].name == "module_missing"
    assert len(scanner.matches) == 2


def test_another_node_that_trains_shows_that_the_import_was_handled() -> None:
    logs = {"n1": read_log(lines_of("", *optional_import(""))), "n2": read_log(STEPS)}
    gates = {gate.name: gate.verdict for gate in judge_log(logs, {})}
    assert gates["no_failure_signature"] == "ok"
    alone = {gate.name: gate.verdict for gate in judge_log({"n1": logs["n1"]}, {})}
    assert alone["no_failure_signature"] == "fail"


IN_LOADER = ['  File "/opt/Megatron-LM/megatron/training/checkpointing.py", line 9, in load_checkpoint', "    x()"]


def test_a_lock_that_fails_is_named_by_its_place_and_not_by_the_disk() -> None:
    frames = [
        '  File "/opt/venv/lib/python3.11/site-packages/filelock/_unix.py", line 42, in _acquire',
        "    flock(fd, how)",
    ]
    said = "OSError: [Errno 5] Input/output error"
    assert first_failure(failed_in(*frames, exception=said)).name == "file_locks"
    assert first_failure(failed_in('  File "/work/a.py", line 4, in read', exception=said)).name == "io_error"


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("FATAL:   no default remote", "container_engine"),
        ("FATAL:   failed to parse provided GID: exit status 1", "container_engine"),
        ("docker: Error response from daemon: invalid image JSON, no RootFS key", "container_engine"),
        (
            "docker: Error response from daemon: cannot start a paused container",
            "container_engine",
        ),
        ("docker: Error response from daemon: invalid CapAdd", "container_options"),
        (
            "[mpiexec@n1] HYDT_bscd_pbs_launch_procs (x/pbs_launch.c:71): tm_spawn() failed with TM error 1",
            "mpi_daemons",
        ),
        ("[mpiexec@n1] wdir_fn (mpiexec/options.c:71): error setting wdir for executable", "mpi_parameters"),
        ("[mpiexec@n1] control_cb (x/pmiserv_cb.c:71): assert (!closed) failed", "mpi_runtime"),
        ("srun: error: Unable to confirm allocation for job 42: Invalid job id specified", "scheduler_request"),
        ("[17.1] [n1:4:0]  ud_iface.c:12  UCX  ERROR invalid max_x value: 99, can be up to 16", "ucx_rdma"),
        ("[17.1] [n1:4:0]  parser.c:12  UCX  ERROR could not allocate configuration of size 7", "ucx_error"),
        ("libfabric:4:17:efa:mr:efa_mr_reg():12<warn> Unable to register the region", "libfabric"),
        ("npm ERR! code ELIFECYCLE", "task_ended"),
        ("  Warning  Preempting  12s  kubelet  Preempted in order to admit critical pod", "preempted"),
        (
            "  Warning  InspectFailed  12s  kubelet  couldn't parse image name: invalid reference format",
            "image_missing",
        ),
        ("  Warning  SystemOOM  12s  kubelet  System OOM encountered, victim process: python, pid: 42", "killed"),
        ("Error: failed to find image rocm/megatron", "container_engine"),
        ("qsub: Job violates queue and/or server resource limits", "scheduler_request"),
        ("004 (42.000.000) 2026-11-30 10:00:00 Job was evicted.", "preempted"),
        ("    Can not reconnect to slot1@node7, rescheduling job", "node_failed"),
        ("\t(1) Normal termination (return value 1)", "task_ended"),
        ("sbatch: error: Batch job submission failed: Transport endpoint is not connected", "scheduler_unreachable"),
        (
            "Warning  Failed  2m  kubelet  Error: Get https://192.0.2.1/api/v1/x: dial tcp 192.0.2.1:443: i/o timeout",
            "pod_failed",
        ),
        (
            "grpc_server.cc:102:  Check failed: server_ Failed to start the grpc server. The specified port is 8",
            "address_in_use",
        ),
    ],
)
def test_the_words_of_one_program_are_not_taken_for_those_of_another(line: str, name: str) -> None:
    assert first_failure([line]).name == name


def failed_in(*frames: str, exception: str = "ValueError: 7 of 9", head: bool = True) -> list[str]:
    return [*(["Traceback (most recent call last):"] if head else []), *frames, exception]


@pytest.mark.parametrize("head", [True, False], ids=["whole", "its head is lost"])
@pytest.mark.parametrize("before", TIMES)
def test_an_exception_in_unknown_words_is_named_by_where_it_was_raised(before: str, head: bool) -> None:
    lines = lines_of(before, '  File "/home/u/train.py", line 3, in main', *failed_in(*IN_LOADER, head=head))
    found = first_failure(lines)
    assert found is not None and (found.name, found.line_number) == ("checkpoint_refused", len(lines))


def test_a_long_log_cuts_no_traceback_whose_head_is_lost() -> None:
    lines = failed_in(*IN_LOADER, *IN_LOADER, head=False)
    for before in range(4096 - len(lines) - 2, 4096 + 2):  # old stacks are dropped once in so many lines
        found = first_failure([*["loading\n"] * before, *lines_of("", *lines)])
        assert found is not None and found.name == "checkpoint_refused", before


@pytest.mark.parametrize("head", [True, False], ids=["whole", "its head is lost"])
def test_the_tracker_of_shared_memory_fails_no_job(head: bool) -> None:
    frame = '  File "/usr/lib/python3.11/multiprocessing/resource_tracker.py", line 209, in main'
    lines = failed_in(frame, "    cache[rtype].remove(name)", exception="KeyError: '/mp-7'", head=head)
    assert read_log([*STEPS, *lines_of("", *lines)]).failure is None


def test_the_innermost_frame_that_any_entry_knows_names_the_exception() -> None:
    data = '  File "/opt/venv/lib/python3.10/site-packages/datasets/table.py", line 2, in f'
    own = '  File "/home/u/my.py", line 1, in g'
    assert first_failure(failed_in(*IN_LOADER, data, own)).name == "data_refused"
    assert first_failure(failed_in(data, own, *IN_LOADER)).name == "checkpoint_refused"
    assert first_failure(failed_in(own)).name == "value_refused"
    assert first_failure(failed_in(own, exception="SevenError: 7 of 9")).name == "traceback"


@pytest.mark.parametrize("crash", ["free(): invalid pointer", "Segmentation fault (core dumped)"])
@pytest.mark.parametrize(
    ("end", "name"),
    [
        ("MPI_ABORT was invoked on rank 3 in communicator MPI_COMM_WORLD", "mpi_abort"),
        ("[node7:12532] *** MPI_ERRORS_ARE_FATAL (processes in this communicator will now abort,", "mpi_call"),
    ],
)
def test_a_crash_behind_the_programs_own_end_is_no_root_and_one_before_it_is(end: str, name: str, crash: str) -> None:
    assert scanned(lines_of("", end, crash), [], trains=False).root.name == name
    assert scanned(lines_of("", crash, end), [], trains=False).root.name != name
    assert scanned(lines_of("", end, *["step"] * 200, crash), [], trains=False).root.name != name


def test_no_loggers_word_before_a_death_of_the_gpu_hides_it() -> None:
    for before in ("debug1: ", "[node7] srun: debug: ", "[WARNING] ", "W1130 20:11 ", "/opt/a.py:7: UserWarning: ", ""):
        assert first_failure([f"{before}x Memory access fault by GPU node-3"]).name == "gpu_memory_fault", before


def test_a_library_s_report_that_a_program_handles_fails_no_training() -> None:
    report = "HDF5-DIAG: Error detected in HDF5 (1.14.0) MPI-process 14:"
    assert read_log([*lines_of("", report), *STEPS]).failure is None
    alone = read_log(lines_of("", report)).failure
    assert alone is not None and alone.name == "hdf5_failed"


def test_a_program_that_begins_all_lines_with_its_name_is_no_host() -> None:
    for line in (
        "gcsfuse: mounting failed: SetUpBucket: bucket does not exist",
        "qmgr: Syntax error - x must be a number",
    ):
        names = {read_log([f"{before}{line}\n"] * 3).failure for before in ("", "node7: ")}
        assert len({match and match.name for match in names}) == 1 and None not in names, line


def test_echoes_of_many_hosts_hide_no_other_kind_of_failure() -> None:
    echoes = [f"n{n}: n{n}:8:9 [0] NCCL WARN Net : Connection closed by remote peer\n" for n in range(2000)]
    log = read_log([*echoes, "n7: torch.OutOfMemoryError: HIP out of memory.\n"])
    assert log.failure is not None and log.failure.name == "out_of_memory" and len(log.failures) < 1100


@pytest.mark.parametrize(
    "words", ["cp: cannot stat '/a': No such file or directory", "run.sh: line 9: jq: command not found"]
)
def test_what_a_jobs_script_misses_behind_a_failure_is_no_root_and_before_it_is(words: str) -> None:
    lost = "n1:8:9 [0] NCCL WARN Net : Connection closed by remote peer"
    assert scanned(lines_of("", lost, words), [], trains=False).root.name == "rccl_peer_closed"
    assert scanned(lines_of("", words, lost), [], trains=False).root.name in ("file_tool", "command_not_found")


@pytest.mark.parametrize(
    ("words", "place", "name"),
    [
        ("ValueError: num_pieces must be positive", "triton/language/core.py", "compiler_refused"),
        ("ValueError: num_pieces must be positive", "datasets/arrow_dataset.py", "data_refused"),
        ("ValueError: num_pieces must be positive", "transformers/tokenization_python.py", "tokenizer_refused"),
        ("ValueError: num_pieces must be positive", "torch/distributed/fsdp/x.py", "configuration_refused"),
        ("ValueError: qkv shape mismatch: expected 7", "torch/distributed/checkpoint/x.py", "checkpoint_refused"),
        ("ValueError: qkv shape mismatch: expected 7", "torch/nn/functional.py", "tensor_shapes"),
        ("AssertionError: tp_size is not 7", "torch/distributed/checkpoint/x.py", "checkpoint_refused"),
    ],
)
def test_a_place_that_says_more_than_the_words_names_the_failure(words: str, place: str, name: str) -> None:
    frame = f'  File "/opt/venv/lib/python3.12/site-packages/{place}", line 7, in f'
    assert first_failure(failed_in(frame, exception=words)).name == name


@pytest.mark.parametrize(
    ("path", "function"),
    [
        ("lightning/pytorch/strategies/strategy.py", "training_step"),
        ("torch/_dynamo/eval_frame.py", "_fn"),
        ("accelerate/accelerator.py", "backward"),
        ("torch/optim/optimizer.py", "wrapper"),
        ("torch/optim/adam.py", "step"),
        ("jsonargparse/_cli.py", "_run_component"),
        ("gin/config.py", "gin_wrapper"),
        ("huggingface_hub/hub_mixin.py", "from_pretrained"),
        ("deepspeed/runtime/zero/partition_parameters.py", "wrapper"),
        ("megatron/core/pipeline_parallel/schedules.py", "forward_step"),
        ("torch/distributed/fsdp/fully_sharded_data_parallel.py", "forward"),
        ("peft/peft_model.py", "forward"),
        ("verl/single_controller/base/decorator.py", "inner"),
        ("vllm/v1/worker/gpu_worker.py", "load_model"),
        ("torch/cuda/graphs.py", "capture"),
    ],
)
def test_a_frame_that_only_calls_what_it_got_names_no_failure_inside_of_that(path: str, function: str) -> None:
    calls = f'  File "/opt/venv/lib/python3.10/site-packages/{path}", line 2, in {function}'
    own = '  File "/home/u/my.py", line 1, in g'
    assert first_failure(failed_in(calls, own, exception="SevenError: 7 of 9")).name == "traceback"
    assert first_failure(failed_in(own, calls, exception="SevenError: 7 of 9")).name.endswith("_refused")


@pytest.mark.parametrize(
    ("exception", "name"),
    [
        ("torch.OutOfMemoryError: HIP out of memory. Tried to allocate 2.00 GiB", "out_of_memory"),
        ("OSError: [Errno 28] No space left on device", "disk_full"),
        ("torch.distributed.DistStoreError: Socket Timeout", "store_timeout"),
        ("OSError: [Errno 19] No such device", "system_error"),
        ("OSError: [Errno 107] Transport endpoint is not connected", "endpoint_lost"),
    ],
)
def test_words_that_an_entry_knows_say_more_than_the_place(exception: str, name: str) -> None:
    assert first_failure(failed_in(*IN_LOADER, exception=exception)).name == name


@pytest.mark.parametrize(
    "exception",
    [
        "RuntimeError: the other side has gone",
        "ValueError: the dataset of rank 3",
        "RuntimeError: [1] Connection closed",
    ],
)
def test_what_a_collective_passes_on_is_no_failure_of_this_rank_wherever_the_call_came_from(exception: str) -> None:
    call = (
        '  File "/opt/venv/lib/python3.10/site-packages/torch/distributed/distributed_c10d.py", line 9, in all_reduce'
    )
    found = first_failure(failed_in(*IN_LOADER, call, exception=exception))
    known = entry(found.name)
    assert known is not None and known.role == "echo"


def test_a_traceback_that_rich_draws_is_read_as_any_other() -> None:
    drawn = [
        "╭──────── Traceback (most recent call last) ────────╮",
        "│ /home/u/train.py:9 in main                        │",
        "│ ❱ 9 │   raise RuntimeError('HIP out of memory')    │",
        "│ /opt/Megatron-LM/megatron/training/arguments.py:7 in validate_args │",
        "╰────────────────────────────────────────────────────╯",
        "ValueError: 7 of 9",
    ]
    found = first_failure(drawn)
    assert (found.name, found.line_number) == ("arguments_refused", 6)
    assert read_log([*lines_of("", *drawn), *STEPS]).failure is not None, "no logger's words stand before its head"


@pytest.mark.parametrize(
    "frame",
    [
        "/usr/lib/python3.10/dist-packages/datasets/builder.py in _prepare_split_single(self, fpath)",
        "File ~/venv/lib/python3.10/site-packages/datasets/builder.py:1925, in ArrowBasedBuilder._prepare(self, fpath)",
        r'  File "C:\venv\lib\site-packages\datasets\builder.py", line 1925, in _prepare',
    ],
)
def test_a_notebooks_frames_are_read_as_any_others(frame: str) -> None:
    lines = [
        "KeyError                                  Traceback (most recent call last)",
        frame,
        "--> 7 x[9]",
        "KeyError: 9",
    ]
    assert first_failure(lines).name == "data_refused"


def test_an_assertion_without_words_is_read_by_its_source() -> None:
    frames = ['  File "/home/u/model.py", line 3, in __init__', "    assert heads % tp_size == 0"]
    assert first_failure(failed_in(*frames, exception="AssertionError")).name == "parallel_sizes"
    assert first_failure(failed_in(*frames, exception="AssertionError: why")).name != "parallel_sizes"
    assert read_scanner(lines_of("", "Traceback (most recent call last):", *frames)) == "parallel_sizes"
    at_once = failed_in(frames[0], exception="AssertionError    : hook = run(x)FSDP wants 7 pieces")
    assert first_failure(at_once).name == "wrapper_refused", "two ranks wrote at once"
    noted = [*failed_in(frames[0], exception="")[:-1], "--> 3     assert heads % tp_size == 0", "AssertionError: "]
    assert read_scanner(noted) == "parallel_sizes"


@pytest.mark.parametrize(
    "before", ["FAILED tests/run_test.py::TestRun::test_it[7-a b] - ", "ERROR tests/run_test.py - "]
)
def test_what_pytest_sums_up_names_the_failure(before: str) -> None:
    assert first_failure([f"{before}AssertionError: FSDP wants 7 pieces"]).name == "wrapper_refused"


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("    for a, b, c in train_loader:", "data_refused"),
        ("    weights = ckpt['model'] + 7", "checkpoint_refused"),
        ("--> 9     width = config['width']", "configuration_refused"),
        ("    folder = sys.argv[7]  # of the pieces", "arguments_refused"),
        ("    x = pieces(7)  # of config['pieces']", "value_refused"),
    ],
)
def test_the_line_that_failed_says_what_it_was_about(source: str, name: str) -> None:
    frames = [
        '  File "/home/u/a.py", line 9, in go',
        "    go(sys.argv[1])",
        '  File "/home/u/b.py", line 9, in go',
        source,
    ]
    assert first_failure(failed_in(*frames, exception="ValueError: 7 pieces")).name == name
    flush = [line.strip().removeprefix("--> 9").strip() for line in frames]
    assert first_failure([*flush, "ValueError: 7 pieces"]).name == name, "without its head and its indents"


@pytest.mark.parametrize(("quote", "rank"), [("'", ""), ('"', "[rank3]: ")])
def test_a_traceback_on_one_line_is_read_as_any_other(quote: str, rank: str) -> None:
    """Workers of older data loaders hand it on as their exception's words; loggers write it into JSON."""
    inner = r"  File \"/opt/x/site-packages/datasets/builder.py\", line 7, in _prepare\n    x[7]\nKeyError: 7\n"
    found = first_failure([f"{rank}KeyError: {quote}Traceback (most recent call last):\\n{inner}{quote}"])
    assert (found.name, found.line_number) == ("data_refused", 1)


@pytest.mark.parametrize("after", ["iteration 1/3", "ValueError raised and handled", "done"])
def test_a_stack_that_is_printed_without_an_exception_is_no_failure(after: str) -> None:
    stack = ['  File "/home/u/train.py", line 3, in main', "    loss.backward()", *IN_LOADER]
    assert first_failure(["Forward call that is profiled:", *stack, after, "ordinary"]) is None
    scanner = FailureScanner()
    scanner.batch([f"{line}\n" for line in [*stack, after]])
    assert not scanner.open and scanner.close() is None


def test_a_stack_of_a_rank_that_says_no_more_is_not_waited_for() -> None:
    scanner = FailureScanner()
    scanner.batch([f"[rank3]: {line}\n" for line in IN_LOADER])
    assert scanner.open
    scanner.batch([f"[rank0]: iteration {at}\n" for at in range(10_000)])
    assert not scanner.open and not scanner.matches


BACKGROUND = {
    "a thread's": [
        "Exception in thread QueueFeederThread:\n",
        *(
            'Traceback (most recent call last):\n  File "queues.py", line 9, in _feed\n',
            "OSError: [Errno 9] Bad file descriptor\n",
        ),
        *("\n", "During handling of the above exception, another exception occurred:\n", "\n"),
        *(
            'Traceback (most recent call last):\n  File "threading.py", line 9, in run\n',
            "BrokenPipeError: [Errno 32] Broken pipe\n",
        ),
    ],
    "a loader's thread": [
        "Exception in thread Thread-4 (_pin_memory_loop):\n",
        *(
            'Traceback (most recent call last):\n  File "x.py", line 9, in run\n',
            "ConnectionResetError: [Errno 104] Connection reset by peer\n",
        ),
    ],
    "at the exit": [
        "Error in atexit._run_exitfuncs:\n",
        *(
            'Traceback (most recent call last):\n  File "x.py", line 9, in close\n',
            "ConnectionResetError: Connection lost\n",
        ),
    ],
    "a logger's": [
        "--- Logging error ---\n",
        *(
            'Traceback (most recent call last):\n  File "x.py", line 9, in emit\n',
            "ValueError: I/O operation on closed file.\n",
        ),
    ],
    "the tracker's": [
        "Traceback (most recent call last):\n",
        *(
            '  File "/usr/lib/python3.10/multiprocessing/resource_tracker.py", line 209, in main\n',
            "KeyError: '/psm_1'\n",
        ),
    ],
    "a stream's": [
        "Exception ignored in: <_io.TextIOWrapper name='<stdout>'>\n",
        "BrokenPipeError: [Errno 32] Broken pipe\n",
    ],
    "wandb's": ["wandb: ERROR Error while calling W&B API: run not found (<Response [404]>)\n"],
}


def scanned(before: list[str], after: list[str], trains: bool = True) -> FailureScanner:
    scanner = FailureScanner()
    for line in "".join(before).splitlines(keepends=True):
        scanner.line(line)
    if trains:
        scanner.went_on()
    for line in "".join(after).splitlines(keepends=True):
        scanner.line(line)
    scanner.close()
    return scanner


@pytest.mark.parametrize("rank", ["", "[rank3]: "])
@pytest.mark.parametrize("lines", BACKGROUND.values(), ids=BACKGROUND)
def test_an_exception_that_ends_no_process_is_no_failure_once_the_program_trains(lines: list[str], rank: str) -> None:
    given = [rank + line for line in "".join(lines).splitlines(keepends=True)]
    scanner = scanned([], given)
    assert not scanner.matches and scanner.harmless
    assert scanned(
        [], [*given, *(rank + line for line in ("Traceback (most recent call last):\n", "RuntimeError: x\n"))]
    ).matches


@pytest.mark.parametrize("lines", [BACKGROUND[name] for name in ("a thread's", "at the exit", "a logger's", "wandb's")])
def test_the_same_before_the_training_explains_why_there_is_none(lines: list[str]) -> None:
    assert scanned(lines, [], trains=False).matches


def test_a_thread_that_meets_a_fault_of_the_gpu_is_a_failure() -> None:
    fault = [
        "Exception in thread Thread-4:\n",
        "Traceback (most recent call last):\n",
        "RuntimeError: HIP error: an illegal memory access was encountered\n",
    ]
    assert scanned([], fault).matches


@pytest.mark.parametrize(
    "line",
    [
        "srun: error: node2: task 0: Exited with exit code 1\n",  # training_results_v4.0, a step before the run
        "srun: error: Unable to create step for job 7: More processors requested than permitted\n",
        "bash: line 8: 4242 Killed  python warm.py\n",
        "Failed to get IB devices list: Function not implemented\n",  # training_results_v3.1, of one node
        "node1:8:9 [0] misc/ibvwrap.cc:212 NCCL WARN Call to ibv_open_device failed\n",  # NVIDIA/nccl#451: sockets
    ],
)
def test_what_a_tool_said_before_the_training_was_handled(line: str) -> None:
    assert not scanned([line], []).matches
    assert scanned([line], [], trains=False).matches
    assert scanned([], [line]).matches


@pytest.mark.parametrize(
    "line",
    [
        "rm: cannot remove '/usr/local/cuda/compat/lib': Read-only file system\n",  # training_results_v0.7
        "wandb: ERROR Error while calling W&B API: permission denied\n",
        "Error response from daemon: No such container: smoke\n",
        "curl: (28) Connection timed out after 10001 milliseconds\n",
        "flock: failed to get lock\n",
        "Open MPI detected an inbound MPI TCP connection request from a peer\n",
        "[2026-11-30 20:11:03][HIPBLASLT][7][Error][rocblaslt_matmul_desc_set_pieces] invalid buf size 4\n",
    ],
)
def test_what_no_training_says_of_its_own_ends_none_that_goes_on(line: str) -> None:
    for before in (False, True):  # the first iteration, or between two
        scanner = FailureScanner()
        if not before:
            scanner.went_on()
        scanner.line(line)
        scanner.went_on()
        scanner.close()
        assert not scanner.matches
    assert scanned([line], [], trains=False).matches


@pytest.mark.parametrize(
    "line",
    [
        "------------------------ arguments ------------------------\n",
        "[2026-11-24] api: [INFO] [default] Worker group FAILED. 3/3 attempts left; will restart worker group\n",
        "I1124 07:00:00.1 1 api.py:8] [default] Detected 1 new nodes from group_rank=0; will restart worker group\n",
        "  restart_count=1\n",
    ],
)
def test_a_program_that_begins_again_is_a_failure_of_its_run(line: str) -> None:
    """Also where its lines go on behind those of the first start, as from a checkpoint."""
    assert scanned([], [line]).matches
    assert not scanned([line.replace("=1", "=0")], []).matches or "worker group" in line


@pytest.mark.parametrize(
    "wrapped",
    [
        "RuntimeError: /opt/te/common/util/cuda_runtime.cpp:10 in function f: CUDA Error: {}",
        "CUDA error at /src/kernel.cu:12: {}",
        "CUDA error 7 [/src/kernel.cu, 12]: {}",
        "Error {} at line 119 in file /src/csrc/ops.cu",
        "RuntimeError: Triton Error [HIP]:  Code: 7, Messsage: {}",
        "node1:1:2 [0] enqueue.cc:12 NCCL WARN Cuda failure 7 '{}'",
        "GPUassert: {} kernel.cu 12",
        "CUDA Runtime API error 7: {}",
        "RuntimeError: cuda runtime error (7) : {} at kernel.cpp:12",
        "F0101 kernel.cc:12] Check failed: e == cudaSuccess (7 vs. 0) : {}",
    ],
)
@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("invalid configuration argument", "gpu_call_arguments"),
        ("initialization error", "gpu_start"),
        ("misaligned address", "gpu_illegal_access"),
        ("out of memory", "out_of_memory"),
    ],
)
def test_the_words_of_the_gpus_runtime_are_known_behind_any_librarys_own(wrapped: str, words: str, name: str) -> None:
    match = first_failure([wrapped.format(words)])
    assert match and match.name == name


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("[Errno 13] Permission denied: '/checkpoints/7'", "file_permission"),
        ("[Errno 39] Directory not empty: '/checkpoints/7'", "file_conflict"),
        ("[Errno 104] Connection reset by peer", "endpoint_lost"),
        ("[Errno 32] Broken pipe", "endpoint_lost"),
        ("[Errno 113] No route to host", "connect_failed"),
        ("[Errno 111] Connection refused", "connect_failed"),
    ],
)
def test_an_error_of_the_system_is_known_behind_any_programs_words_unless_it_goes_on(words: str, name: str) -> None:
    assert first_failure([f"Checkpoint storage validation failed: {words}"]).name == name
    assert first_failure([f"2026-11-29 10:00:00,123 - trainer - ERROR - Error while saving: {words}"]).name == name
    assert first_failure([f"could not write the cache, will ignore error and continue: {words}"]) is None
    assert first_failure([f"WARNING: could not write the cache: {words}"]) is None


def test_words_of_the_gpus_runtime_that_no_entry_has_are_a_failure_all_the_same() -> None:
    assert first_failure(["CUDA error at /src/kernel.cu:12: 7 pieces"]).name == "cuda_call"
    assert first_failure(["RuntimeError: Triton Error [HIP]:  Code: 7, Messsage: 7 pieces"]).name == "compiler_refused"
    assert first_failure(["CUDA error checks are on, CUDA errors: 0"]) is None


def test_a_traceback_that_was_cut_is_named_by_where_it_passed_unless_a_line_says_more() -> None:
    cut = [
        "Traceback (most recent call last):\n",
        '  File "/opt/venv/lib/python3.10/site-packages/aiter/jit/core.py", line 588, in get_module\n',
    ]
    assert read_scanner(cut) == "attention_refused"
    assert read_scanner([*cut[1:], "    assert self.pieces\n"]) == "attention_refused", "without its head"
    assert read_scanner([*cut[1:], "    self.run()\n", "    assert 7\n"]) == "attention_refused", "of two ranks"
    assert read_scanner(["[rank1]: NCCL error: unhandled system error\n", *cut]) == "nccl_error"
    assert read_scanner(["(raylet) A worker died or was killed while executing a task\n", *cut]) == "cluster_node_lost"


def read_scanner(lines: list[str]) -> str:
    scanner = FailureScanner()
    scanner.batch(lines)
    scanner.close()
    assert scanner.root
    return scanner.root.name


@pytest.mark.parametrize(
    ("behind", "name"),
    [
        ("[rank0]: Failed to CUDA calloc async 608 bytes", "rccl_allocation"),
        ("[rank0]: Error: network AWS Libfabric not found.", "rccl_plugin"),
        ("[rank1]: Failed to CUDA calloc async 608 bytes", None),
        ('[rank0]:   File "/workspace/train.py", line 3, in main', None),
    ],
)
def test_what_pytorch_cites_of_rccl_is_read_as_rccls_own_words(behind, name):
    failures = FailureScanner()
    for line in ("[rank0]: ncclSystemError: System call failed.", "[rank0]: Last error:", behind):
        failures.batch([line + "\n"])
    assert [match.name for match in failures.matches] == ["nccl_error", *filter(None, [name])]
    assert name is None or failures.matches[-1].line == behind
    assert not failures.line("[rank0]: Failed to CUDA calloc async 24 bytes\n")


def test_what_is_cited_on_the_same_line_counts_more_than_what_wraps_it() -> None:
    """Ray and notebooks print all words of an exception in one line (tatsu-lab/stanford_alpaca#207)."""
    wraps = "[E] Some NCCL operations have failed or timed out. NCCL error: remote process exited, ncclRemoteError: x. "
    assert first_failure([wraps + "Last error: NET/IB : Got completion with error 12, opcode 0\n"]).name == (
        "rdma_retry_exceeded"
    )


@pytest.mark.parametrize(
    "line",
    [
        '    assert num_tokens % world_size == 0, "Batch size must be divisible by world size"',
        '        raise ValueError(f"reshape[0]={reshape[0]} must be divisible by world_size")',
        '            raise RuntimeError("CUDA out of memory")',
        '    if "out of memory" in str(error):',
        '    print("CUDA out of memory: try a smaller batch")',
        "    except torch.cuda.OutOfMemoryError as error:",
    ],
)
def test_source_code_that_a_program_prints_is_no_failure(line: str) -> None:
    """The logs of KellerJordan/modded-nanogpt begin with the program's own source."""
    scanner = FailureScanner()
    scanner.batch([line + "\n", "RuntimeError: CUDA out of memory\n" if "memory" in line else "done\n"])
    scanner.close()
    assert [match.line_number for match in scanner.matches] == [2] * ("memory" in line)


def test_a_warning_explains_a_failure_at_the_end_and_none_that_the_program_outlived():
    warning = "wandb: Network error (ReadTimeout), entering retry loop.\n"
    for behind, name in ((0, "tracking_unreachable"), (99, "tracking_unreachable"), (100, None)):
        scanner = FailureScanner()
        assert [scanner.line(line) for line in [warning, *["step done\n"] * behind]] == [None] * (behind + 1)
        scanner.close()
        assert (scanner.root and scanner.root.name) == name
    scanner = FailureScanner()
    scanner.line(warning)
    scanner.went_on()
    scanner.close()
    assert scanner.root is None


def test_a_warning_before_an_exception_without_an_entry_explains_it_and_one_behind_it_does_not():
    lost = "The node has been marked dead because the monitor has missed too many heartbeats from it.\n"
    trace = ["Traceback (most recent call last):\n", '  File "a.py", line 1\n', "ray.worker.RayGetError: no object\n"]
    assert scanned([lost, *trace], [], trains=False).root.name == "cluster_node_lost"
    assert scanned([*trace, lost], [], trains=False).root.name == "traceback"


def test_a_device_that_xla_left_out_explains_a_failure_and_no_training():
    left_out = "2024-09-19 21:50:58.963539: W external/xla/xla/service/platform_util.cc:199] unable to create \
StreamExecutor for CUDA:0: INTERNAL: failed call: CUDA_ERROR_DEVICE_UNAVAILABLE: devices are busy or unavailable\n"
    assert scanned([left_out], [], trains=False).root.name == "gpu_busy"
    assert scanned([left_out], ["step 2\n"]).root is None


def test_what_older_torchrun_says_of_its_exit_barrier_is_no_failure():
    scanner = FailureScanner()
    for line in (
        "(node-0 pid=7) ERROR:torch.distributed.elastic.agent.server.api:Error waiting on exit barrier.\n",
        "(node-0 pid=7) Traceback (most recent call last):\n",
        '(node-0 pid=7)   File "/lib/torch/distributed/elastic/agent/server/api.py", line 906, in _exit_barrier\n',
        "(node-0 pid=7) RuntimeError: Socket Timeout\n",
    ):
        scanner.line(line)
    scanner.close()
    assert scanner.root is None


@pytest.mark.parametrize("log", sorted(LOGS.glob("*.log")), ids=lambda path: path.stem)
def test_an_iteration_line_holds_no_mark_of_a_failure(log: Path) -> None:
    """Most lines of a long log are such: each would be read with all entries."""
    of_failures = [*marks()[0], *marks()[1]]
    lines = [
        line for line in log.read_text("utf-8", "replace").splitlines() if " iteration " in line and "loss: " in line
    ]
    assert not [(mark, line) for line in lines for mark in of_failures if mark in line]


OUTLIVED = [
    "distributed.nanny - INFO - Worker process 4242 was killed by signal 15",
    "22/03/19 17:58:47 ERROR TaskSchedulerImpl: Lost executor 0 on 192.0.2.4: Executor decommission.",
    "2026-11-30 10:00:00,000 - distributed.worker - ERROR - x: OSError: Timed out trying to connect to tcp://n:8786",
    "2026-11-30 10:00:00,000 - distributed.nanny - ERROR - Failed to start worker process.  Restarting",
    "[1764496800.05] [node1:56373:0]    tl_cuda_team.c:129  TL_CUDA ERROR failed to create UCC team",
    "A system call failed during shared memory initialization that should",
    "[node7:04242] mca_btl_vader: failed to attach, another way is used",
    "s3: SlowDown: Please reduce your request rate. Attempt 2 of 10",
    "The following keys are missing from the checkpoint and begin anew: ['lm_head.weight']",
    "this checkpoint contains only the model: the optimizer starts anew",
    "libfabric:42:17::core:core:fi_getinfo_():1352<warn> fi_getinfo() call failed: No data available",
    "    4.20%  python  libc.so.6  [.] _int_free",
    "Allocate failed due to fragmentation, a smaller workspace is used",
    "a flaky download, once more: fsspec.exceptions.FSTimeoutError",
    "W external/xla/service/gpu/autotuner.cc:12] it failed: RESOURCE_EXHAUSTED: Shared memory size limit exceeded",
    "    ValueError: the data set is empty",
    "[rank0]:   ValueError: the data set is empty",
    "sample 14: 总线错误的解释",
    "Prompt: 什么是段错误？",
    "浮点异常检测：关闭",
    "Il nemico fu Ucciso nella battaglia.",
    "O rei foi dado por Morto na história.",
    "qsub: job 42.pbs ready",
    "\t(1) Normal termination (return value 0)",
    "アプリを 強制終了 する方法",
    "Было Убито и ранено много людей.",
    "Erreur de segmentation (mIoU): 0.32",
    "Ausnahmen: Gleitkomma-Ausnahme maskiert",
    "Checksum for file train_0.bin: 0x1234",
    "Digest did not match the cached one, it is computed again",
    "validation: failed size validation of 0 samples",
    "insufficient space left in buffer, it grows",
    "Scratch memory limit exceeds request: well",
    "msgpack.exceptions.ExtraData ignored",
    "Unpack failed: incomplete input, waiting for more bytes",
    "a drill: node failure on node7 passed, training goes on",
    "LSB_TERM_RUNLIMIT not set",
    "node1:811:911 [0] misc/gdrwrap.cc:30 NCCL WARN Failed to open libgdrapi.so, continuing without",
    "2026-11-30 07:00:00.1: W tensorflow/core/framework/op_kernel.cc:1839] OP_REQUIRES failed at x.cc:4 : "
    "INVALID_ARGUMENT: x",
]
AT_THE_START = [
    "CUDA SETUP: Required library version not found: libbitsandbytes_cuda118.so. Maybe you need to compile it?",
    "ERROR:bitsandbytes.cextension:Could not load bitsandbytes native library: libcusparse.so.11: cannot open",
    "cannot import name 'FusedRMSNorm' from 'apex.normalization' (unknown location), torch is used",
    "Error: no container with ID c788 found in database: no such container",
]


@pytest.mark.parametrize("line", [*OUTLIVED, *AT_THE_START])
def test_what_healthy_programs_print_at_their_start_is_no_failure(line: str) -> None:
    assert scanned([f"{line}\n"], ["step done\n"]).matches == []


@pytest.mark.parametrize("line", OUTLIVED)
def test_what_healthy_programs_print_while_they_train_is_no_failure(line: str) -> None:
    assert scanned([], [f"{line}\n", *["step done\n"] * 3]).matches == []


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("train.sh：第 9 行：  4242 已杀死               python train.py", "killed"),
        ("train.sh: Zeile 3:  4242 Getötet                python train.py", "killed"),
        ("node7: train.sh: 行 9:  4242 段错误               （核心已转储）python train.py", "segmentation_fault"),
        ("train.sh : ligne 3 :  4242 Instruction non permise (core dumped) python train.py", "illegal_instruction"),
        ("[1]+  浮点异常               (核心已转储) python train.py", "arithmetic_exception"),
        ("[rank0]: Bus-Zugriffsfehler (Speicherabzug geschrieben)", "bus_error"),
        ("Аварийный останов", "aborted"),
        ("train.sh: linha 9:  4242 Morto                python train.py", "killed"),
        ("RolloutWorker: Segmentation fault", "segmentation_fault"),
    ],
)
def test_what_a_shell_says_of_a_signal_is_a_failure_in_any_language(line: str, name: str) -> None:
    assert [match.name for match in scanned([], [f"{line}\n"]).matches] == [name]


@pytest.mark.parametrize(
    "line",
    [
        "generated text: Segmentation fault",
        "sample 3: the kernel wrote Bus error (core dumped) and left",
        "the story ends with a Segmentation fault of the heart",
        "and then: Illegal instruction, they cried",
        "completion: RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB",
        "assistant: Exit code 137 means that the process was killed",
        "[sandbox] program exited with code 139",
        "tool result: the snippet exited with code 127",
        "probe of nccl: exit code: 127",
        "run_tests: exit code: 127",
        "tool_call: exited with code 139",
        "probe: nvidia-smi exited with code 127",
        '{"step": 20, "prompt": "Why do I get RuntimeError: CUDA error: out of memory?", "reward": 0.3}',
        '<|assistant|> To fix "NCCL error: unhandled system error" restart the job',
        "[rank0]: <think> the error is CUDA error: device-side assert triggered </think>",
        'Rollout 12/64: response: "the pod was OOMKilled with exit code 137"',
        "observation: ConnectionResetError: [Errno 104] Connection reset by peer",
        "/bin/sh: rocm-smi: not found",
    ],
)
def test_what_a_model_writes_or_its_tools_answer_is_no_failure(line: str) -> None:
    assert not scanned([f"{line}\n"], [], trains=False).matches
    assert FailureScanner(every=True).line(f"{line}\n") is None


@pytest.mark.parametrize(
    "before",
    ["sandbox1: ", "tool | ", "tool_bench-1  | ", "[sandbox-0]: ", "[tool_bench]: ", "[probe0] ", "user1: ", "a: "],
)
@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB", "out_of_memory"),
        (
            "Memory access fault by GPU node-4 (Agent handle: 0x55) on address 0x7f00. Reason: Unknown.",
            "gpu_memory_fault",
        ),
    ],
)
def test_a_host_or_a_job_whose_name_holds_such_a_word_still_fails(before: str, line: str, name: str) -> None:
    assert name in [match.name for match in scanned([], [f"{before}{line}\n"], trains=False).matches]


@pytest.mark.parametrize("of", ["python /data/tests/train.py", "container tool_bench", "tool-bench-1"])
def test_an_exit_code_is_the_jobs_where_a_path_or_a_name_holds_such_a_word(of: str) -> None:
    found = FailureScanner(every=True).line(f"{of} exited with code 139\n")
    assert found is not None and found.name == "segmentation_fault"


@pytest.mark.parametrize(
    "line",
    [
        "RuntimeError in sample 5: {}",
        "During generation: {}",
        "No such tool: {}",
        "Reading samples: {}",
        "Sample:  50%|##   | 10/20 {}",
    ],
)
def test_a_failure_before_the_name_of_a_text_counts(line: str) -> None:
    assert scanned([], [line.format("HIP out of memory. Tried to allocate 2.00 GiB\n")], trains=False).matches


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("train.sh: line 7: 4242 Segmentation fault      (core dumped) python train.py", "segmentation_fault"),
        ("srun: error: node7: task 3: Bus error", "bus_error"),
        ("2026-11-24T07:00:00.123456789+02:00 stdout P [rank7]: KeyError: 'x'", "key_missing"),
        ("Command terminated by signal 11", "segmentation_fault"),
        ("forrtl: severe (174): SIGSEGV, segmentation fault occurred", "segmentation_fault"),
        ("[node7:4242] Signal: Illegal instruction (4)", "illegal_instruction"),
        ("Application 4242 exit signals: Killed", "killed"),
        ("batch response: This repository is over its data quota", "git_refused"),
        (
            "docker: Error response from daemon: toomanyrequests: You have reached your pull rate limit",
            "registry_rate_limit",
        ),
        ("mlflow.exceptions.MlflowException: API request failed: [Errno 111] Connection refused", "connect_failed"),
        ("mlx5: got completion with error: Input/output error", "rdma_completion"),
        ("MisconfigurationException('You requested gpu: [0, 1] but your machine has: [0]')", "configuration_refused"),
        ("XlaRuntimeError: INTERNAL: Failed call to hipGetFuncBySymbol: hipError_t(98)", "gpu_code_missing"),
        ("FATAL: container creation failed: unable to /home/x/nvidia-smi to mount list", "container_start"),
    ],
)
def test_a_line_accuses_the_process_or_the_component_that_it_names(line: str, name: str) -> None:
    root = scanned([f"{line}\n"], [], trains=False).root
    assert root is not None and root.name == name


@pytest.mark.parametrize(
    "line",
    [
        "slurmstepd: error: Unable to create TMPDIR [/scratch/x]: Permission denied",
        "slurmstepd: error: Setting TMPDIR to /tmp",
        "0.1s: job.exception type=timeout severity=1 a note alone",
        "config: TERM_OTHER: off, error_rate: 0.1",
    ],
)
def test_what_schedulers_note_in_passing_explains_no_failure(line: str) -> None:
    assert calls.read_call(line, weak=True) is None


@pytest.mark.parametrize(
    "behind", ["it says SignalException: Process 7 got signal: 15\n", "Exception ignored in: <function A.__del__>\n"]
)
def test_what_stands_behind_an_exception_without_words_hides_no_failure(behind: str) -> None:
    raised = ["Traceback (most recent call last):\n", '  File "t.py", line 1, in f\n', "RuntimeError:\n"]
    found = scanned(raised, [behind], trains=False).matches
    assert [match.name for match in found] == ["traceback"] and "ignored" not in found[0].line


def test_a_connection_of_dask_that_was_closed_is_no_failure() -> None:
    closed = [
        "2026-11-30 10:00:00,000 - distributed.batched - INFO - Batched Comm Closed <TCP (closed) Scheduler>\n",
        *IN_DASK,
        "distributed.comm.core.CommClosedError\n",
    ]
    assert scanned([], closed).matches == []
    assert scanned([], closed[1:]).matches != []


IN_DASK = [
    "Traceback (most recent call last):\n",
    '  File "/lib/distributed/batched.py", line 115, in _background_send\n',
    "    nbytes = yield coro\n",
]


def test_an_indented_exception_explains_a_failure_at_the_end() -> None:
    found = scanned(["    ValueError: the data set is empty\n"], [], trains=False)
    assert [match.name for match in found.matches] == ["data_refused"]
    assert scanned(["  RuntimeError: CUDA out of memory.\n"], ["done\n"]).root.name == "out_of_memory"


RCCL_INFO = """\
Channel 05/0 : 1000[3] -> 2000[4] [send] via NET/IB/3/GDRDMA/Shared
Channel 05/0 : 1000[3] -> 2000[4] [receive] via NET/IB/3/GDRDMA
Channel 00 : 0[5000] -> 1[6000] via P2P/direct pointer
Trees [0] 1/-1/-1->0->-1 [1] 1/-1/-1->0->-1
NET/IB : GPU Direct RDMA Enabled for HCA 0 'bnxt_re0'
GPU Direct RDMA Enabled for GPU 5 / HCA 0 (distance 4 <= 4), read 1 mode Default
AllReduce: opCount 1a sendbuff 0x7f recvbuff 0x7f count 1048576 datatype 9 op 0 root 0 comm 0x55 [nranks=16] stream 0x5
"""


def test_what_rccl_prints_for_every_channel_and_collective_costs_no_second_look() -> None:
    """A log with NCCL_DEBUG=INFO has 100,000 of these: a text of an entry that one holds costs 80 us per line."""
    for line in RCCL_INFO.splitlines():
        held = [mark for group in marks() for mark in group if mark in f"node3:12:345 [3] NCCL INFO {line}"]
        assert held == [], line


HANDLED = [  # huggingface_hub's utils/_http.py and file_download.py, and what loaders of images print
    "'(MaxRetryError(\"HTTPSConnectionPool(host='huggingface.co', port=443): Max retries exceeded with url: /x\"))'"
    " thrown while requesting HEAD https://huggingface.co/x",
    "Error while downloading from https://cdn-lfs.hf.co/x: HTTPSConnectionPool(host='cdn-lfs.hf.co'): timed out",
    "skipped corrupted image /d/7.jpg: cannot identify image file '/d/7.jpg'",
    "config BLOCK_M=256 out of resource: shared memory, Required: 7, Hardware limit: 6; skipping",
]


@pytest.mark.parametrize("line", HANDLED)
def test_what_a_program_retries_or_skips_fails_no_training_and_explains_one_that_never_began(line: str) -> None:
    assert scanned([], [f"{line}\n"]).matches == []
    assert len(scanned([f"{line}\n"], [], trains=False).matches) == 1
    assert scanned([], [f"{line}\n", "RuntimeError: HIP error: invalid device function\n"]).matches
    assert scanned([], [f"{line}; giving up\n"]).matches


IN_DATA = [
    "Traceback (most recent call last):",
    '  File "/opt/venv/lib/python3.12/site-packages/torch/utils/data/_utils/fetch.py", line 7, in fetch',
]


@pytest.mark.parametrize(
    ("lines", "name", "sure"),
    [
        (["torch.OutOfMemoryError: HIP out of memory. Tried to allocate 7 GiB"], "out_of_memory", True),
        (["Killed"], "killed", True),  # all of the line
        (["AssertionError: 7 pieces"], "assertion", True),  # a general name
        (["transfer: failed to open RDMA device mlx5_3"], "rdma_device_missing", False),  # a call
        (["ValueError: FSDP wants 7 pieces"], "wrapper_refused", False),  # a subject
        ([*IN_DATA, "KeyError: 7"], "data_refused", False),  # a place
        (["srun: error: task 7 launch failed: Plugin initialization failed"], "task_launch", False),  # a call disagrees
    ],
)
def test_a_name_that_the_line_does_not_state_is_a_guess(lines: list[str], name: str, sure: bool) -> None:
    scanner = FailureScanner()
    scanner.batch([f"{line}\n" for line in lines])
    scanner.close()
    assert scanner.root and scanner.root.name == name
    assert scanner.root.cause.startswith("perhaps ") is not sure


@pytest.mark.parametrize(
    ("frame", "name"),
    [
        ("/opt/train.py", "optimizer_refused"),
        ("/opt/venv/lib/python3.12/site-packages/deepspeed/runtime/engine.py", "wrapper_refused"),
        ("/opt/venv/lib/python3.12/site-packages/torch/utils/data/_utils/fetch.py", "optimizer_refused"),
        ("/opt/venv/lib/python3.12/site-packages/torch/distributed/c10d_logger.py", "collective_call"),
    ],
)
def test_a_subject_yields_to_the_place_that_raised_unless_all_pass_there(frame: str, name: str) -> None:
    scanner = FailureScanner()
    text = f'Traceback (most recent call last):\n  File "{frame}", line 7, in step\n    pieces()\n'
    scanner.batch([*text.splitlines(keepends=True), "AssertionError: 7 pieces of the optimizer do not go together\n"])
    scanner.close()
    assert scanner.root and scanner.root.name == name
