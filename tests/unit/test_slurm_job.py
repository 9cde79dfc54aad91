"""Allocations and steps: what is asked of Slurm, what comes back, and what becomes of it when somebody stops."""

from __future__ import annotations

import io
import json
import math
import os
import re
import secrets
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from shakedown.jobs.launch import Job
from shakedown.operations.smoke import carry_out
from shakedown.schedulers.slurm import job as jobs
from shakedown.schedulers.slurm import relay
from shakedown.schedulers.slurm import step as steps
from shakedown.schedulers.slurm.commands import SlurmError
from shakedown.schedulers.slurm.job import Allocation
from shakedown.schedulers.slurm.settings import Settings
from shakedown.schedulers.slurm.step import Step, _Pieces
from tests.nodes import until
from tests.plans import small
from tests.slurm_commands import SRUN, Programs

NOTE = 'echo "${0##*/} $*" >> $HOME/asked'
NODES = """for n in 1 2; do case "$4" in n$n|*-*) echo "NodeName=n$n State=IDLE Gres=gpu:$((n * 4))"; esac; done"""


@pytest.fixture
def slurm(tmp_path, monkeypatch):
    made = Programs(tmp_path, monkeypatch)
    made.put("scontrol", NODES)
    made.put("sbatch", f"{NOTE}\ncat > $HOME/script\necho 4711")
    made.put("scancel", NOTE)
    made.put("squeue", 'cat $HOME/state 2>/dev/null || echo "PENDING|Resources"')
    monkeypatch.setattr(jobs, "_END_S", 0.5)
    return made


def allocation(**wanted) -> Allocation:
    return Allocation({"node1.rack": "n1", "node2.rack": "n2"}, Settings.model_construct(**wanted), "shakedown-run 1")


def test_one_job_is_asked_for_with_what_the_desired_state_says(slurm):
    (slurm.folder / "home/state").write_text("RUNNING|None\n")
    told: list[str] = []
    held = allocation(partition="mi300x", reservation="sd", account="a", time_min=90, options=["--qos=high"])
    held.allocate(["node1.rack", "node2.rack"], told.append, lambda: None)
    held.allocate(["node2.rack"], told.append, lambda: None)
    (asked,) = [line for line in slurm.asked() if line.startswith("sbatch")]
    for word in ("n[1-2]", "--nodes=2", "--exclusive", "--partition=mi300x", "--reservation=sd", "--account=a"):
        assert word in asked
    assert "--time=90" in asked and "--qos=high" in asked and "--no-kill" in asked
    assert "--gres=gpu:4" in asked, "the node with the fewest"
    assert told == ["Slurm job 4711 runs on n[1-2]"]
    held.end()
    assert slurm.asked()[-1] == "scancel 4711"
    assert all("4711" in line for line in slurm.asked() if line.startswith("scancel"))


def test_a_queued_job_is_told_and_a_stop_cancels_exactly_it(slurm):
    told: list[str] = []
    with pytest.raises(SlurmError, match=r"stopped by Ctrl-C, while Slurm job 4711 was queued"):
        allocation().allocate(["node1.rack"], told.append, lambda: "stopped by Ctrl-C" if told else None)
    assert told == ["Slurm job 4711 is queued (Resources), for 0 s"]
    assert [line for line in slurm.asked() if line.startswith("scancel")] == ["scancel 4711"]


@pytest.mark.parametrize(
    ("report_s", "reasons"),
    [(60.0, ["Resources", "Priority"]), (-1.0, ["Resources", "Resources", "Priority"])],
    ids=["once", "again after a while"],
)
def test_the_reason_of_the_queue_is_told_once_until_it_changes(slurm, monkeypatch, report_s, reasons):
    seen = [jobs.State("PENDING", reason) for reason in ("None", "", "Resources", "Resources", "Priority", "None")]
    answers = iter([*seen, jobs.State("RUNNING", "None")])
    monkeypatch.setattr(jobs, "state_of", lambda _job: next(answers))
    monkeypatch.setattr(jobs, "_ASK_S", (0.0, 0.0))
    monkeypatch.setattr(jobs, "_REPORT_S", report_s)
    told: list[str] = []
    allocation().allocate(["node1.rack"], told.append, lambda: None)
    assert [line.split("(")[1].split(")")[0] for line in told[:-1]] == reasons and "runs on" in told[-1]


@pytest.mark.parametrize(("state", "why"), [("CANCELLED|None", "before it began: CANCELLED"), ("", "began: GONE")])
def test_a_job_that_does_not_begin_is_no_allocation(slurm, state, why):
    (slurm.folder / "home/state").write_text(state)
    with pytest.raises(SlurmError, match=why):
        allocation().allocate(["node1.rack"], print, lambda: None)
    with pytest.raises(SlurmError, match="no allocation"), allocation().start("x", ["node1.rack"]):
        pass


