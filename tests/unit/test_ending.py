"""How a run ends, whatever ends it: in processes, as a user sees it, over @local and a server that says nothing."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import venv
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from shakedown.jobs.launch import Job, Timeouts, busy_after
from shakedown.report.summary import Summary, summary_lines
from shakedown.runs.folder import why_none_can_be_kept
from shakedown.state.findings import Verdict
from tests import forks
from tests.nodes import until
from tests.plans import small
from tests.sshd import SSHD
from tests.sshd import start as start_sshd

PROJECT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent
QUIET = {"gpu": "cpu", "tuning": {"numa_balancing": None}}


def start(folder: Path, *argv: object) -> forks.Program:
    environment = {**os.environ, "PYINFRA_PROGRESS": "off", "HOME": str(folder)}
    return forks.Program([str(BIN / str(argv[0])), *(str(word) for word in argv[1:])], folder, environment)


def run(folder: Path, *argv: object) -> tuple[int, str, str]:
    with start(folder, *argv) as process:
        out, err = process.communicate(timeout=100)
    return process.wait(0), out, err


def inventory(folder: Path, *hosts: Any, **data: Any) -> Path:
    path = folder / "site.py"
    path.write_text(f"site = ({list(hosts)!r}, {QUIET | data!r})\n")
    return path


def closing(err: str) -> list[str]:
    """The lines from the last verdict on, each sentence on one line."""
    return ("verdict:" + err.rpartition("\nverdict:")[2]).replace("\n        ", " ").splitlines()


def record(folder: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((folder / "runs/latest/run.json").read_text())
    return document


def data_set(folder: Path, port: int) -> dict[str, Any]:
    return {"own": {"folder": str(folder / "data"), "files": [{"url": f"http://127.0.0.1:{port}/x"}]}}


@pytest.fixture
def refusing(tmp_path: Path) -> Iterator[int]:
    """A port on which a web server has nothing, which is not asked again."""
    (tmp_path / "empty").mkdir()
    handler = partial(SimpleHTTPRequestHandler, directory=str(tmp_path / "empty"))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield server.server_address[1]
        server.shutdown()


@pytest.fixture
def silent() -> Iterator[int]:
    """A port on which somebody listens who never says anything."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def connected_to(port: int) -> bool:
    """Whether anybody is connected to a port of this machine (/proc/net/tcp: remote address in hex, state 01)."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return any(row[2] == f"0100007F:{port:04X}" and row[3] == "01" for row in rows)


def test_an_operation_that_fails_everywhere_is_named_with_its_reason(tmp_path: Path, refusing: int) -> None:
    site = inventory(tmp_path, "@local", datasets=data_set(tmp_path, refusing))
    code, _out, err = run(tmp_path, "pyinfra", site, PROJECT / "deploy/datasets.py", "-y")
    assert code == 1, err
    verdict, failed, changed, evidence = closing(err)
    assert verdict == "verdict: fail"
    reason = f"{tmp_path}/data: http://127.0.0.1:{refusing}/x: 404 File not found"
    assert failed.startswith(f'  failed: @local: in "Data set own": {reason}')
    assert changed == "changed: @local: Data set own (not to its end)"
    assert (
        evidence
        == f"report: runs/{record(tmp_path)['run_id']}/report.html, evidence: shakedown report -v, help: docs/failed.md"
    )
    (node,) = record(tmp_path)["nodes"]
    assert 'in "Data set own": ' in node["why"]
    assert node["changes"] == ["Data set own"]
    assert record(tmp_path)["verdict"] == "fail"


AT_ONCE = "interrupted: closing the connections and the record"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupted_operation_is_told_with_what_was_changed(tmp_path: Path, silent: int, number: int) -> None:
    site = inventory(tmp_path, "@local", datasets=data_set(tmp_path, silent))
    with start(tmp_path, "pyinfra", site, PROJECT / "deploy/datasets.py", "-y") as process:
        until(lambda: connected_to(silent), 120)
        process.send_signal(number)
        _out, err = process.communicate(timeout=120)
    assert process.returncode == 130, err
    assert err.count(f"\n{AT_ONCE}\n") == 1, "before what takes seconds"
    assert closing(err) == [
        "verdict: fail (interrupted)",
        '  interrupted: @local: in "Data set own"',
        "changed: @local: Data set own (not to its end)",
        "what was under way on those nodes ends there within its time limit",
        f"report: runs/{record(tmp_path)['run_id']}/report.html, evidence: shakedown report -v, help: docs/failed.md",
    ]
    assert record(tmp_path)["finished_at"]
    assert record(tmp_path)["verdict"] == "fail"


@pytest.mark.parametrize("command", ["drift", "run", "plan", "pyinfra"])
def test_an_interrupt_before_anything_was_examined(tmp_path: Path, silent: int, command: str) -> None:
    site = inventory(tmp_path, ("127.0.0.1", {"ssh_port": silent}), "@local")
    argv = ["pyinfra", site, PROJECT / "deploy/megatron.py", "-y"]
    with start(tmp_path, *(argv if command == "pyinfra" else ["shakedown", command, site])) as process:
        until(lambda: connected_to(silent), 120)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=120)
    assert process.returncode == 130, (out, err)
    assert closing(err) == [
        "verdict: fail (interrupted)",
        "  interrupted: 127.0.0.1, @local: before it was examined",
        "changed: nothing",
        "evidence: none was kept",
    ]


def test_the_end_of_a_look_at_the_service_is_the_verdict_on_the_service(tmp_path: Path) -> None:
    """Its exit code is 1 for a node that an earlier run names, and the lines at the end said that all is ok."""
    run(tmp_path, "shakedown", "drift", inventory(tmp_path, "@local", system={"disk_free": {"/": "900T"}}), "--ledger")
    for system, ends in (
        ({"disk_free": {"/": None}}, "  not in service: @local"),
        ({"disk_free": {"/": "900T"}}, "  not in service: @local"),
    ):
        code, out, err = run(tmp_path, "shakedown", "service", inventory(tmp_path, "@local", system=system))
        assert code == 1 and "@local\n    suspect since" in out, (out, err)
        assert closing(err)[0].startswith("verdict: fail") and ends in closing(err), err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_interrupt_ends_what_reads_this_machine(tmp_path: Path, monkeypatch, number: int) -> None:
    """Its time limits lead groups of processes of their own: a signal to the first does not reach the last."""
    (tmp_path / "slow").mkdir()
    python = tmp_path / "slow/python3"
    python.write_text(f"#!/bin/sh\necho $$ > {tmp_path}/reads\nsleep 100\n")
    python.chmod(0o755)
    monkeypatch.setenv("PATH", f"{python.parent}:{os.environ['PATH']}")
    with start(tmp_path, "shakedown", "drift", inventory(tmp_path, "@local")) as process:
        until(lambda: (tmp_path / "reads").is_file() and (tmp_path / "reads").read_text().strip(), 120)
        process.send_signal(number)
        _out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    reads = Path("/proc", (tmp_path / "reads").read_text().strip(), "cmdline")
    until(lambda: not reads.is_file() or not reads.read_bytes(), 20)  # a zombie has none


INTERRUPTS_ITSELF = """
import os, signal, sys

