"""The layer between pyinfra and the nodes, over a real sshd on loopback and on @local, in processes: pyinfra needs
gevent's patches before anything else is imported."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import forks
from tests.sshd import SSHD, Node, connections, start

ROOT = Path(__file__).resolve().parents[2]
HEAD = """
import json, os, sys, threading, time
from shakedown.runner import engine
import gevent
from shakedown.runner.pyinfra import connection, host_keys
from shakedown.runner.progress import progress
from pyinfra.api.command import StringCommand

def ask(host, command, **arguments):
    began = time.monotonic()
    try:
        done, output = host.run_shell_command(StringCommand(command), **arguments)
        told = {"done": done, "out": output.stdout_lines, "err": output.stderr_lines}
    except OSError as error:
        told = {"error": str(error), "kind": type(error).__name__}
    return {**told, "s": time.monotonic() - began}
"""


@pytest.fixture
def sshd(tmp_path: Path) -> Iterator[tuple[Node, int]]:
    """An sshd and its process id."""
    assert SSHD, "these tests need sshd: make system"
    (tmp_path / "sshd").mkdir()
    node, server = start(tmp_path / "sshd")
    yield node, server.pid
    for child in connections(server.pid):
        os.kill(child, signal.SIGCONT)
    server.terminate()
    server.wait(10)


def inventory(folder: Path, *hosts: Any) -> Path:
    path = folder / "site.py"
    path.write_text(f"hosts = {list(hosts)!r}\n")
    return path


def drive(folder: Path, hosts: Path, body: str, early: str = "") -> Any:
    """Run a program over the connected hosts; what it puts into `result`. `early`: before they are connected."""
    script = folder / "drive.py"
    lines = [HEAD, early, f"state = engine.load({str(hosts)!r})", "hosts = list(state.inventory)"]
    lines += ["with engine.connected(state):", *(f"    {line}" for line in body.strip().splitlines())]
    lines += ["print(json.dumps(result))"]
    script.write_text("\n".join(lines))
    code, out, err = forks.run([str(script)], ROOT, {**os.environ, "HOME": str(folder)})
    assert code == 0, err
    return json.loads(out.splitlines()[-1])


@pytest.fixture(params=["ssh", "local"])
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    if request.param == "local":
        return inventory(tmp_path, "@local")
    node, _server = request.getfixturevalue("sshd")
    return inventory(tmp_path, ("node", node.data()))


def test_a_command_that_does_not_end_is_ended_on_the_node_too(tmp_path: Path, site: Path) -> None:
    mark = f"{os.getpid()}.{time.monotonic_ns()}"
    body = f"""
first = ask(hosts[0], "echo started >&2; sleep 1000; : {mark}", _timeout=2)
result = [first, ask(hosts[0], "echo still there")]
"""
    told, after = drive(tmp_path, site, body)
    assert told["kind"] == "NodeError"
    assert told["error"] == "not done within 2 s, and ended there; its last words: started"
    assert 2 <= told["s"] < 8
    assert after["out"] == ["still there"]
    listing = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert mark not in listing, "its process is gone"


def test_a_local_command_for_which_nobody_waits_any_more_is_ended(tmp_path: Path) -> None:
    """As after Ctrl-C, and long before its limit."""
    site = inventory(tmp_path, "@local")
    mark = f"{os.getpid()}.{time.monotonic_ns()}"
    body = f"""
import subprocess
def running():
    args = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True).stdout
    return sum("{mark}" in line for line in args.splitlines())
waits = gevent.spawn(ask, hosts[0], "sleep 100; : {mark}")
def until(wanted):
    for _ in range(300):
        if bool(running()) == wanted:
            return True
        gevent.sleep(0.1)