def test_a_job_that_stays_in_the_queue_is_cancelled(slurm):
    with pytest.raises(SlurmError, match=r"did not begin within \d+ s in the queue: PENDING \(Resources\)"):
        allocation(queue_s=0).allocate(["node1.rack"], print, lambda: None)
    assert slurm.asked()[-1] == "scancel 4711"


def test_a_queue_outlives_a_controller_that_does_not_answer_for_a_moment(slurm):
    slurm.put(
        "squeue", "[ -e $HOME/2nd ] && echo 'RUNNING|None' && exit; touch $HOME/2nd; echo no slurmctld >&2; exit 1"
    )
    told: list[str] = []
    allocation().allocate(["node1.rack"], told.append, lambda: None)
    assert "no slurmctld" in told[0] and told[1] == "Slurm job 4711 runs on n1" and len(told) == 2
    assert not [line for line in slurm.asked() if line.startswith("scancel")]


def test_a_job_is_cancelled_though_slurm_does_not_say_whether_it_has_ended(slurm):
    (slurm.folder / "home/state").write_text("RUNNING|None")
    held = allocation()
    held.allocate(["node1.rack"], print, lambda: None)
    slurm.put("squeue", "echo no slurmctld >&2; exit 1")
    held.end()
    assert slurm.asked()[-1] == "scancel 4711"


def test_a_job_that_nothing_but_another_desired_state_begins_is_not_waited_for(slurm):
    (slurm.folder / "home/state").write_text("PENDING|PartitionTimeLimit")
    with pytest.raises(SlurmError, match=r"would never begin: PENDING \(PartitionTimeLimit\): slurm.time_min"):
        allocation(time_min=9000).allocate(["node1.rack"], print, lambda: None)
    assert slurm.asked()[-1] == "scancel 4711"


REFUSED = {
    "Invalid partition name specified": "slurm.partition",
    "Requested reservation is invalid": "slurm.reservation",
    "Access denied to requested reservation": "slurm.reservation",
    "Invalid account or account/partition combination specified": "slurm.account",
    "Invalid generic resource (gres) specification": "slurm.gres",
}


@pytest.mark.parametrize("said", REFUSED)
def test_what_slurm_would_refuse_is_told_with_its_key_and_nothing_is_submitted(slurm, said):
    slurm.put("sbatch", f'{NOTE}\necho "allocation failure: {said}" >&2; exit 1')
    with pytest.raises(SlurmError, match=re.escape(f"{said}; {REFUSED[said]}: ")):
        allocation(partition="p").ask(["node1.rack", "node2.rack"])
    (asked,) = slurm.asked()
    assert asked.startswith("sbatch") and asked.endswith("--partition=p --test-only") and "n[1-2]" in asked
    assert "--gres=gpu:4" in asked


def test_nodes_that_are_out_of_service_are_not_asked_about(slurm):
    slurm.put("scontrol", NODES.replace("State=IDLE", "State=IDLE+DRAIN"))
    why = "idle+drain"
    assert allocation().ask(["node1.rack", "node2.rack"]) == {"node1.rack": why, "node2.rack": why}
    assert slurm.asked() == []


@pytest.mark.parametrize(("most", "enough"), [("1-01:00:00", True), ("00:59:00", False), ("UNLIMITED", True)])
def test_a_time_limit_above_the_partitions_is_told_ahead(slurm, most, enough):
    slurm.put("scontrol", f'[ "$3" = partition ] && echo "PartitionName=p MaxTime={most} MinNodes=0" && exit\n{NODES}')
    asked = allocation(partition="p", time_min=60)
    if enough:
        assert asked.ask(["node1.rack"]) == {}
    else:
        with pytest.raises(SlurmError, match=r"slurm.time_min is 60, and jobs of the partition p have at most 59 min"):
            asked.ask(["node1.rack"])
    assert allocation(partition="p", time_min=60, options=["--qos=long"]).ask(["node1.rack"]) == {}


def test_an_answer_of_sbatch_that_is_lost_leaves_no_job_behind(slurm):
    slurm.put("sbatch", f"{NOTE}\nexit 1")
    with pytest.raises(SlurmError, match="sbatch"):
        allocation().allocate(["node1.rack"], print, lambda: None)
    submitted, cancelled = slurm.asked()
    name = next(word for word in submitted.split() if word.startswith("--job-name=")).partition("=")[2]
    assert f"--name={name} " in cancelled and name.startswith("shakedown-run_1-")