def hook(event, arguments, sent=[]):
    if event == "import" and arguments[0] == "MODULE" and not sent:
        sent.append(1)
        os.kill(os.getpid(), signal.SIGINT)

sys.addaudithook(hook)
"""


@pytest.mark.parametrize(
    ("command", "moment"),
    [
        ("drift", "click"),
        ("run", "pyinfra.api.inventory"),
        ("plan", "shakedown.checks"),
        ("run", "shakedown.runner.session"),
        ("pyinfra", "shakedown.runner.pyinfra.connection"),
        ("pyinfra", "shakedown.runner.pyinfra.prepare"),
    ],
)
def test_an_interrupt_while_things_are_loaded(tmp_path: Path, command: str, moment: str) -> None:
    (tmp_path / "sitecustomize.py").write_text(INTERRUPTS_ITSELF.replace("MODULE", moment))
    site = inventory(tmp_path, "@local", smoke={"recipe": "gpt-small"})
    argv: list[object] = ["pyinfra", site, PROJECT / "deploy/megatron.py", "-y"]
    if command != "pyinfra":
        argv = ["shakedown", command, site]
    environment = {**os.environ, "HOME": str(tmp_path), "PYTHONPATH": str(tmp_path)}
    ran = subprocess.run(  # not a fork of a process that has loaded it all
        [str(BIN / str(argv[0])), *map(str, argv[1:])],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert ran.returncode == 130, ran.stderr
    assert "Traceback" not in ran.stderr
    assert closing(ran.stderr) == [
        "verdict: fail (interrupted)",
        "  before the first connection",
        "changed: nothing",
        "evidence: none was kept",
    ]


@pytest.mark.parametrize(
    ("command", "moment", "number"),
    [
        ("report", "click", "SIGINT"),
        ("watch", "shakedown.report.terminal", "SIGTERM"),
        ("run", "shakedown.common.text", "SIGINT"),
        ("soak", "ast", "SIGHUP"),
        ("judge", "shakedown.gates", "SIGTERM"),
    ],
)
def test_an_interrupt_of_another_command_while_things_are_loaded_is_one_line(
    tmp_path: Path, command: str, moment: str, number: str
) -> None:
    script = INTERRUPTS_ITSELF.replace("MODULE", moment).replace("SIGINT", number)
    (tmp_path / "sitecustomize.py").write_text(script)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    argv = [str(BIN / "shakedown"), command]
    ran = subprocess.run(argv, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=120)
    assert (ran.returncode, ran.stderr) == (130, "shakedown: interrupted\n")


TWICE = """
import os, signal, sys
from shakedown.runner.pyinfra.invocation import install_signal_handlers, invocation
from shakedown.operations.smoke import interrupts