began = until(True)
gevent.sleep(1)  # it is there before gevent's own start of it is over
waits.kill()
result = [began, until(False)]
"""
    assert drive(tmp_path, site, body) == [True, True]


def test_a_command_without_a_limit_of_its_own_has_one(tmp_path: Path, site: Path) -> None:
    body = "connection.COMMAND_S = 0.5\nresult = [ask(hosts[0], 'sleep 60'), ask(hosts[0], 'sleep 1', _timeout=30)]"
    without, longer = drive(tmp_path, site, body)
    assert "not done within 0.5 s" in without["error"]
    assert longer["done"], "one that says so has more"


def test_one_that_fails_in_time_has_just_failed(tmp_path: Path, site: Path) -> None:
    body = "result = [ask(hosts[0], 'echo no >&2; exit 124', _timeout=5), progress(state).hosts[hosts[0].name].message]"
    told, said = drive(tmp_path, site, body)
    assert (told["done"], told["err"], said) == (False, ["no"], "no")


def test_a_node_that_cannot_even_end_it_is_left_a_little_later(tmp_path: Path, site: Path) -> None:
    """The shell does not heed timeout(1): only our own clock is left."""
    body = "connection.SLACK_S = 1.0\nresult = ask(hosts[0], \"trap '' TERM; sleep 30 & wait; sleep 30\", _timeout=1)"
    told = drive(tmp_path, site, body)
    assert told["error"] == "no answer for 2 s; the command's own limit is 1 s"
    assert told["s"] < 5


def test_standard_input_that_nobody_reads_holds_nobody(tmp_path: Path, site: Path) -> None:
    """Of more than any buffer on the way takes: the writing itself waits."""
    body = "connection.SLACK_S = 1.0\nresult = ask(hosts[0], 'sleep 30', _stdin=['x' * 1000] * 9000, _timeout=1)"
    told = drive(tmp_path, site, body)
    assert told["kind"] == "NodeError"
    assert told["s"] < 8


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("yes 0123456789", "printed more than 200,000 lines"),
        ("tr '\\\\0' x < /dev/zero", "printed more than 1 MiB"),
        ("tr '\\\\0' x < /dev/zero >&2", "printed more than 1 MiB"),
    ],
)
def test_a_node_that_does_not_stop_talking_is_cut_off(tmp_path: Path, site: Path, command: str, said: str) -> None:
    size = 16 if "lines" in said else 1
    body = f'connection.OUTPUT_BYTES = {size} << 20\nresult = [ask(hosts[0], "{command}"), ask(hosts[0], "echo ok")]'
    told, after = drive(tmp_path, site, body)
    assert told["error"] == f"{said}, and was cut off"
    assert after["out"] == ["ok"]


def test_as_much_as_is_allowed_comes_whole(tmp_path: Path, site: Path) -> None:
    body = """
connection.OUTPUT_BYTES, connection.OUTPUT_LINES = 4096, 100
exact = "head -c 4000 /dev/zero | tr '\\\\\\\\0' x; head -c 96 /dev/zero | tr '\\\\\\\\0' y >&2"
result = [ask(hosts[0], exact), ask(hosts[0], exact + "; echo"), ask(hosts[0], "seq 100"), ask(hosts[0], "seq 101")]
""".replace("\\\\\\\\", "\\\\")
    whole, more, lines, more_lines = drive(tmp_path, site, body)
    assert (len(whole["out"][0]), len(whole["err"][0])) == (4000, 96)
    assert "printed more" in more["error"]
    assert lines["out"] == [str(number) for number in range(1, 101)]
    assert "printed more" in more_lines["error"]


def test_what_comes_in_is_text(tmp_path: Path, site: Path) -> None:
    """pyinfra's own reader ends at the first byte that is no UTF-8, without a word."""
    command = r"printf 'a\tb\n\033[31mred\033]0;title\007\n\377\nCR\r\n\nlast'; printf '\033[2Jgone\b\n' >&2"
    told = drive(tmp_path, site, f"result = ask(hosts[0], {command!r})")
    assert told["out"] == ["a\tb", "red", "\ufffd", "CR", "", "last"]
    assert told["err"] == ["gone\ufffd"]


def test_lines_are_put_together_again(tmp_path: Path, site: Path) -> None:
    """A line longer than a packet, and a character that two packets share."""
    command = "python3 -c \"import sys; sys.stdout.write('x' * 65535 + chr(233) * 70000 + chr(10) + 'end')\""
    told = drive(tmp_path, site, f"result = ask(hosts[0], {command!r})")
    assert told["out"] == ["x" * 65535 + "é" * 70000, "end"]


