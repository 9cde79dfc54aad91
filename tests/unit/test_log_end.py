"""What a log says behind its last iteration decides as much as what stands before it."""

from __future__ import annotations

import json

import pytest

from bench.corpus import CORPUS, excerpts
from shakedown.gates import Gate, Observed, judge, judge_log, read_log
from shakedown.gates.explain import explain
from shakedown.gates.log_lines import job_of
from shakedown.gates.observed import JobEnd, Logs
from shakedown.logs.end import EndReader, LogEnd, ended_badly, endings
from shakedown.logs.lines import Hosts, prefix, unprefixed
from shakedown.state.findings import Verdict
from tests.at_once import at_once

OK, FAIL, UNKNOWN = Verdict.OK, Verdict.FAIL, Verdict.UNKNOWN
RUN = [
    f" iteration {at:8d}/      20 | elapsed time per iteration (ms): 650.0 | lm loss: {9 - at / 10:.6E} |"
    " number of skipped iterations:   0 | number of nan iterations:   0 |\n"
    for at in range(1, 21)
]
ENDINGS = [shown for each in endings() if each.sure for shown in each.shows]
FURTHER = [  # of forms that no entry shows
    "Terminated",
    "run.sh: line 44: 991 Bus error               (core dumped) python3 pretrain_gpt.py",
    "srun: error: gpu[12-14]: tasks 8-31: Killed",
    "slurmstepd: error: *** JOB 77 ON gpu12 CANCELLED AT 2026-11-24T01:02:03 ***",
    "srun: Job step aborted: Waiting up to 32 seconds for job step to finish.",
    "prterun noticed that process rank 0 with PID 9 on node n1 exited on signal 6 (Aborted).",
    "MPI_ABORT was invoked on rank 3 in communicator MPI_COMM_WORLD",
    "error: job exited with exit code 1",
    "HW Exception by GPU node-2 (Agent handle: 0x1) reason :GPU Hang",
    "double free or corruption (!prev)",
    "*** SIGSEGV received; Fatal Python error: Aborted",
    "pod default/train-0 terminated: reason: OOMKilled, exit code: 137",
    "Exited with exit code 9.",
    "TERM_MEMLIMIT: job killed after reaching LSF memory usage limit.",
    "ERROR: process finished with status 2",
    "torchrun died with exit status 1",
    "zsh: segmentation fault (core dumped)  python pretrain_gpt.py",
    "timeout: the monitored command dumped core",
    "srun: error: Timed out waiting for job step to complete",
    "  Killed process 4242 (python) total-vm:1kB, anon-rss:1kB",
    "The node was low on resource: memory. Container trainer was using 700Gi, request is 0.",
    "Received signal 15, terminating",
    "Watchdog: the job stalled",
    "rc: 137",
]
DOUBTFUL = [
    "Connection to gpu12 closed by remote host.",
    "client_loop: send disconnect: Broken pipe",
    'pod "t" deleted',
]
GOOD = [
    "validation loss at iteration 20 | lm loss value: 8.1E+00 | lm loss PPL: 3.3E+03 |",
    "  successfully saved checkpoint from iteration      20 to /ckpt [ t 1/2, p 1/1 ]",
    "[after training is done] datetime: 2026-11-24 07:00:00",
    "saving finished with exit code 0",
    "0 errors, 0 failures",
    "wandb: Run summary: loss 8.1",
    "/opt/venv/lib/x.py:3: UserWarning: an error in the config is ignored",
    "[rank0]:[W1124 07:00:00.000 ProcessGroupNCCL.cpp:1496] Warning: WARNING: destroy_process_group() was not called",
    "[2026-11-24 07:00:00,000] [INFO] [launch.py:347:main] Process 4242 exits successfully.",
    "throughput per GPU: 1443.04",
    "wandb: ERROR Error while calling W&B API: run not found (<Response [404]>)",
    "run.sh: line 88:  4242 Terminated              ./monitor.sh > gpu.log",
    ":3:hip_platform.cpp         :237 : 22 us: 4242 init: Returned hipErrorNoBinaryForGpu : continue parsing",
    "Max error: 1.2e-5",
    '{"step": 20, "prompt": "Why do I get CUDA error: out of memory?", "reward": 0.3}',
    "<think> the error is CUDA error: device-side assert triggered </think>",
    'Rollout 12/64: response: "the pod was OOMKilled with exit code 137"',
    "error rate: 0.0 %",
    "Cleaning up: killed 0 processes",
    "rc=0",
    "frame #0: c10::Error::Error(c10::SourceLocation, std::string) + 0x98 (0x7f)",
    "[1]+  Terminated              ./monitor.sh > gpu.log",
    "I tensorflow/core/framework/local_rendezvous.cc:405] Local rendezvous is aborting with status: CANCELLED: x",
    '[rank0]:[W1130 07:00:00.1 ProcessGroupNCCL.cpp:1683] Failed to check the "should dump" flag, with error: x',
    "[2026-11-24 07:00:00,000] [WARNING] [stage3.py:12:f] an error of 3 files",
    "E1130 07:00:00.1 42 torch/_inductor/select_algorithm.py:2100] [0/0] Runtime error during autotuning:",
    "[node1:42] 7 more processes have sent help message help-mpi-btl-openib.txt / error in device init",
    "RCCL async error handling is enabled",
    'level=info msg="no fatal conditions"',
    'time="2026-11-30T07:00:00Z" msg="job done" error=<nil>',
    "failures: []",
]