install_signal_handlers()
invocation.connecting = True
with interrupts() as interrupted:
    os.kill(os.getpid(), signal.SIGINT)
    print(interrupted(), flush=True)
    try:
        os.kill(os.getpid(), signal.SIGINT)
    finally:
        print("the closing lines come here", invocation.interrupted, flush=True)
"""


def test_a_second_interrupt_ends_in_words(tmp_path: Path) -> None:
    script = tmp_path / "twice.py"
    script.write_text(TWICE)
    code, out, err = forks.run([str(script)], PROJECT, os.environ)
    assert (code, err) == (130, "")
    assert out.splitlines() == ["stopped by Ctrl-C", "the closing lines come here True"]


IN_A_THREAD = """
import os, signal, sys, threading, time
from shakedown.runner.pyinfra.invocation import install_signal_handlers, invocation

def turn():
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(0.01)
    print("the thread goes on", flush=True)

install_signal_handlers()
invocation.connecting = True
thread = threading.Thread(target=turn)  # of gevent, as paramiko's are: what ends one with SystemExit is dropped
thread.start()
try:
    time.sleep(60)
except SystemExit:
    thread.join()
    raise
print("the signal was dropped")
"""


def test_an_interrupt_ends_the_program_whichever_thread_has_its_turn(tmp_path: Path) -> None:
    script = tmp_path / "thread.py"
    script.write_text(IN_A_THREAD)
    assert forks.run([str(script)], PROJECT, os.environ) == (130, "the thread goes on\n", f"\n{AT_ONCE}\n")


AT_THE_END = """
import os, signal
from shakedown.runner import session

def interrupt(self, write=session.Session.publish):
    for _ in range({count}):
        os.kill(os.getpid(), signal.SIGINT)
    write(self)

