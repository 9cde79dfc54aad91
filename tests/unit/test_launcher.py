"""The node's side of a job: one run per node, everything it started is ended, nothing of it is left."""

from __future__ import annotations

import ast
import contextlib
import json
import os
import re
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

import pytest

from shakedown.jobs.answers import NoAnswer, Refused, Status
from shakedown.jobs.remote import Node
from shakedown.node import launcher
from shakedown.node.launcher import commands, control, folder, processes
from tests.nodes import RUN, LocalNodes, alive, hit, launch_plan, marked, until, wait

SECRET = "hf_do_not_write_me_down"
SLEEP = ["sleep", "600"]
MakeNode = Callable[..., Node]


@pytest.fixture
def nodes(tmp_path: Path) -> LocalNodes:
    return LocalNodes(tmp_path)


@pytest.fixture
def make(nodes: LocalNodes) -> Iterator[MakeNode]:
    """Prepares a run on node "n" and ends it with the test."""
    made: list[Node] = []

    def make(command: list[str] | None = None, lease_s: float = 30, grace_s: float = 1, **more: object) -> Node:
        plan = launch_plan({"n": command or SLEEP}, **more)
        made.append(Node(plan, plan.nodes[0], nodes, 5))
        made[-1].prepare({"HF_TOKEN": SECRET}, lease_s, grace_s)
        return made[-1]

    yield make
    for node in made:
        if node.prepared and nodes.run_dir("n", node._job.run_id).exists():
            node.stop("the test is over")
            wait(node, "over")
            node.remove()


def watchdog_of(nodes: LocalNodes, run_id: str = RUN) -> int:
    """Its pid."""
    place = json.loads((nodes.run_dir("n", run_id) / ".launcher/control.json").read_text())
    pid: int = place["process"][0]
    return pid


def run_to_end(node: Node) -> Status:
    wait(node, "ready")
    node.go()
    return wait(node, "over")


def test_a_leader_runs_and_its_exit_code_and_log_are_known(make: MakeNode) -> None:
    status = run_to_end(make(["sh", "-c", "echo out; echo err >&2; exit 3"]))
    assert status.exit_code == 3
    assert status.log == b"out\nerr\n"


def test_a_log_is_read_in_parts_from_any_offset(make: MakeNode) -> None:
    node = make(["sh", "-c", "seq 400000"])
    first = run_to_end(node)
    assert first.offset < first.size
    whole, status = first.log, first
    while status.offset < status.size:
        status = node.poll(status.offset)
        whole += status.log
    assert whole == "".join(f"{number}\n" for number in range(1, 400001)).encode()


def test_the_run_folder_is_for_its_owner_alone_and_gone_afterwards(make: MakeNode, nodes: LocalNodes) -> None:
    node = make(
        ["sh", "{run_dir}/job.sh"],
        files={"job.sh": "cat workload/train.py | head -n 1; umask"},
        upload=["shakedown.jobs.workload"],
    )
    status = run_to_end(node)
    assert b"Train a small Megatron-Core GPT" in status.log
    folder = nodes.run_dir("n", RUN)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert not [path for path in folder.rglob("*") if path.is_file() and path.stat().st_mode & 0o077]
    assert node.remove() == []
    assert list(folder.parent.iterdir()) == []


def test_the_job_runs_with_the_users_umask(make: MakeNode) -> None:
    mask = os.umask(0o027)
    try:
        node = make(["sh", "-c", "umask"])
    finally:
        os.umask(mask)
    assert run_to_end(node).log == b"0027\n"


def test_secrets_reach_the_job_and_no_file_or_command_line(make: MakeNode, nodes: LocalNodes) -> None:
    node = make(["sh", "-c", f"test ${{#HF_TOKEN}} = {len(SECRET)} && sleep 600"], secrets=["HF_TOKEN"])
    wait(node, "ready")
    node.go()
    wait(node, "running")
    held = [path for path in nodes.folder.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()]
    assert held == []
    assert not any(SECRET in word for argv in nodes.argv for word in argv)
    arguments = [(Path("/proc") / str(pid) / "cmdline").read_bytes() for pid in marked(RUN, "n")]
    assert arguments
    assert not any(SECRET.encode() in words for words in arguments)