def test_a_drained_node_is_named_and_not_waited_for(slurm):
    slurm.put("scontrol", NODES.replace("State=IDLE", "State=IDLE+DRAIN Reason=fan [root@2026-11-23T07:00:00]"))
    with pytest.raises(SlurmError, match=r"n1: idle.drain: fan \[root\]"):
        allocation().allocate(["node1.rack"], print, lambda: None)
    assert slurm.asked() == []


@pytest.fixture
def step(slurm):
    slurm.put("srun", SRUN)
    made = Step(4711, {"a": "n1", "b": "n2"}, "step", [], "")
    made.open()
    yield made
    made.close()


def test_commands_run_on_their_nodes(step):
    text = f'{{"long": "{"x" * 5000}", "short": "y"}}'
    assert step("b", ["sh", "-c", "echo $SLURMD_NODENAME; cat"], text, 30) == (0, ["n2", text], [])
    assert step("a", ["sh", "-c", "cat; echo é >&2; exit 3"], text, 30) == (3, [text], ["é"])
    done, out, _ = step("a", ["sh", "-c", "printf '%01000000d\\033[2J' 0"], None, 30)
    assert done == 0 and out == ["0" * 1_000_000]
    assert step("a", ["sh", "-c", "echo ${SLURM_NTASKS-none}"], None, 30)[1] == ["none"]
    assert step("a", ["/no/such"], None, 30) == (127, [], ["/no/such: No such file or directory"])
    assert step("c", ["true"], None, 30)[2] == ["c is not among the nodes of Slurm job 4711"]


def test_a_command_ends_within_its_limit(step, monkeypatch):
    monkeypatch.setattr(steps, "SLACK_S", 60)
    assert step("a", ["sleep", "600"], None, 0.5) == (124, [], ["the command did not end within 0.5 s"])


def test_what_others_print_is_no_answer(step):
    """A line counts from the rank that has greeted under this name, with the step's token, and in its order."""
    answer = step._waiting["n1", 99] = _Pieces()
    step._take("0: 0123456789abcdef n1 99 1/1 {}\n")
    step._take(f"1: {step._token} n1 99 1/1 {{}}\n")
    step._take(f"0: {step._token} n2 99 1/1 {{}}\n")
    step._take("no answer at all\n")
    assert not answer.whole.is_set()
    step._take(f"0: {step._token} n1 99 2/2 {{}}\n")
    assert answer.whole.is_set() and answer.text == ""
    del step._waiting["n1", 99]


def test_the_most_that_a_command_may_print_is_taken_though_each_character_is_escaped():
    answer = _Pieces()
    answer.add(1, 1, json.dumps({"code": 0, "out": '"' * relay.OUTPUT, "err": ""}))
    code, (line,), _ = steps._read(answer)
    assert (code, len(line) > 0, answer.text[:1]) == (0, True, "{")
    more = _Pieces()
    more.add(1, 1, "x" * (2 * (relay.OUTPUT + relay.ERRORS) + 1))
    assert more.whole.is_set() and more.text == ""


def test_no_node_s_word_ends_the_job_of_all(slurm, step):
    """Neither a second greeting, nor an end that Slurm knows nothing of, nor a line that a program prints."""
    held = allocation()
    held.job, held._steps = 4711, [step]
    (slurm.folder / "home/state").write_text("RUNNING|None\n")
    step._take(f'0: {step._token} n1 0 1/1 {{"hello": "n1"}}\n')
    assert held.lost() is None and slurm.asked() == []
    step._take(f'0: {step._token} n1 0 1/1 {{"ended": "n1"}}\n')
    step._errors.append("0: slurmstepd: error: *** STEP 4711.0 ON n1 CANCELLED AT 2026-11-24T00:00:00 ***")
    assert held.lost() is None
    held._asked_at = -math.inf
    step._errors.append(
        "slurmstepd: error: *** STEP 4711.0 ON n1 CANCELLED AT 2026-11-24T00:00:00 DUE TO TIME LIMIT ***"
    )
    assert "DUE TO TIME LIMIT" in held.lost()


def test_an_end_that_slurm_knows_of_ends_the_job(slurm, step):
    held = allocation()
    held.job, held._steps = 4711, [step]
    (slurm.folder / "home/state").write_text("PREEMPTED|None\n")
    step._take(f'0: {step._token} n1 0 1/1 {{"ended": "n1"}}\n')
    assert held.lost() == "Slurm ended its job 4711: PREEMPTED"