session.Session.publish = interrupt
from shakedown.cli import main
main()
"""


@pytest.mark.parametrize("count", [1, 2])
def test_an_interrupt_while_the_report_is_written_leaves_no_record_half_written(tmp_path: Path, count: int) -> None:
    """A second one ends it at once."""
    lacking = {**NOTHING_ASKED, "gpu": {**NOTHING_ASKED["gpu"], "count": 9}}  # or nothing would be kept
    script, site = tmp_path / "end.py", inventory(tmp_path, "@local", **lacking)
    script.write_text(AT_THE_END.format(count=count))
    code, _out, err = forks.run([str(script), "run", str(site), "--no-smoke"], tmp_path, os.environ)
    assert code == 130 and ("\nverdict: " in err) is (count == 1) and "Traceback" not in err, err
    assert record(tmp_path)["finished_at"]


def test_nodes_that_nobody_waited_for_are_named_with_how_long_they_stay_busy(tmp_path: Path) -> None:
    plan = small(2)
    job = Job(make_plan=lambda: plan, log_dir=tmp_path)
    assert busy_after([job]) == {}
    job.plan = plan
    lease = Timeouts.of(plan.unreachable_s).lease_s
    held = busy_after([job])
    assert list(held) == [node.name for node in plan.nodes] and min(held.values()) > lease
    said = list(summary_lines(Summary(Verdict.FAIL, busy=held, interrupted=True)))
    assert any(f"busy, for up to {max(held.values()):.0f} s: {', '.join(held)}: " in line for line in said)
    job.error = "nothing was started"
    assert busy_after([job]) == {}


def test_nobody_can_be_reached(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        closed = server.getsockname()[1]
    site = inventory(tmp_path, ("127.0.0.1", {"ssh_port": closed}))
    deploys = [["pyinfra", site, PROJECT / f"deploy/{name}.py", "-y"] for name in ("drift", "megatron", "rollback")]
    own = [["shakedown", *words, site] for words in (["drift"], ["run"], ["rollback"], ["rollback", "--dry"])]
    for argv in (*deploys, *own):
        code, out, err = run(tmp_path, *argv)
        assert code == 1, (argv, err)
        why = f"Could not connect (port {closed}: Connection refused)"
        if argv[1] == "drift":
            assert "reachable  127.0.0.1" in out and closing(err)[1].startswith("evidence: runs/")
            assert closing(err)[1].endswith(", help: docs/failed.md")
            continue
        changed = f"changed: nothing{' (dry run)' if '--dry' in argv else ''}"
        *lines, last = closing(err)[:4]
        assert lines == ["verdict: fail", f"  unreached: 127.0.0.1: {why}", changed], argv
        if "rollback" in str(argv):  # which reads no node, and keeps nothing
            assert last == "evidence: none was kept"
        elif "drift" in str(argv):
            assert re.fullmatch(r"evidence: runs/\S+, help: docs/failed.md", last), argv
        else:
            assert re.fullmatch(r"report: runs/\S+/report.html, evidence: shakedown report -v, help: \S+", last), argv
    kept = [json.loads(file.read_text()) for file in tmp_path.glob("runs/2*/run.json")]
    assert sorted(run["kind"] for run in kept) == ["drift", "drift", "run", "run"]
    assert all(why in run["nodes"][0]["why"] and run["verdict"] == "fail" for run in kept)
    assert not [run for run in kept if not run["finished_at"]]


def test_a_run_that_no_operation_could_help_keeps_what_it_has_seen(tmp_path: Path) -> None:
    """The node answers, and lacks what no operation brings: nothing is changed, and nothing begins."""
    site = inventory(tmp_path, "@local", **{**NOTHING_ASKED, "gpu": {**NOTHING_ASKED["gpu"], "count": 9}})
    code, _out, err = run(tmp_path, "shakedown", "run", site, "--no-smoke")
    *lines, last = closing(err)
    assert (code, lines[0], lines[-1]) == (1, "verdict: fail", "changed: nothing"), err
    assert re.fullmatch(r"report: runs/\S+/report.html, evidence: shakedown report -v, help: \S+", last)
    failed = [finding for finding in record(tmp_path)["findings"] if finding["verdict"] == "fail"]
    assert "gpu_count" in {finding["name"] for finding in failed}


def test_drift_says_the_same_and_leaves_standard_output_to_the_findings(tmp_path: Path) -> None:
    wanted = {"numa_balancing": None, "sysctl": {"kernel.pid_max": 4242}}
    site = inventory(tmp_path, "@local", tuning=wanted)
    told = ["verdict: drift", "  drift: @local: sysctl.kernel.pid_max", "changed: nothing"]
    code, out, err = run(tmp_path, "shakedown", "drift", site, "--format", "json")
    assert (code, closing(err)[:-1]) == (3, told) and closing(err)[-1].startswith("evidence: runs/")
    assert json.loads(out)["verdict"] == "drift"
    code, out, err = run(tmp_path, "pyinfra", site, PROJECT / "deploy/drift.py", "-y")
    assert (code, closing(err)[0], closing(err)[2]) == (3, told[0], told[2])
    assert closing(err)[1] == "  excluded: @local: drifted: sysctl.kernel.pid_max"


@pytest.mark.parametrize("limit", [1, 4000])
def test_evidence_is_named_only_once_its_record_is_written(tmp_path: Path, limit: int) -> None:
    """A limit on the size of files (in 512 bytes) ends a write like a full disk does."""
    command = ["shakedown", "drift", inventory(tmp_path, "@local"), "--ledger"]
    ran = subprocess.run(
        ["sh", "-c", f'ulimit -f {limit}; exec "$@"', "sh", *(str(BIN / command[0]), *map(str, command[1:]))],
        cwd=tmp_path,
        env={**os.environ, "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    verdict, *_others, evidence = closing(ran.stderr)
    kept = list(tmp_path.glob("runs/*/run.json"))
    assert bool(kept) is (limit > 1), "the record fits, or it does not"
    if kept:
        assert (ran.returncode, verdict, evidence) == (0, "verdict: ok", f"evidence: runs/{kept[0].parent.name}")
    else:
        assert (ran.returncode, verdict, evidence) == (1, "verdict: fail", "evidence: none was kept"), ran.stderr
        assert "the check is not kept" in ran.stderr


NOTHING_ASKED = {
    "gpu": {"profile": "mi300x", "count": 0, "rocm_min": None, "modules": []},
    "nic": None,
    "tuning": dict.fromkeys(["numa_balancing", "cpu_governor", "c2", "thp", "pcie_acs", "memlock", "nofile"])
    | {"cmdline": [], "groups": []},
    "system": dict.fromkeys(["container_engine", "clock_synchronised", "clock_skew_s", "kernel_log_clean"])
    | {"disk_free": {"/": "1M"}},
}
"""An Instinct profile, of which this machine is asked nothing but some room."""


@pytest.mark.parametrize(
    ("command", "options", "code"),
    [("shakedown drift", "--nodes 1", 0), ("pyinfra", "deploy/drift.py -y", 0), ("shakedown run", "--no-smoke", 0)],
)
def test_a_warning_is_shown_and_counted_and_changes_neither_verdict_nor_exit_code(
    tmp_path: Path, command: str, options: str, code: int
) -> None:
    environment = {"HSA_ENABLE_SDMA": "0", "NCCL_IB_DISABLE": "1"}
    site = inventory(tmp_path, "@local", **NOTHING_ASKED, smoke={"recipe": "gpt-small", "environment": environment})
    words = [str(PROJECT / word) if word.endswith(".py") else word for word in options.split()]
    ended, out, err = run(tmp_path, *command.split(), site, *words)
    assert ended == code, err
    assert "WARN environment.HSA_ENABLE_SDMA" in out + err and "2 of advice" in out + err
    warned = "environment.HSA_ENABLE_SDMA: @local; environment.NCCL_IB_DISABLE: @local"
    shown = ["  ok: @local", f"  warnings, beside the verdict: 2 ({warned})"]
    assert closing(err)[:3] == ["verdict: ok", *shown] or command == "shakedown drift"


def test_warnings_in_json_are_counted(tmp_path: Path) -> None:
    site = inventory(
        tmp_path, "@local", **NOTHING_ASKED, smoke={"recipe": "gpt-small", "environment": {"HSA_ENABLE_SDMA": "0"}}
    )
    code, out, _ = run(tmp_path, "shakedown", "drift", site, "--format", "json")
    document = json.loads(out)
    assert (code, document["verdict"]) == (0, "ok")
    verdicts = [finding["verdict"] for finding in document["findings"]]
    assert document["counts"] == {name: verdicts.count(name) for name in ("ok", "warn", "drift", "fail", "unknown")}
    assert document["counts"]["warn"] == 1


def test_what_ends_a_run_in_the_middle_is_told(tmp_path: Path) -> None:
    """pyinfra asks before it goes on, and there is nobody to ask."""
    site = inventory(tmp_path, "@local", datasets=data_set(tmp_path, 9))
    code, _out, err = run(tmp_path, "pyinfra", site, PROJECT / "deploy/datasets.py")
    assert code == 1
    assert closing(err)[:2] == [
        "verdict: fail",
        "  ended by RuntimeError: there is no terminal to ask on: give -y to go on without a question, or --dry",
    ]
    assert record(tmp_path)["verdict"] == "fail"


RAISES = """
import json, sys
from shakedown.runner import engine
from shakedown.runner.progress import progress
from pyinfra.api.exceptions import FactProcessError
from pyinfra.api.operation import add_op, operation
from pyinfra.api.operations import run_ops
from pyinfra.api.state import StateStage
from pyinfra.context import host, state as current