def test_a_frozen_sshd_is_noticed_and_named(tmp_path: Path, sshd: tuple[Node, int]) -> None:
    node, server = sshd
    site = inventory(tmp_path, ("frozen", node.data()), "@local")
    body = f"""
import signal, subprocess
from tests.sshd import connections
told = []
frozen = gevent.spawn(lambda: told.append(ask(hosts[0], "sleep 90")))
gevent.sleep(0.5)
for pid in connections({server}):
    os.kill(pid, signal.SIGSTOP)
other = ask(hosts[1], "sleep 1; echo on")
frozen.join()
result = [told[0], other]
"""
    told, other = drive(tmp_path, site, body, "connection.BEAT_S, connection.SILENT_S = 1.0, 3.0")
    assert other["out"] == ["on"], "the others go on"
    assert told["error"].startswith("no sign of life for 3 s")
    assert 2 <= told["s"] < 8


def test_a_frozen_sshd_opens_no_channel(tmp_path: Path, sshd: tuple[Node, int]) -> None:
    node, server = sshd
    body = f"""
import signal
from tests.sshd import connections
hosts[0].connector.client.get_transport().channel_timeout = 1.0
for pid in connections({server}):
    os.kill(pid, signal.SIGSTOP)
result = ask(hosts[0], "true")
"""
    told = drive(tmp_path, inventory(tmp_path, ("frozen", node.data())), body)
    assert "opened no channel" in told["error"]
    assert told["s"] < 5


def test_every_ssh_connection_has_its_bounds(tmp_path: Path, sshd: tuple[Node, int]) -> None:
    body = """
import socket
transport = hosts[0].connector.client.get_transport()
result = [transport.channel_timeout, transport.sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)]
"""
    assert drive(tmp_path, inventory(tmp_path, ("node", sshd[0].data())), body) == [10.0, 1]


def test_a_node_that_dies_in_the_middle_is_a_failure_of_its_own(tmp_path: Path, sshd: tuple[Node, int]) -> None:
    node, server = sshd
    body = f"""
import signal
from tests.sshd import connections
gevent.spawn_later(0.5, lambda: [os.kill(pid, signal.SIGKILL) for pid in connections({server})])
result = ask(hosts[0], "sleep 60")
"""
    told = drive(tmp_path, inventory(tmp_path, ("node", node.data())), body)
    assert told.get("kind") == "NodeError" or told["done"] is False
    assert told["s"] < 10


def test_a_node_that_answers_is_let_work(tmp_path: Path, sshd: tuple[Node, int]) -> None:
    body = "result = ask(hosts[0], 'sleep 3; echo done')"
    site = inventory(tmp_path, ("node", sshd[0].data()))
    assert drive(tmp_path, site, body, "connection.BEAT_S, connection.SILENT_S = 0.5, 1.5")["out"] == ["done"]


KEYS = "result = [host_keys.new_keys(hosts), [progress(state).hosts[host.name].lost or None for host in hosts]]"


def test_a_new_host_key_is_told_once_and_one_that_changed_is_refused(tmp_path: Path, sshd: tuple[Node, int]) -> None:
    node, _server = sshd
    site = inventory(tmp_path, ("node", node.data()))
    printed = subprocess.run(
        ["ssh-keygen", "-l", "-f", str(node.folder / "host.pub")], capture_output=True, text=True, check=True
    ).stdout.split()[1]
    first, second = (drive(tmp_path, site, KEYS) for _ in range(2))
    assert first == [{"node": f"ssh-ed25519 {printed}"}, [None]]
    assert second == [{}, [None]], "now it is known"
    other = (node.folder / "key.pub").read_text().split()[1]
    (node.folder / "known_hosts").write_text(f"[127.0.0.1]:{node.port} ssh-ed25519 {other}\n")
    keys, (error,) = drive(tmp_path, site, KEYS)
    assert keys == {}
    assert "does not match" in error