def test_setup_runs_in_order_and_a_failure_names_the_command_and_its_words(make: MakeNode, nodes: LocalNodes) -> None:
    node = make(
        setup=[["touch", "one"], ["sh", "-c", "ls one; echo no such image >&2; exit 4"], ["touch", "three"]],
        cleanup=[["touch", "{run_dir}/cleaned"]],
    )
    status = wait(node, "over")
    assert status.setup_error is not None
    assert "exit code 4" in status.setup_error
    assert "no such image" in status.setup_error
    folder = nodes.run_dir("n", RUN)
    assert (folder / "one").exists()
    assert not (folder / "three").exists()
    assert (folder / "cleaned").exists()


def test_setup_has_the_jobs_environment_and_cleanup_outlives_its_mark(make: MakeNode, nodes: LocalNodes) -> None:
    """Cleanup runs after all that carries the mark was ended: with it, it would end itself."""
    tell = ["sh", "-c", 'env > "$0"']
    node = make(["true"], environment={"OWN": "yes"}, setup=[[*tell, "before"]], cleanup=[[*tell, "{run_dir}/after"]])
    run_to_end(node)
    before, after = ((nodes.run_dir("n", RUN) / name).read_text() for name in ("before", "after"))
    assert "OWN=yes" in before and "OWN=yes" not in after
    assert f"{processes.MARK}=" in before and f"{processes.MARK}=" not in after


def test_a_command_that_is_not_there_ends_like_in_a_shell(make: MakeNode) -> None:
    status = run_to_end(make(["/nowhere/torchrun"]))
    assert status.exit_code == 127
    assert b"cannot start /nowhere/torchrun: No such file or directory" in status.log


ESCAPE = """
import os, signal, sys, time
for ignore in (False, True):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:  # no relation to the leader any more, no mark, no output
            if ignore:
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
                time.sleep(600)
            os.execve("/bin/sleep", ["sleep", "600"], {})
        os._exit(0)
time.sleep(0.5)
os.system("ps -e -o pid=,args= > /dev/null")
print("escaped", flush=True)
time.sleep(600)
"""


def test_stop_reaches_what_left_the_session_cleared_its_environment_or_ignores_sigterm(make: MakeNode) -> None:
    node = make([sys.executable, "-c", ESCAPE])
    wait(node, "ready")
    node.go()
    until(lambda: b"escaped" in node.poll(0).log)
    began = time.monotonic()
    node.stop("enough")
    status = wait(node, "over")
    assert time.monotonic() - began < 40
    assert status.ending == "enough"
    assert len(status.running_at_end) == 3
    assert status.survivors == []
    assert not any(alive(int(process.split()[0])) for process in status.running_at_end)


def test_what_a_leader_leaves_behind_is_ended_when_it_exits(make: MakeNode) -> None:
    status = run_to_end(make(["sh", "-c", "setsid sleep 600 & sleep 0.5; exit 0"]))
    assert status.exit_code == 0
    assert [process.split()[1] for process in status.running_at_end] == ["sleep"]
    assert marked(RUN, "n") == []


def test_a_frozen_process_can_be_stopped(make: MakeNode) -> None:
    node = make()
    wait(node, "ready")
    node.go()
    until(lambda: marked(RUN, "n"))
    hit(RUN, "n", signal.SIGSTOP)
    node.stop("enough")
    assert wait(node, "over").exit_code == -signal.SIGTERM


def test_stop_leaves_processes_of_other_runs_alone_and_can_be_repeated(make: MakeNode) -> None:
    with subprocess.Popen(SLEEP, env={**os.environ, "SHAKEDOWN_RUN": "run2/n"}) as other:
        node = make()
        wait(node, "ready")
        node.stop("first")
        wait(node, "over")
        assert node.stop("second").ending == "first"
        assert other.poll() is None
        other.kill()


def test_a_node_that_is_not_heard_of_ends_the_job_and_says_why(make: MakeNode, nodes: LocalNodes) -> None:
    node = make(lease_s=1, cleanup=[["touch", "{run_dir}/cleaned"]])
    wait(node, "ready")
    node.go()
    until(lambda: marked(RUN, "n"))
    until(lambda: not marked(RUN, "n"))
    folder = nodes.run_dir("n", RUN)
    until((folder / "cleaned").exists)
    known = json.loads((folder / ".launcher/status.json").read_text())
    assert known["ending"] == "the controller was silent for 1 s"