@operation(is_idempotent=False)
def weird(kind):
    yield "true"
    if host.name == "@local" and current.is_executing:
        raise kind("what a node\\x1b[2J said")

@operation(is_idempotent=False)
def after():
    yield "true"

state = engine.load(sys.argv[1])
with engine.connected(state):
    add_op(state, weird, kind={kind}, name="Weird")
    add_op(state, after, name="After")
    state.set_stage(StateStage.Execute)
    run_ops(state)
kept = progress(state)
runs = {name: [run.kind, run.unfinished, run.reason, run.changes, run.operation] for name, run in kept.hosts.items()}
print(json.dumps([sorted(h.name for h in state.failed_hosts), runs]))
"""


@pytest.mark.parametrize("kind", ["ValueError", "KeyError", "RecursionError", "UnicodeError", "EOFError"])
def test_what_an_operation_raises_for_one_node_fails_that_node_alone(tmp_path: Path, kind: str) -> None:
    site = inventory(tmp_path, "@local", ("@fake/other", {"fake_delay": 0, "fake_delay_jitter": 0}))
    script = tmp_path / "drive.py"
    script.write_text(RAISES.replace("{kind}", kind))
    code, out, err = forks.run([str(script), str(site)], PROJECT, os.environ)
    assert code == 0, err
    failed, runs = json.loads(out.splitlines()[-1])
    assert failed == ["@local"]
    what, operation, reason, *rest = runs["@local"]
    assert (what, operation, rest) == ("failed", "Weird", [["Weird"], ""])
    assert kind in reason and "what a node" in reason and "\x1b" not in reason
    assert runs["@fake/other"] == [None, "", "", ["Weird", "After"], ""]


SMALL = {"smoke": {"recipe": "gpt-small", "ranks_per_node": 1, "venv": str(BIN.parent)}}


def test_everything_but_the_training(tmp_path: Path) -> None:
    site = inventory(tmp_path, "@local", **SMALL)
    commands = (
        ["pyinfra", site, PROJECT / "deploy/bringup.py", "-y"],
        ["shakedown", "run", site, "--no-smoke"],
        ["shakedown", "run", site, "--no-smoke", "--dry"],
    )
    for argv in commands:
        code, _out, err = run(tmp_path, *argv)
        assert code == 0, err
        assert "Smoke run" not in err
        assert closing(err)[:2] == ["verdict: ok", "  ok: @local"]


ENDED_EARLY = """
import sys
from shakedown.runner import engine
from shakedown.runner.ending import outcome
from shakedown.runner.pyinfra.invocation import invocation