def ended(*lines: str, before: list[str] = RUN) -> Gate:
    gates = judge_log(read_log([*before, *(line + "\n" for line in lines)]), {})
    return next(gate for gate in gates if gate.name == "ended_well")


@at_once("line", [*ENDINGS, *FURTHER])
@pytest.mark.parametrize("before", ["", "node07: ", "[rank3]: ", "3: ", "trainer-1  | ", "2026-11-24T07:00:00.123Z "])
def test_a_failure_behind_the_last_iteration_fails(line: str, before: str) -> None:
    gate = ended("some words", before + line)
    assert gate.verdict is FAIL and gate.remedy, gate


@pytest.mark.parametrize("line", GOOD)
def test_what_a_good_run_prints_at_its_end_passes(line: str) -> None:
    assert ended(line).verdict is OK


def test_every_pattern_matches_what_it_shows_and_no_more() -> None:
    for each in endings():
        assert all(each.pattern.search(line) for line in each.shows), each
        assert not [line for line in each.shows_not if ended_badly(line, each.sure)], each


def test_an_error_that_nothing_explains_is_unknown() -> None:
    gate = ended("frobnicator: ERROR: the flux is out of bounds")
    assert gate.verdict is UNKNOWN and "the flux is out of bounds" in gate.evidence
    log = read_log([*RUN, "frobnicator: ERROR: the flux is out of bounds\n"])
    (known,) = (
        g for g in judge(Observed(logs=Logs({"n": log}), end=JobEnd(exit_codes={"n/0": 0}))) if g.name == "ended_well"
    )
    assert known.verdict is OK, "every rank is known to have ended with 0"


@pytest.mark.parametrize("label", ["sandbox: ", "Rollout: ", "[tool] ", "[ERROR] tool: "])
def test_a_label_at_the_end_does_not_make_a_death_good(label: str) -> None:
    assert ended(f"{label}RuntimeError: CUDA out of memory.").verdict is UNKNOWN
    assert ended(f"{label}Memory access fault by GPU node-4 (Agent handle: 0x5) on address 0x7f.").verdict is FAIL
    assert ended(f"{label}train.sh: line 7:  4242 Killed                  python train.py").verdict is not OK


@pytest.mark.parametrize("line", ["FATAL: container creation failed: mount /proc/self/fd/3", "job exited with code 1"])
@pytest.mark.parametrize("label", ["sandbox: ", "tool: ", "rollout: "])
def test_a_host_of_pdsh_that_is_named_like_a_tool_leaves_its_end_open(label: str, line: str) -> None:
    assert ended(label + line).verdict is not OK
    assert ended(f"{label[:-2]} result: {line}").verdict is OK


def test_an_error_before_an_iteration_stopped_nothing() -> None:
    assert ended(before=["ERROR: apex is missing\n", "Killed\n", *RUN]).verdict is OK