def test_polls_keep_a_job_alive_longer_than_its_lease(make: MakeNode) -> None:
    node = make(lease_s=2.5)
    wait(node, "ready")
    node.go()
    began = time.monotonic()
    while time.monotonic() - began < 3.5:
        time.sleep(0.2)
        assert node.poll(0).ending is None
    assert marked(RUN, "n")


def test_one_run_per_node_and_the_second_is_told_whose_the_first_is(make: MakeNode) -> None:
    first = make()
    with pytest.raises(Refused, match=rf"run {RUN} of user \w+ holds this node since") as refused:
        make(run_id="other")
    assert refused.value.kind == "busy"
    first.stop("make room")
    wait(first, "over")
    first.remove()
    make(run_id="other")


def test_a_run_that_is_not_over_is_not_removed(make: MakeNode, nodes: LocalNodes) -> None:
    node = make()
    wait(node, "ready")
    with pytest.raises(Refused, match="not over"):
        node.remove()
    assert nodes.run_dir("n", RUN).exists()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_without_its_watchdog_a_run_can_still_be_stopped_and_removed(
    make: MakeNode, nodes: LocalNodes, number: signal.Signals
) -> None:
    node = make(["sh", "-c", "trap '' TERM; sleep 600"], cleanup=[["touch", "{run_dir}/cleaned"]])
    wait(node, "ready")
    node.go()
    wait(node, "running")
    folder = nodes.run_dir("n", RUN)
    pid = watchdog_of(nodes)
    os.kill(pid, number)
    status = node.stop("the watchdog is of no use")
    assert status.watchdog is (number == signal.SIGSTOP), "one that was stopped is continued"
    assert wait(node, "over").ending == "the watchdog is of no use"
    assert marked(RUN, "n") == []
    assert (folder / "cleaned").exists()
    node.remove()
    until(lambda: not alive(pid))
    assert not folder.exists()


@pytest.mark.parametrize(
    ("number", "command"),
    [
        (signal.SIGKILL, ["sh", "-c", "trap '' TERM; setsid sleep 600 & sleep 600"]),
        (signal.SIGSTOP, ["sh", "-c", "trap '' TERM; setsid sleep 600 & sleep 600"]),
        (signal.SIGSTOP, ["true"]),
    ],
)
def test_without_its_watchdog_and_its_controller_a_node_frees_itself(
    make: MakeNode, nodes: LocalNodes, number: signal.Signals, command: list[str]
) -> None:
    """A job that goes on, and one that is over and that no controller comes to collect."""
    node = make(command, lease_s=2, cleanup=[["touch", "{run_dir}/cleaned"]])
    wait(node, "ready")
    node.go()
    wait(node, "over" if command == ["true"] else "running")
    pid = watchdog_of(nodes)
    os.kill(pid, number)
    until(lambda: not alive(pid), 30)
    until((nodes.run_dir("n", RUN) / "cleaned").exists, 30)
    assert marked(RUN, "n") == []
    make(run_id="another")