state = engine.load(sys.argv[1])
with engine.connected(state):
    (host,) = state.inventory
    print(outcome(state, host, None).kind)
    invocation.error = "SyntaxError: in a check"
    print(outcome(state, host, None).kind, outcome(state, host, None).why)
"""


def test_a_node_is_not_ok_where_the_run_ended_before_it_was_judged(tmp_path: Path) -> None:
    script = tmp_path / "drive.py"
    script.write_text(ENDED_EARLY)
    code, out, err = forks.run([str(script), str(inventory(tmp_path, "@local"))], PROJECT, os.environ)
    assert code == 0, err
    assert out.splitlines() == ["ok", "unknown the run ended before it was judged"]


def test_a_node_on_which_nothing_was_started_has_not_trained(tmp_path: Path) -> None:
    venv.create(tmp_path / "bare", symlinks=True)  # without torch, which the node says before the start
    smoke = {"recipe": "gpt-small", "ranks_per_node": 1, "venv": str(tmp_path / "bare")}
    code, _out, err = run(tmp_path, "shakedown", "run", inventory(tmp_path, "@local", smoke=smoke))
    assert code == 1, err
    assert [node["part"] for node in record(tmp_path)["nodes"]] != ["trained"], err
    assert [gate["name"] for gate in record(tmp_path)["gates"] if gate["verdict"] != "ok"] == ["ran_to_its_end"], err


def test_the_deploy_without_training_has_all_the_other_stages() -> None:
    def stages(name: str) -> list[str]:
        lines = (PROJECT / f"deploy/{name}.py").read_text().splitlines()
        return [line for line in lines if line.startswith(("stages.", "data."))]

    training = ["data.shared_cache()", "stages.smoke()", "stages.conclude()"]
    assert stages("megatron") == [*stages("bringup"), *training]


def test_a_name_that_would_reach_the_terminal_is_refused(tmp_path: Path) -> None:
    names = ("node\x1b[2J1", "a\nb", "a\u202eb")
    site = inventory(tmp_path, *names, "@local")
    for argv in (["shakedown", "drift", site], ["pyinfra", site, PROJECT / "deploy/drift.py"]):
        code, out, err = run(tmp_path, *argv)
        assert code == 2, (out, err)
        assert err.count("expected") == len(names)
        assert all(line.isprintable() for line in err.splitlines() if line.startswith(("shakedown", "  ")))


def test_debugging_does_not_show_the_password(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        closed = server.getsockname()[1]
    site = inventory(tmp_path, ("127.0.0.1", {"ssh_port": closed, "ssh_password": "hunter2-secret"}))
    _code, out, err = run(tmp_path, "pyinfra", site, PROJECT / "deploy/drift.py", "--debug", "-y")
    assert "Connecting to: 127.0.0.1" in err
    assert "*MASKED*" in err
    assert "hunter2-secret" not in out + err


def test_a_new_host_key_is_told_by_every_command(tmp_path: Path, refusing: int) -> None:
    assert SSHD, "these tests need sshd: make system"
    (tmp_path / "sshd").mkdir()
    node, server = start_sshd(tmp_path / "sshd")
    try:
        wanted = {"datasets": data_set(tmp_path, refusing)}  # which fails, and has a record for that
        site = inventory(tmp_path, ("node7", node.data()), **wanted)
        deploy = ["pyinfra", site, PROJECT / "deploy/bringup.py", "-y"]
        for argv in (["shakedown", "drift", site], ["shakedown", "plan", site], ["shakedown", "run", site], deploy):
            (node.folder / "known_hosts").unlink(missing_ok=True)
            _code, _out, err = run(tmp_path, *argv)
            (line,) = [line for line in closing(err) if line.startswith("new host key")]
            assert line.startswith("new host key of node7, compare it: ssh-ed25519 SHA256:")
        told = record(tmp_path)["nodes"][0]["new_host_key"]
        assert told and told in line
        _code, _out, err = run(tmp_path, *deploy)
        assert "new host key" not in err, "it is known now"
        assert [each["new_host_key"] for each in record(tmp_path)["nodes"]] == [""]
    finally:
        server.terminate()
        server.wait(10)


@pytest.mark.parametrize("command", [["drift", "--nodes", "2"], ["drift", "--nodes", "2", "--format", "json"]])
def test_fewer_nodes_than_expected_fail_in_every_word(tmp_path: Path, command: list[str]) -> None:
    code, out, err = run(tmp_path, "shakedown", *command, inventory(tmp_path, "@local"))
    assert code == 1
    assert closing(err)[:2] == ["verdict: fail", "  1 of 2 expected nodes answered"]
    assert "--format" not in command or json.loads(out)["verdict"] == "fail"


def test_a_job_that_cannot_be_planned_fails_in_every_word(tmp_path: Path) -> None:
    smoke = {"recipe": "gpt-small", "venv": str(tmp_path / "none")}
    site = inventory(tmp_path, "@local", smoke=smoke, system={"disk_free": {"/": "900T"}})
    code, out, err = run(tmp_path, "shakedown", "plan", site)
    assert (code, out) == (1, "")
    assert "disk_free./: fail" in err
    assert closing(err)[:2] == ["verdict: fail", "  no launch plan for together: see above"]


@pytest.mark.parametrize("command", [["shakedown", "run"], ["pyinfra", "-y"]])
def test_a_folder_that_can_keep_no_run_is_refused_before_connecting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SHAKEDOWN_RUNS", str(tmp_path / "file"))
    site = inventory(tmp_path, "127.0.0.1", ssh_port=1, smoke={"recipe": "gpt-small"})
    deploy = [PROJECT / "deploy/megatron.py"] if command[0] == "pyinfra" else []
    code, out, err = run(tmp_path, *command, site, *deploy)
    assert code == 2
    assert f"no run can be kept in {tmp_path / 'file'}" in err and "set $SHAKEDOWN_RUNS" in err
    assert "Traceback" not in out + err and "refused" not in out + err and "reach" not in out + err


def test_a_folder_for_runs_is_tried_where_it_would_be_made(tmp_path: Path) -> None:
    assert why_none_can_be_kept(tmp_path / "a/b/c") == "" and not list(tmp_path.iterdir())
    assert "nothing can be written in /proc " in why_none_can_be_kept(Path("/proc/a/b"))