def test_a_key_that_changes_within_a_run_is_refused(tmp_path: Path, sshd: tuple[Node, int]) -> None:
    """pyinfra reads known_hosts once: a node that came back from a reboot as another one would be new again."""
    node, _server = sshd
    body = """
import paramiko
known = hosts[0].connector.client._host_keys
name = next(iter(known.keys()))
known._entries.clear()
known.add(name, "ssh-ed25519", paramiko.Ed25519Key.from_private_key_file({!r}))
hosts[0].disconnect()
hosts[0].connect(show_errors=False)
result = [hosts[0].connected, name]
""".format(str(node.folder / "key"))
    connected, name = drive(tmp_path, inventory(tmp_path, ("node", node.data())), body)
    assert (connected, name) == (False, f"[127.0.0.1]:{node.port}")


@pytest.mark.parametrize(
    ("data", "config", "accepted"),
    [
        ({}, "", True),
        ({"ssh_strict_host_key_checking": "yes"}, "", False),
        ({}, "StrictHostKeyChecking yes", False),
        ({}, "StrictHostKeyChecking ask", False),
        ({}, "StrictHostKeyChecking accept-new", True),
        ({"ssh_strict_host_key_checking": "accept-new"}, "StrictHostKeyChecking yes", True),
    ],
)
def test_who_asks_for_known_keys_only_gets_no_others(
    tmp_path: Path, sshd: tuple[Node, int], data: dict[str, str], config: str, accepted: bool
) -> None:
    (tmp_path / "config").write_text(f"Host *\n  {config}\n" if config else "")
    site = inventory(tmp_path, ("node", {**sshd[0].data(), "ssh_config_file": str(tmp_path / "config"), **data}))
    keys, (error,) = drive(tmp_path, site, KEYS)
    assert (list(keys), error is None) == ((["node"], True) if accepted else ([], False))


def test_a_controller_without_a_folder_for_known_hosts_gets_one(tmp_path: Path, sshd: tuple[Node, int]) -> None:
    data = sshd[0].data()
    del data["ssh_known_hosts_file"]
    keys, errors = drive(tmp_path, inventory(tmp_path, ("node", data)), KEYS)
    assert (list(keys), errors) == (["node"], [None])
    assert (tmp_path / ".ssh").stat().st_mode & 0o777 == 0o700


LOGIN = """
from pyinfra.context import ctx_state
from shakedown.checks.examination import Examination, Reading
from shakedown.desired.models import DesiredState
from shakedown.runner import examine, stages
from shakedown.runner.session import Session
from shakedown.state.findings import Finding, FixedBy, Remedy, Verdict

def waits(node, by):
    return Finding(name="memlock", node=node, verdict=Verdict.DRIFT, remedy=Remedy(text="x", by=by))

def log_in(host, by):
    state = host.state
    current = Session(state, Examination({}))
    current.examination.findings[host.name] = [waits(host.name, by)]
    read = []
    stages._read_again = lambda _current, there: read.append(there.connected)
    stages._log_in_again(current, host)
    return read
"""


@pytest.mark.parametrize(("by", "again"), [("login", True), ("reboot", False), ("person", False)])
def test_a_login_that_is_waited_for_is_made_and_the_node_read_again(
    tmp_path: Path, sshd: tuple[Node, int], by: str, again: bool
) -> None:
    node, _server = sshd
    body = f"""
before = hosts[0].connector.client
read = log_in(hosts[0], FixedBy("{by}"))
result = [read, hosts[0].connector.client is not before, ask(hosts[0], "echo there")["out"]]
"""
    found = drive(tmp_path, inventory(tmp_path, ("node", node.data())), body, LOGIN)
    assert found == [[True] if again else [], again, ["there"]]


def test_this_machine_has_no_login_to_make(tmp_path: Path) -> None:
    body = 'result = log_in(hosts[0], FixedBy("login"))'
    assert drive(tmp_path, inventory(tmp_path, "@local"), body, LOGIN) == []


def test_a_new_login_that_fails_is_reported_and_the_node_lost(tmp_path: Path, sshd: tuple[Node, int]) -> None:
    node, server = sshd
    body = f"""
os.kill({server}, 15)
time.sleep(0.5)
read = log_in(hosts[0], FixedBy("login"))
result = [read, progress(state).hosts["node"].message]
"""
    read, message = drive(tmp_path, inventory(tmp_path, ("node", node.data())), body, LOGIN)
    assert read == [False] and message.startswith("no new login after the changes: "), message