def test_a_log_without_iterations_is_read_at_its_end() -> None:
    other = ["loading\n", "Killed\n", *["waiting\n"] * 100]
    assert ended(before=other).verdict is OK
    assert ended("Killed", before=other).verdict is FAIL
    logs = {"n1": read_log(RUN), "n2": read_log([*other, "Aborted (core dumped)\n"])}
    (gate,) = (g for g in judge_log(logs, {}) if g.name == "ended_well")
    assert gate.verdict is FAIL and gate.evidence.startswith("n2: ")


@pytest.mark.parametrize("line", DOUBTFUL)
def test_a_connection_that_was_lost_leaves_the_end_open(line: str) -> None:
    assert ended(line).verdict is UNKNOWN


def test_a_job_that_a_shell_ends_failed_whatever_else_the_shell_ends() -> None:
    assert (
        ended("run.sh: line 9:  42 Terminated              torchrun --nproc-per-node 8 pretrain_gpt.py").verdict is FAIL
    )
    assert ended("run.sh: line 9:  42 Terminated").verdict is FAIL
    assert ended("[exiting program after receiving SIGTERM.] datetime: 2026-11-24 07:00:00").verdict is FAIL


def test_much_behind_the_last_iteration_is_read_at_both_ends() -> None:
    noise = ["x" * 99] * 9000
    assert ended(*noise).verdict is UNKNOWN
    assert ended(*noise, "Killed").verdict is FAIL
    assert ended("Killed", *noise).verdict is FAIL


HALF = 1 << 17  # bytes that are kept behind the last iteration, and again before the end


@pytest.mark.parametrize(
    "sizes", [[HALF * 2], [HALF, HALF], [HALF - 1, 1, HALF], [HALF, HALF - 1, 1], [99, 2 * HALF - 99]]
)
@pytest.mark.parametrize("more", [0, 1])
def test_behind_the_last_iteration_two_halves_are_kept_and_more_is_cut(sizes: list[int], more: int) -> None:
    reader = EndReader()
    reader.take(b"an iteration", 12)
    for size in filter(None, (*sizes, more)):
        reader.take(b"\n".rjust(size), None)
    assert reader.end().cut == bool(more)
    reader.take(b"Killed\n", None)
    assert reader.end().failed and reader.end().cut
    reader.take(b"Killed\nan iteration", 19)
    assert reader.end() == LogEnd(), "what stood before the last iteration"


def test_without_an_iteration_the_end_alone_is_kept_and_nothing_counts_as_cut() -> None:
    reader = EndReader()
    for block in (b"Killed\n", b"x" * 99 + b"\n", b"\n".rjust(2 * HALF), b"y\n"):
        reader.take(block, None)
    assert reader.end() == LogEnd()
    reader.take(b"Killed\n", None)
    assert reader.end().failed and not reader.end().cut


ODD = "frobnicator: ERROR: the flux is out of bounds"
TRACE = [
    "Traceback (most recent call last):",
    '  File "x.py", line 3, in load',
    f"    log('{ODD}')",
    f"    raise {ODD}",
]


@pytest.mark.parametrize("exception", ["ImportError: no apex", "KeyError", "shop.Sold: out"])
def test_the_frames_of_a_traceback_are_passed_over_up_to_its_exception(exception: str) -> None:
    assert ended(*TRACE, exception).verdict is OK
    gate = ended(*TRACE, exception, ODD)
    assert gate.verdict is UNKNOWN and ODD in gate.evidence


def test_blocks_of_any_size_read_alike() -> None:
    data = "".join([*RUN, "Killed\n"]).encode()
    for size in (7, 100, 1000):
        assert read_log([data[at : at + size] for at in range(0, len(data), size)]).end.failed


def test_healthy_public_logs_end_well() -> None:
    wrong = []
    every = [each for path in (CORPUS / "jobs").glob("*.toml") for each in excerpts(path) if not each.cause]
    every = [each for each in every if "closing signal SIG" not in each.text]  # no cause, but an end that was forced
    for each in every:
        reader = EndReader()
        reader.take(b"", 0)
        reader.take(each.text.encode(), None)
        stopped = "signals alone" in each.source  # by a person: without a cause, and no good end
        assert not stopped or reader.end().failed
        if reader.end().failed and not stopped:
            wrong.append((each.source, reader.end()))
    assert len(every) >= 50 and not wrong