@pytest.mark.skipif(os.geteuid() != 0, reason="of an ordinary user's lock the kernel names the holder")
@pytest.mark.parametrize(
    ("number", "said"), [(signal.SIGKILL, "which is gone: kill -9 "), (signal.SIGSTOP, "which is stopped: kill -CONT ")]
)
def test_a_node_that_no_watchdog_and_no_guardian_frees_says_what_does(
    make: MakeNode, nodes: LocalNodes, number: signal.Signals, said: str
) -> None:
    node = make(["sh", "-c", "trap '' TERM; setsid sleep 600 & sleep 600"], lease_s=2)
    wait(node, "ready")
    node.go()
    wait(node, "running")

    def state(pid: int) -> str:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]

    until(lambda: len(marked(RUN, "n")) > 1)  # the shell has set its trap
    watchdog = watchdog_of(nodes)
    guardian = int(Path(f"/proc/{watchdog}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(guardian, number)
    os.kill(watchdog, number)
    try:
        until(lambda: state(watchdog) == "T" if number == signal.SIGSTOP else not alive(watchdog))
        with pytest.raises(Refused, match=said) as refused:
            make(run_id="another")
        _, _, command = str(refused.value).partition("kill ")
        option, *pids = command.partition(" lets ")[0].partition(" ends ")[0].split()
        time.sleep(2.5)  # the lease
        for pid in pids:
            os.kill(int(pid), {"-9": signal.SIGKILL, "-CONT": signal.SIGCONT}[option])
        until(lambda: marked(RUN, "n") == [] and not alive(watchdog), 30)
        make(run_id="another")
    finally:
        if number == signal.SIGSTOP:
            os.kill(guardian, signal.SIGCONT)


def test_a_poll_that_waited_for_a_stopped_watchdog_renews_no_lease_that_is_over(
    make: MakeNode, nodes: LocalNodes
) -> None:
    node = make(lease_s=1)
    wait(node, "ready")
    node.go()
    wait(node, "running")
    pid = watchdog_of(nodes)
    os.kill(pid, signal.SIGSTOP)
    with pytest.raises(NoAnswer):
        node.poll(0)
    os.kill(pid, signal.SIGCONT)
    assert wait(node, "over").ending == "the controller was silent for 1 s"


def test_a_run_that_ends_while_nobody_answers_is_not_ended_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ask(*_: object) -> NoReturn:
        folder.write_json(str(tmp_path), "status.json", {"state": "over", "ending": "its own"})
        raise control.Silent("too late")

    folder.write_json(str(tmp_path), "status.json", {"state": "running"})
    folder.write_json(str(tmp_path), "job.json", {"cleanup": [["touch", "twice"]]})
    monkeypatch.setattr(control, "ask", ask)
    assert commands._Visit(str(tmp_path)).stop("of no use")["ending"] == "its own"
    assert not (tmp_path / "twice").exists()


def test_a_run_folder_that_goes_meanwhile_hides_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / name).mkdir()
    look = os.lstat

    def lstat(path: str) -> os.stat_result:
        if "/b" in path[len(str(tmp_path)) :]:
            raise FileNotFoundError(2, "gone", path)
        return look(path)

    monkeypatch.setattr(folder, "parent", lambda: str(tmp_path))
    monkeypatch.setattr(folder.os, "lstat", lstat)
    assert {Path(path).name for path, _ in folder._newest_first()} == {"a", "c"}


def test_a_guardian_ends_with_its_watchdog_and_leaves_no_process(make: MakeNode, nodes: LocalNodes) -> None:
    """Who looks right behind a job finds nothing of it."""
    for _ in range(3):
        node = make(["true"])
        run_to_end(node)
        watchdog = watchdog_of(nodes)
        guardian = int(Path(f"/proc/{watchdog}/stat").read_text().rpartition(")")[2].split()[1])
        node.remove()
        until(lambda pid=watchdog: not alive(pid))  # type: ignore[misc]
        time.sleep(0.3)
        assert not alive(guardian)


def test_a_watchdog_that_hangs_is_killed_and_its_run_ended(make: MakeNode, nodes: LocalNodes) -> None:
    """It is continued once, and stopped again each time: as one that waits for a file system that is gone."""
    node = make(lease_s=1, cleanup=[["touch", "{run_dir}/cleaned"]])
    wait(node, "ready")
    node.go()
    wait(node, "running")
    pid = watchdog_of(nodes)
    deadline = time.monotonic() + 40
    while alive(pid):
        assert time.monotonic() < deadline
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
    until((nodes.run_dir("n", RUN) / "cleaned").exists)
    assert marked(RUN, "n") == []
    ending = "the watchdog was killed or did not answer for 6 s"
    until(lambda: node.poll(0).ending == ending)


def test_a_run_whose_watchdog_was_killed_is_cleaned_up_when_its_lease_is_over(
    make: MakeNode, nodes: LocalNodes
) -> None:
    """Its controller may end it in that time."""
    node = make(lease_s=3, cleanup=[["touch", "{run_dir}/cleaned"]])
    wait(node, "ready")
    node.go()
    wait(node, "running")
    os.kill(watchdog_of(nodes), signal.SIGKILL)
    time.sleep(3)
    cleaned = nodes.run_dir("n", RUN) / "cleaned"
    assert not cleaned.exists()
    until(cleaned.exists)


def test_a_reboot_is_told_and_what_has_the_old_watchdogs_pid_is_left_alone(make: MakeNode, nodes: LocalNodes) -> None:
    node = make()
    wait(node, "ready")
    kept = nodes.run_dir("n", RUN) / ".launcher/control.json"
    place = json.loads(kept.read_text())
    os.kill(watchdog_of(nodes), signal.SIGKILL)
    until(lambda: not node.poll(0).watchdog)
    assert not node.poll(0).rebooted
    with subprocess.Popen(SLEEP) as other:
        started = int(Path(f"/proc/{other.pid}/stat").read_text().rpartition(")")[2].split()[19])
        kept.write_text(json.dumps(place | {"boot_id": "of another boot", "process": [other.pid, started]}))
        assert node.poll(0).rebooted
        assert node.stop("it was rebooted").over
        assert other.poll() is None
        other.kill()
    assert node.remove() == []


def test_a_leader_does_not_outlive_its_watchdog(make: MakeNode, nodes: LocalNodes) -> None:
    node = make()
    wait(node, "ready")
    node.go()
    wait(node, "running")
    os.kill(watchdog_of(nodes), signal.SIGKILL)
    until(lambda: not marked(RUN, "n"))


def test_a_node_that_shuts_down_does_not_wait_for_a_cleanup_that_hangs(make: MakeNode, nodes: LocalNodes) -> None:
    """As of a container engine that the shutdown ended before; systemd gives all that is left 90 s."""
    node = make(cleanup=[["sh", "-c", "trap '' TERM; sleep 600"]])
    wait(node, "ready")
    node.go()
    wait(node, "running")
    kept = nodes.run_dir("n", RUN) / ".launcher/status.json"
    watchdog = watchdog_of(nodes)
    os.kill(watchdog, signal.SIGTERM)
    until(lambda: not alive(watchdog), 20)
    status = json.loads(kept.read_text())
    assert status["state"] == "over" and status["ending"] == "the watchdog was sent SIGTERM"
    assert "no end after 5 s" in status["cleanup_errors"][0]


@pytest.mark.parametrize("name", ["../outside", "/etc/outside", "a/../../outside"])
def test_files_stay_inside_the_run_folder(make: MakeNode, nodes: LocalNodes, name: str) -> None:
    with pytest.raises(Refused, match="does not stay inside"):
        make(files={name: "x"})
    assert not nodes.run_dir("n", RUN).exists()


DAY = 86400


def leave(nodes: LocalNodes, run_id: str, days: float, process: list[int] | None = None) -> Path:
    """A run folder as a run leaves it that nobody came back for, last changed so many days ago."""
    left = nodes.run_dir("n", run_id)
    (left / ".launcher").mkdir(parents=True)
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    (left / ".launcher/control.json").write_text(json.dumps({"boot_id": boot, "process": process or [0, 0]}))
    (left / "leader.log").write_text("the only log\n" * 1000)
    when = time.time() - days * DAY
    for path in (left / "leader.log", left / ".launcher", left):
        os.utime(path, (when, when))
    return left


def test_what_earlier_runs_left_is_told_and_goes_by_number_and_by_age(nodes: LocalNodes) -> None:
    young = [leave(nodes, f"young{n}", n / 10) for n in range(8)]  # more than five, and none a day old
    older = leave(nodes, "older", 2)
    old = leave(nodes, "old", 15)
    plan = launch_plan({"n": SLEEP})
    node = Node(plan, plan.nodes[0], nodes, 5)
    first, second = node.prepare({}, 30, 1)
    assert ", ".join(path.name for path in young) in first and "older" not in first
    assert "older, old" in second
    size = float(re.findall(r"\(([0-9.]+) MiB\)", first)[0])
    assert 8 * 12_000 < size * 2**20 < 8 * 40_000
    assert all(path.exists() for path in young) and not older.exists() and not old.exists()
    node.stop("the test is over")
    wait(node, "over")
    node.remove()


def test_the_newest_five_stay_for_two_weeks(make: MakeNode, nodes: LocalNodes) -> None:
    kept = [leave(nodes, f"run{n}", 8 + n) for n in range(7)]
    make()
    assert [path.exists() for path in kept] == [True] * 5 + [False] * 2


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make another user's files")
def test_a_live_watchdogs_folder_and_what_is_no_run_folder_of_ours_stay(make: MakeNode, nodes: LocalNodes) -> None:
    with subprocess.Popen(SLEEP) as watchdog:
        started = int(Path(f"/proc/{watchdog.pid}/stat").read_text().rpartition(")")[2].split()[19])
        alive = leave(nodes, "alive", 30, [watchdog.pid, started])
        foreign = leave(nodes, "foreign", 30)
        os.chown(foreign, 65534, 65534)
        elsewhere = leave(nodes, "elsewhere", 30).rename(nodes.folder / "elsewhere")
        link = nodes.run_dir("n", "link")
        link.symlink_to(elsewhere)
        make()
        assert all(path.exists() for path in (alive, foreign, link, elsewhere / "leader.log"))
        watchdog.kill()


def test_a_run_id_is_used_once(make: MakeNode, nodes: LocalNodes) -> None:
    nodes.run_dir("n", RUN).mkdir(parents=True)
    with pytest.raises(Refused, match="is there already"):
        make()


def test_a_home_that_cannot_be_written_is_a_clear_error(nodes: LocalNodes) -> None:
    (nodes.folder / "n").symlink_to("/proc/self")
    plan = launch_plan({"n": SLEEP})
    with pytest.raises(Refused, match=rf"cannot make the run folder /.*/n/\.cache/shakedown/runs/{RUN}: ") as refused:
        Node(plan, plan.nodes[0], nodes, 5).prepare({}, 30, 1)
    assert refused.value.kind == "unusable"


def test_further_logs_are_fetched_and_a_missing_or_endless_one_is_refused(make: MakeNode) -> None:
    node = make(["sh", "-c", "mkdir -p logs; echo kept > logs/more; mkfifo pipe"])
    run_to_end(node)
    piece = node.fetch("{run_dir}/logs/more", 0)
    assert (piece.data, piece.offset, piece.size) == (b"kept\n", 5, 5)
    with pytest.raises(Refused, match="No such file"):
        node.fetch("{run_dir}/logs/none", 0)
    with pytest.raises(Refused, match="is a FIFO of"):
        node.fetch("pipe", 0)


LINKS = """
ln -s "$SECRET" secret; ln -s "$FOLDER" folder; mkdir logs; ln -s "$SECRET" logs/secret
rm leader.log; ln -s "$SECRET" leader.log; ln -s "$TARGET" cleanup.log; echo done > logs/done
"""


def test_no_link_that_the_job_has_laid_is_followed(make: MakeNode, nodes: LocalNodes, tmp_path: Path) -> None:
    """The root of a container writes in the run folder, and may not be allowed to read what the node's root is."""
    (tmp_path / "secret").write_text("shadow")
    target = tmp_path / "cron"
    variables = {"SECRET": str(tmp_path / "secret"), "FOLDER": str(tmp_path), "TARGET": str(target)}
    node = make(["sh", "-c", LINKS], environment=variables, cleanup=[["echo", "* * * * * root evil"]])
    status = run_to_end(node)
    assert status.log == b"", "leader.log was exchanged, and is not read"
    assert "is a link of" in status.cleanup_errors[0]
    assert not target.exists()
    assert node.fetch("{run_dir}/logs/done", 0).data == b"done\n"
    outside = ["secret", "folder/secret", "{run_dir}/logs/secret", str(tmp_path / "secret"), "../../../../../secret"]
    for name in outside:
        with pytest.raises(Refused, match=r"link|stay inside"):
            node.fetch(name, 0)
        with pytest.raises(Refused, match=r"link|stay inside"):
            node.digest(name, 6)
    node.remove()
    assert (tmp_path / "secret").read_text() == "shadow"


@pytest.mark.parametrize("year", [1970, 2400])
def test_what_a_clock_that_was_not_set_has_dated_stays(make: MakeNode, nodes: LocalNodes, year: int) -> None:
    left = leave(nodes, "left", (time.time() / DAY / 365.25 + 1970 - year) * 365.25)
    make()
    assert left.exists()


def test_a_run_folder_that_somebody_removed_is_no_answer(make: MakeNode, nodes: LocalNodes) -> None:
    node = make()
    folder = nodes.run_dir("n", RUN)
    folder.rename(folder.with_name("moved"))
    with pytest.raises(NoAnswer, match=r"\.launcher"):
        node.poll(0)
    folder.with_name("moved").rename(folder)


def test_the_launcher_is_python_3_8() -> None:
    for source in Path(launcher.__path__[0]).glob("*.py"):
        ast.parse(source.read_text(), feature_version=(3, 8))