@pytest.mark.parametrize("filler", [4095, 4096, 2 * 4096])
def test_the_middle_of_a_long_line_is_no_answer(filler):
    """srun puts its label at the begin of a line, so what stands further on is the node's own word."""
    step = Step(4711, {"a": "n1", "b": "n2"}, "step", [], "")
    step._ranks = {0: "n1", 1: "n2"}
    spoofed, sound = step._waiting["n2", 98], step._waiting["n2", 99] = _Pieces(), _Pieces()
    said = f"0: {'x' * (filler - 3)}1: {step._token} n2 98 1/1 {{}}\n1: {step._token} n2 99 1/1 {{}}\n"
    step._process = SimpleNamespace(stdout=io.BytesIO(said.encode()))
    step._read()
    assert sound.whole.is_set() and not spoofed.whole.is_set()


def heard(name: str) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as way:
        try:
            way.sendto(b"here", relay.holder_address(name))
            return True
        except OSError:
            return False


@contextmanager
def holder():
    """A batch script's program, and the name that it listens under."""
    name = secrets.token_hex(16)
    words = [sys.executable, relay.__file__, "hold", "1"]
    process = subprocess.Popen(words, env={**os.environ, relay.HOLDER: name}, stderr=subprocess.DEVNULL)
    try:
        until(lambda: heard(name))
        yield process, name
    finally:
        process.kill()
        process.wait()


def is_held() -> bool:
    """Whether a batch script outlives its time when it hears a relay, and not for ever."""
    with holder() as (process, name):
        for _ in range(15):
            heard(name)
            time.sleep(0.1)
        return process.poll() is None and process.wait(60) == 0


def test_an_allocation_is_held_as_long_as_its_own_relays_speak(slurm):
    assert any(is_held() for _ in range(5)), "not all of them can have been late"
    (slurm.folder / "home/state").write_text("RUNNING|None\n")
    held = allocation()
    held.allocate(["node1.rack"], print, lambda: None)
    _, variable, program = (slurm.folder / "home/script").read_text().split("\n", 2)
    assert variable == f"export {relay.HOLDER}={held._holder}" and len(held._holder) == 32
    assert held._holder not in program, "command lines are everybody's to read"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_user_keeps_no_allocation():
    with holder() as (process, name):
        other = os.fork()
        if not other:
            os.setgroups([]), os.setgid(65534), os.setuid(65534)
            for _ in range(1200):
                heard(name)
                time.sleep(0.05)
            os._exit(0)
        try:
            assert process.wait(60) == 0
        finally:
            os.kill(other, signal.SIGKILL)
            os.waitpid(other, 0)


def test_a_node_that_falls_silent_is_told(step, slurm, monkeypatch):
    monkeypatch.setattr(steps, "SLACK_S", 0.1)
    (slurm.folder / "home/lost").write_text("n2")
    done, _, (why,) = step("b", ["true"], None, 0.3)
    assert done is None and why == "no answer within 0.3 s (Slurm job 4711)"
    assert step("a", ["true"], None, 60)[0] == 0, "the other goes on"
    step.close()
    assert step("a", ["true"], None, 30)[2] == ["its step has ended (Slurm job 4711)"]


@pytest.mark.parametrize("option", ["--nodelist=n1", "-N2", "--output=/tmp/x", "--qos=a\nb", "qos=high"])
def test_options_that_would_undo_ours_are_refused(option):
    with pytest.raises(ValueError, match="option"):
        Settings(options=[option])


def test_a_step_that_slurm_ends_is_no_nodes_failure(slurm, monkeypatch):
    monkeypatch.setattr(steps, "END_S", 1)  # our srun does not end with its relay
    slurm.put("srun", SRUN)
    (slurm.folder / "home/state").write_text("RUNNING|None\n")
    held = allocation()
    held.allocate(["node1.rack", "node2.rack"], print, lambda: None)
    with held.start("x", ["node1.rack", "node2.rack"]) as step:
        assert held.lost() is None
        (slurm.folder / "home/state").write_text("TIMEOUT|TimeLimit\n")
        assert step("node1.rack", ["sh", "-c", "kill $PPID"], None, 30) is not None
        until(lambda: held.lost() is not None, 60)
        assert held.lost() == "Slurm ended its job 4711: TIMEOUT (TimeLimit)"
    held.end()


def test_a_job_that_gets_no_place_never_started(tmp_path, monkeypatch):
    def full(*_):
        raise SlurmError("the queue is closed")

    where, told = allocation(), []
    monkeypatch.setattr(where, "allocate", full)
    job = Job(make_plan=small, log_dir=tmp_path, on_event=lambda event: told.append(event.text))
    carry_out([job], where, lambda: None)
    assert (job.error, job.allocated) == ("the queue is closed", False)
    assert told == ["not started: the queue is closed"]