@pytest.mark.parametrize(
    ("line", "own"),
    [
        ("2026-11-24T07:00:00.123456789Z stderr F [rank0]: AssertionError", "AssertionError"),
        ("node01: 3: [rank3]: RuntimeError: x", "RuntimeError: x"),
        ("[1,3]<stderr>:RuntimeError: x", "RuntimeError: x"),
        ("2026-11-24T07:00:00.123456789Z Killed", "Killed"),
        ("trainer-0  | Killed", "Killed"),
        ("(RayTrainWorker pid=77, ip=192.0.2.1) Killed", "Killed"),
        ("Nov 24 07:00:00 node7 train[12]: Killed", "Killed"),
        ("srun: error: x", "srun: error: x"),
        ("ValueError: 3: 4", "ValueError: 3: 4"),
        ("torch.cuda.Error1: x", "torch.cuda.Error1: x"),
    ],
)
def test_what_launchers_put_before_a_line_is_taken_away(line: str, own: str) -> None:
    assert unprefixed(line) == own and prefix(line) + own == line


CARRIERS = [  # what stands before each line of a log: launchers, containers, syslog, and pdsh with hosts of any name
    "", "node07: ", "login: ", "sandbox: ", "rollout: ", "user: ", "A: ", "worker: ", "TRAINER: ", "10.0.0.7: ", "3: ",
    "Nov 30 12:00:01 node3 bash[123]: ", "Nov 30 12:00:01 sandbox python3[123]: ",
    "2026-11-30T12:00:01+0000 node3 bash[123]: ", "[   12.345678] node3 bash[123]: ",
    "<14>1 2026-11-30T12:00:01.123456Z node3 train 123 - - ", "2026-11-24T07:00:00.123456789Z ",
    "2026-11-24T07:00:00.123456789Z stderr F ", "trainer-1  | ", "[rank0]: ", "[default0]:", "(pid=4242) ",
    "2026-11-30 12:00:01,123 ", "[2026-11-30 12:00:01] ", "[1,0]<stderr>:", "node07: [rank3]: ",
    "\r 50%|###   | 5/10 [00:01<00:01,  4.20it/s]" * 60, "\rEpoch 1: 9%|# | 9.1k/99k [00:01<00:01, 1kB/s]" * 60 + "\r",
]  # fmt: skip
TEXTS = [*((line, FAIL) for line in [*ENDINGS, *FURTHER]), *((line, OK) for line in GOOD)]


TRACED = ["Traceback (most recent call last):", '  File "/tmp/solution.py", line 3, in <module>', "KeyError: 'a'"]
WRITTEN = [  # by a model, or answered by its tools: the job went well
    ["Generated text: " + TRACED[0], *TRACED[1:]],
    ["(TaskRunner pid=77) [response] " + TRACED[0], *(f"(TaskRunner pid=77) {line}" for line in TRACED[1:])],
    ["Completion:", "```python", "raise ValueError('x')", "```", "```", *TRACED, "```"],
    ["[prompt] Why?", "```", "RuntimeError: CUDA error: out of memory", "```", "[score] 0.0"],
    ["[response] Segmentation fault (core dumped)", "[ground_truth] The pod was OOMKilled"],
    ["[prompt] user", "My pod is in CrashLoopBackOff. Why?", "", "[response] It dies.", "exit code: 1", "[score] 1.0"],
    ["Rollout sample (reward=0.00): " + TRACED[0], *TRACED[1:]],
    ["generation 1/4: Aborted (core dumped)", "> response 3: srun: error: node7: task 3: Exited with exit code 1"],
    ["assistant: If it says 'Out of memory: Killed process', add RAM."],
    ["{'prompt': 'why', 'completion': 'the job failed with exit code 1'}"],
    [
        "--------- Question:",
        "Why did my job die?",
        "Response:",
        "The job failed: CUDA error: out of memory",
        "Extracted:",
    ],
    ["<tool_response>", "bash: line 1: foo: command not found", "exit code: 127", "</tool_response>"],
    ["rollout 12: <|im_start|>assistant", *TRACED[:2], "NameError: name 'x' is not defined<|im_end|>"],
    ["<think>", "The job failed: No space left on device.", "</think>", "<answer>Killed</answer>"],
    ["code execution failed with exit code 1 (reward 0.0)"],
    ["unit tests: 3 passed, 2 failed, pytest exited with code 1"],
    ["[The command completed with exit code 1.]"],
]
DIED = [  # after or within such a text
    ["Generated text: " + TRACED[0], *TRACED[1:], *TRACED],
    ["Generated text: " + TRACED[0], *TRACED[1:], "train.sh: line 3:  42 Killed                  python train.py"],
    ["Generated text: " + TRACED[0], TRACED[1], "srun: error: node7: task 3: Exited with exit code 1"],
    ["```python", "x = 1", *TRACED],
    ["```", "x = 1", "```", *TRACED],
    ["[rank0]: ```", *(f"[rank1]: {line}" for line in TRACED), "[rank0]: ```"],
    ["<think>", "I should", *TRACED],
    [f"sandbox: {line}" for line in TRACED],
    ["[response] ok", "[score] 1.0", *TRACED],
    ["[rank0]: ```", "[rank1]: level=fatal msg=x", "[rank0]: ```"],
    ["[prompt] hi", *TRACED],
    ["--------- Question:", "Why?", "Response:", *TRACED],
    ["Response:", "hm", "Extracted:", *TRACED],
    ["RuntimeError: HIP out of memory: the server said <code>500</code>"],
    ["```", "hm", "```srun: error: node7: task 3: Exited with exit code 1"],
    ["Process 4242 exited with code 1"],
    ["the launch tool exited with code 1"],
    ["all_reduce test failed with exit code 2"],
    ["srun: job of tool exited with exit code 1"],
    ["[INFO] Killed"],
]


@at_once("lines", [*((lines, OK) for lines in WRITTEN), *((lines, FAIL) for lines in DIED)])
def test_what_a_model_wrote_fails_no_job_and_hides_no_failure(lines: tuple[list[str], Verdict]) -> None:
    written, verdict = lines
    for before in ([*RUN], [*RUN[:10], *(f"{line}\n" for line in WRITTEN[2]), *RUN[10:]]):
        log = read_log([*before, *(f"{line}\n" for line in written)])
        assert job_of(log).verdict is verdict
        assert explain([*before, *(f"{line}\n" for line in written)]).exit_code == (verdict is FAIL)


@at_once("lines", [TRACED, ["srun: error: node7: task 3: Exited with exit code 1"], ["Killed"]])
def test_an_error_in_a_fence_that_is_the_last_word_is_unknown(lines: list[str]) -> None:
    for before, verdict in (("", UNKNOWN), ("node7: ", UNKNOWN), ("Completion:", OK)):
        label, carrier = ([before], "") if before.endswith(":") else ([], before)
        log = [*RUN, *(f"{carrier}{line}\n" for line in [*label, "```", *lines, "```", ""])]
        log = [f"{carrier}{line}" for line in RUN] + log[len(RUN) :]
        assert job_of(read_log(log)).verdict is verdict, before
        assert explain(log).exit_code == (4 if verdict is UNKNOWN else 0), before


@at_once("at", range(len(CARRIERS)))
def test_judge_and_explain_say_the_same_behind_whatever_carries_a_log(at: int) -> None:
    for line, verdict in TEXTS[at % 9 :: 9]:
        lines = [f"{CARRIERS[at]}{each}" for each in ["loading", *RUN[-3:], f"{line}\n"]]
        assert job_of(read_log(lines)).verdict is verdict, line
        assert explain(lines).exit_code == (1 if verdict is FAIL else 0), line


@at_once("line", ["KeyboardInterrupt", *ENDINGS])
def test_no_colour_and_no_json_of_a_container_engine_hides_a_death(line: str) -> None:
    coloured = [f"\x1b[36m(W pid=4242)\x1b[0m \x1b[31m{each.strip()}\x1b[0m\n" for each in [*RUN, line]]
    kept = [f'{{"log":{json.dumps(each)},"stream":"stderr","time":"2026-11-24T07:00:00Z"}}\n' for each in [*RUN, line]]
    rotated = "".join(['uff","stream":"stderr","time":"2026-11-24T06:59:59Z"}\n', *kept])
    assert job_of(read_log([rotated])).verdict is FAIL, line
    for lines in (coloured, kept):
        log = read_log(lines)
        assert log.iterations and job_of(log).verdict is FAIL, line
        assert log.lines == len(lines)


@at_once("before", [f"{carrier}{rank}" for carrier in CARRIERS for rank in ("", "2: ", " 12: ")])
def test_what_a_library_warns_of_stays_a_warning_behind_whatever_carries_it(before: str) -> None:
    warned = "[W1009 05:15:11.118 socket.cpp:7] [c10d] The client socket has failed to connect to [n7]:1 (errno: 113)."
    assert job_of(read_log([*(f"{before}{line}" for line in [*RUN, f"{warned}\n"])])).verdict is not FAIL, before


HIDING = [  # what a program wrote before its death, or a terminal or a torn file put there; none is seen on a terminal
    "\x1b(B\x1b[m{}", "\x1b7{}\x1b8", "\x1b=\x1b>{}", "\x9b31m{}", "\0{}", "\ufeff{}", "\u200b{}", "step 12\r{}",
    f"{RUN[-1].rstrip()}{{}}",
    f"{'.' * 3000} slurmstepd: error: *** STEP 42.0 ON n7 CANCELLED AT 2026-11-24T07:23:19 ***",
]  # fmt: skip


@at_once("hiding", HIDING)
def test_nothing_before_a_death_on_its_line_hides_it(hiding: str) -> None:
    for line in ENDINGS:
        log = [*RUN, f"{hiding.format(line)}\n"]
        assert job_of(read_log(log)).verdict is FAIL, line
        assert explain(log).exit_code == 1, line
    assert job_of(read_log([*RUN, "Kil\0led\n"])).verdict is FAIL


UNKNOWN_PREFIXES = [
    *("run-77> ", "worker3| ", "<node7> ", "(main) ", "job.0.out:", "{node7} ", "#7 12.3 ", "a.sh[42]: ", "== "),
]
DEATHS = [
    *("rc=1", "rc=-9", "exit 1", "exited: 137", "train.py was killed", "ExitCode=0:9"),
    *("Killed", "zsh: killed     python train.py", "[1]    4242 killed     python train.py"),
    *("AssertionError", "KeyboardInterrupt", "RuntimeError: boom", "bash: line 1: 31337 Bus error  python train.py"),
]


@pytest.mark.parametrize("before", UNKNOWN_PREFIXES)
def test_no_prefix_that_is_not_known_makes_a_death_good(before: str) -> None:
    for death in DEATHS:
        assert ended(before + death).verdict is not OK, death
    assert ended("episode 17 ret: 112", "avg ret: 12", "backup status: FAIL-SAFE").verdict is OK
    handled = [f"{before}{line}" for line in ("Traceback (most recent call last):", '  File "a.py"', "xError: handled")]
    assert ended(*handled, "frobnicator: ERROR: the flux is out of bounds").verdict is UNKNOWN


def test_no_name_of_a_program_becomes_a_hosts_and_hides_its_words() -> None:
    for line in [*ENDINGS, *FURTHER]:
        name = line.partition(": ")[0]
        for frame in [f'{name}:   File "a.py", line 1, in f'] if name in line and name.isidentifier() else ():
            assert job_of(read_log([f"{frame}\n", *RUN, f"{line}\n"])).verdict is FAIL, line


@pytest.mark.parametrize(
    ("first", "then"),
    [
        ("node7: Traceback (most recent call last):", "Killed"),
        ("response: Traceback (most recent call last):", "response: Killed"),  # a model's text, not a host
        ('response:   File "a.py", line 1, in f', "Killed"),
    ],
)
def test_what_begins_a_tracebacks_lines_is_a_host_unless_it_is_a_texts_label(first: str, then: str) -> None:
    hosts = Hosts()
    hosts.own(first)
    assert hosts.own(f"{first.partition(':')[0]}: Killed") == then
