"""The node's lock and the watchdog's requests against other users of the node, and against what a client may send."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from shakedown.jobs.answers import NoAnswer, Refused
from shakedown.jobs.remote import Node
from shakedown.node import launcher, safe_files
from shakedown.node.launcher import control, lock, sampling
from tests.nodes import RUN, USERS_PATH, LocalNodes, alive, as_user, launch_plan, marked, until, wait

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be several users")

NOBODY, SOMEBODY = 65534, 65533
SLEEP = ["sleep", "600"]
OTHER = "import os, socket, sys, time"


@pytest.fixture
def nodes() -> Iterator[LocalNodes]:
    """Nodes whose folder every user can reach."""
    path = Path(tempfile.mkdtemp(prefix="sdtest-", dir="/tmp"))
    path.chmod(0o755)
    yield LocalNodes(path)
    shutil.rmtree(path)


Prepare = Callable[..., Node]


@pytest.fixture
def prepare(nodes: LocalNodes) -> Iterator[Prepare]:
    """Prepares a run of a user on node "n" and ends it with the test."""
    made: list[tuple[Node, int | None]] = []

    def make(user: int | None = None, run_id: str = RUN, lease_s: float = 30, command: list[str] | None = None) -> Node:
        plan = launch_plan({"n": command or SLEEP}, run_id=run_id)
        nodes.user = user
        home = nodes.home("n")
        os.chown(home, user or 0, user or 0)
        if (home / ".cache").exists() and (home / ".cache").stat().st_uid != (user or 0):
            (home / ".cache").rename(home / f".cache-{len(made)}")
        node = Node(plan, plan.nodes[0], nodes, 5)
        node.notes = node.prepare({}, lease_s, 1)  # type: ignore[attr-defined]
        made.append((node, user))
        return node

    yield make
    for node, user in made:
        nodes.user = user
        with contextlib.suppress(NoAnswer, Refused):
            node.stop("the test is over")
            wait(node, "over")
            node.remove()


def place_of(nodes: LocalNodes, run_id: str = RUN) -> dict[str, object]:
    found: dict[str, object] = json.loads((nodes.run_dir("n", run_id) / ".launcher/control.json").read_text())
    return found


@contextlib.contextmanager
def other_user(code: str, uid: int = NOBODY, **more: str) -> Iterator[subprocess.Popen[str]]:
    """Python code that another user runs, from when it has said "there"."""
    with subprocess.Popen(
        [*as_user(uid), "python3", "-c", f"{OTHER}\n{code}\nprint('there', flush=True)\ntime.sleep(600)"],
        env={"PATH": USERS_PATH, **more},
        cwd="/",
        stdout=subprocess.PIPE,
        text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "there\n"
            yield process
        finally:
            process.kill()


def squat(nodes: LocalNodes, listen: str = "s.listen(0)") -> str:
    return f"s = socket.socket(socket.AF_UNIX); s.bind(b'\\0shakedown/' + {nodes.lock_name('n')!r}.encode()); {listen}"


# -- who may have the node -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("listen", ["s.listen(0)", "pass"])
def test_a_squatter_does_not_keep_root_from_the_node_and_is_told(
    nodes: LocalNodes, prepare: Prepare, listen: str
) -> None:
    with other_user(squat(nodes, listen)) as squatter:
        node = prepare()
        wait(node, "ready")
        (note,) = node.notes  # type: ignore[attr-defined]
        assert f"process {squatter.pid}" in note and "nobody (uid 65534) holds this node too" in note


def test_a_user_is_told_by_the_kernels_word_who_squats(nodes: LocalNodes, prepare: Prepare) -> None:
    with other_user(squat(nodes)) as squatter, pytest.raises(Refused) as refused:
        prepare(user=SOMEBODY)
    assert refused.value.kind == "busy"
    assert f"process {squatter.pid} (python3) of user nobody (uid 65534) holds this node" in str(refused.value)


def test_a_squatter_who_hides_and_fills_his_queue_is_told_too(nodes: LocalNodes, prepare: Prepare) -> None:
    fill = "s.listen(0)\nheld = []\nfor _ in range(9):\n c = socket.socket(socket.AF_UNIX); c.setblocking(False)\n"
    fill += f" held.append(c)\n try: c.connect(b'\\0shakedown/' + {nodes.lock_name('n')!r}.encode())\n"
    fill += " except BlockingIOError: pass"
    with other_user(squat(nodes, fill)):
        with pytest.raises(Refused, match=r"a process that does not listen .*holds this node"):
            prepare(user=SOMEBODY)
        note = prepare().notes[0]  # type: ignore[attr-defined]
        assert "of user nobody (uid 65534) holds this node too" in note


def test_a_squatter_who_has_gone_when_his_owner_is_looked_up_ends_nothing() -> None:
    with other_user("pass") as squatter:
        assert lock._of_user(str(squatter.pid)) == " of user nobody (uid 65534)"
    assert lock._of_user(str(squatter.pid)) == ""


def test_the_name_is_free_when_its_holder_has_died(nodes: LocalNodes, prepare: Prepare) -> None:
    with other_user(squat(nodes)) as squatter:
        squatter.kill()
        squatter.wait()
        wait(prepare(user=SOMEBODY), "ready")


def test_roots_run_is_seen_by_who_may_not_open_its_lock(nodes: LocalNodes, prepare: Prepare) -> None:
    wait(prepare(), "ready")
    with pytest.raises(Refused, match=rf"run {RUN} of user root holds this node since .* \(watchdog pid \d+\)"):
        prepare(user=SOMEBODY, run_id="theirs")
    with pytest.raises(Refused, match=rf"run {RUN} of user root holds this node"):
        prepare(run_id="second")


def test_a_users_run_is_seen_by_another_user_and_by_himself(nodes: LocalNodes, prepare: Prepare) -> None:
    wait(prepare(user=SOMEBODY), "ready")
    with pytest.raises(Refused, match=rf"run {RUN} of user uid 65533 \(watchdog pid \d+\) holds this node"):
        prepare(user=SOMEBODY, run_id="second")
    with pytest.raises(Refused, match=r"process \d+ \(python3\) of user uid 65533 holds this node"):
        prepare(user=NOBODY, run_id="theirs")


def test_roots_lock_cannot_be_opened_or_exchanged_by_others(nodes: LocalNodes, prepare: Prepare) -> None:
    wait(prepare(), "ready")
    lock_file = next(path for path in Path(safe_files.ROOTS_LOCKS).glob("*.lock") if held(path))
    code = f"""
def refused(what):
    try: what()
    except PermissionError: return True
assert refused(lambda: open({str(lock_file)!r}))
assert refused(lambda: os.unlink({str(lock_file)!r}))
assert refused(lambda: os.rename({safe_files.ROOTS_LOCKS!r}, '/run/other'))
assert refused(lambda: open({str(lock_file.with_suffix(".json"))!r}, 'w'))
"""
    with other_user(code):
        pass


def held(path: Path) -> bool:
    inode = str(path.stat().st_ino)
    return any(line.split()[5].endswith(f":{inode}") for line in Path("/proc/locks").read_text().splitlines())


def test_the_node_stays_locked_while_a_leader_lives(nodes: LocalNodes, prepare: Prepare) -> None:
    stubborn = "import signal, time; signal.signal(15, signal.SIG_IGN); print('deaf', flush=True); time.sleep(600)"
    node = prepare(command=[sys.executable, "-c", stubborn])
    wait(node, "ready")
    node.go()
    wait(node, "running")
    until(lambda: b"deaf" in node.poll(0).log)  # before that, the end of its parent ends the leader
    os.kill(place_of(nodes)["process"][0], signal.SIGKILL)  # type: ignore[index]
    assert marked(RUN, "n")
    with pytest.raises(Refused, match="holds this node"):
        prepare(run_id="second")


def test_a_folder_of_root_that_others_can_write_is_not_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name, make, words in (
        ("link", lambda path: (path.symlink_to(tmp_path), os.lchown(path, NOBODY, NOBODY)), "link that another user"),
        ("foreign", lambda path: (path.mkdir(), os.chown(path, NOBODY, NOBODY)), "who could redirect"),
        ("open", lambda path: (path.mkdir(), path.chmod(0o777)), "others could redirect"),
        ("file", lambda path: path.touch(), "Not a directory"),
    ):
        path = tmp_path / name
        make(path)  # type: ignore[no-untyped-call]
        monkeypatch.setattr(safe_files, "ROOTS_LOCKS", str(path))
        with pytest.raises((safe_files.Unsafe, OSError), match=words):
            lock.take("run")


# -- where root keeps its runs ---------------------------------------------------------------------------------------


def test_root_keeps_no_run_where_another_user_could_exchange_it(nodes: LocalNodes) -> None:
    """sudo may leave HOME at the home of who called it."""
    home = nodes.home("n")
    os.chown(home, NOBODY, NOBODY)
    code = "import os, sys; sys.path.insert(0, sys.argv[1]); from node.launcher import folder; print(folder.parent())"
    source = str(Path(launcher.__path__[0]).parents[1])
    said = subprocess.check_output([sys.executable, "-c", code, source], env={"HOME": str(home)}, text=True)
    assert said == "/root/.cache/shakedown/runs\n"
    for mode, group, kept in (
        (0o755, 0, True),
        (0o770, 0, True),
        (0o1777, 0, True),
        (0o770, NOBODY, False),
        (0o757, 0, False),
    ):
        os.chown(home, 0, group)
        home.chmod(mode)
        said = subprocess.check_output([sys.executable, "-c", code, source], env={"HOME": str(home)}, text=True)
        assert (said == f"{home}/.cache/shakedown/runs\n") is kept, (oct(mode), group)


@pytest.mark.parametrize("where", [".cache", ".cache/shakedown", ".cache/shakedown/runs"])
def test_a_folder_that_another_user_has_made_beforehand_is_refused(nodes: LocalNodes, where: str) -> None:
    path = nodes.home("n") / where
    path.mkdir(parents=True)
    os.chown(path, NOBODY, NOBODY)
    plan = launch_plan({"n": SLEEP})
    with pytest.raises(Refused, match=rf"{where} belongs to nobody \(uid 65534\), who could redirect") as refused:
        Node(plan, plan.nodes[0], nodes, 5).prepare({}, 30, 1)
    assert refused.value.kind == "unusable"
    assert list(path.iterdir()) == []


# -- the watchdog's requests -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("user", "below"), [(None, "/run/shakedown/shakedown."), (SOMEBODY, "/tmp/shakedown.")])
def test_the_socket_lies_in_a_folder_that_others_cannot_enter(
    nodes: LocalNodes, prepare: Prepare, user: int | None, below: str
) -> None:
    prepare(user=user)
    where = Path(str(place_of(nodes)["socket"]))
    assert (where.stat().st_mode & 0o777, where.stat().st_uid) == (0o700, user or 0)
    assert str(where).startswith(below)
    attack = f"""
try: socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).connect({str(where / "control")!r})
except PermissionError: pass
else: sys.exit(1)
"""
    with other_user(attack):
        pass


@pytest.fixture
def requests() -> Iterator[control.RequestSocket]:
    made = control.RequestSocket()
    yield made
    made.close()
    assert not Path(made.folder).exists()


def answer(request: dict[str, object]) -> dict[str, object]:
    if request.get("command") == "fail":
        raise KeyError("no such thing")
    return {"heard": request, "filling": "x" * int(str(request.get("filling", 0)))}


def client(requests: control.RequestSocket) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    connection.settimeout(5)
    connection.bind("")  # an address of its own, for the answer
    connection.connect(f"{requests.folder}/control")
    return connection


def ask(requests: control.RequestSocket, text: bytes) -> object:
    with client(requests) as connection:
        connection.send(text)
        requests.serve(0.1, answer)
        return json.loads(connection.recv(control.ANSWER_LIMIT))


def test_a_request_is_answered_and_a_long_answer_comes_whole(requests: control.RequestSocket) -> None:
    assert ask(requests, b'{"a": 1}\n') == {"heard": {"a": 1}, "filling": ""}
    long = ask(requests, b'{"filling": 190000}')
    assert isinstance(long, dict) and len(long["filling"]) == 190_000
    room = requests._server.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
    assert room >= 2 * control.ANSWER_LIMIT, "whatever net.core.wmem_default is; the kernel doubles it"


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        (b"[" * 16_000 + b"\n", "nested too deeply"),
        (b"[1]\n", "not a message"),
        (b"nonsense\n", "JSONDecodeError"),
        (b"\xff\xfe\n", "UnicodeDecodeError"),
        (b'{"command": "fail"}\n', "KeyError"),
    ],
)
def test_what_is_no_request_gets_an_error_and_the_next_one_is_served(
    requests: control.RequestSocket, sent: bytes, said: str
) -> None:
    reply = ask(requests, sent)
    assert isinstance(reply, dict) and said in str(reply["error"])
    assert ask(requests, b"{}\n") == {"heard": {}, "filling": ""}


def test_a_request_has_a_size(requests: control.RequestSocket) -> None:
    exactly = b'{"a": "%s"}' % (b"x" * (control.REQUEST_LIMIT - 9))
    assert len(exactly) == control.REQUEST_LIMIT
    assert "heard" in ask(requests, exactly)  # type: ignore[operator]
    assert "error" in ask(requests, b" " + exactly)  # type: ignore[operator]


def test_those_who_do_not_read_their_answers_hold_up_nobody(requests: control.RequestSocket) -> None:
    with contextlib.ExitStack() as stack:
        began = time.monotonic()
        for _ in range(5):
            deaf = stack.enter_context(client(requests))
            deaf.send(b'{"filling": 190000}')
            requests.serve(0.1, answer)
        assert time.monotonic() - began < 5
        with contextlib.suppress(TimeoutError):  # this answer may be the first that finds no room
            ask(requests, b"{}")
        assert ask(requests, b"{}") == {"heard": {}, "filling": ""}


def test_an_answer_that_is_too_long_ends_nothing(requests: control.RequestSocket) -> None:
    with client(requests) as connection:
        connection.send(b'{"filling": 100000000}')
        requests.serve(0.1, answer)
    assert ask(requests, b"{}") == {"heard": {}, "filling": ""}


def test_a_dead_watchdogs_folder_goes_and_a_live_ones_and_others_stay(requests: control.RequestSocket) -> None:
    dead = control.RequestSocket()
    dead._server.close()  # as when it was killed
    foreign = tempfile.mkdtemp(prefix="shakedown.", dir=safe_files.ROOTS_LOCKS)
    os.chown(foreign, NOBODY, NOBODY)
    fresh = tempfile.mkdtemp(prefix="shakedown.", dir=safe_files.ROOTS_LOCKS)
    link = Path(safe_files.ROOTS_LOCKS, "shakedown.link")
    link.symlink_to(foreign)
    try:
        control.sweep()
        assert not Path(dead.folder).exists()
        assert all(os.path.lexists(path) for path in (requests.folder, foreign, fresh, link))
    finally:
        link.unlink()
        Path(foreign).rmdir()
        Path(fresh).rmdir()


def place(requests: control.RequestSocket, **other: object) -> dict[str, object]:
    from shakedown.node.launcher import processes

    own = {"socket": requests.folder, "process": processes.identity(os.getpid()), "boot_id": processes.boot_id()}
    return own | other


def test_a_visit_believes_only_the_process_that_the_run_folder_names(requests: control.RequestSocket) -> None:
    from shakedown.node.launcher import processes

    with subprocess.Popen(SLEEP) as other, ThreadPoolExecutor() as threads:
        try:
            threads.submit(requests.serve, 5, answer)
            with pytest.raises(control.Silent, match=f"process {os.getpid()} of root .* listens in place of the"):
                control.ask(place(requests, process=processes.identity(other.pid)), {})
        finally:
            other.kill()
    started = processes.identity(os.getpid())[1]
    for wrong in ([os.getpid(), started + 1], [os.getpid()], ["x", 1], None, [0, 0], [2**70, 1]):
        with pytest.raises(control.Dead):
            control.ask(place(requests, process=wrong), {})
    with pytest.raises(control.Dead):
        control.ask(place(requests, boot_id="of another boot"), {})
    with pytest.raises(control.Dead):
        control.ask({}, {})


def test_a_visit_goes_to_no_folder_that_is_not_its_own(requests: control.RequestSocket, tmp_path: Path) -> None:
    os.chown(requests.folder, NOBODY, NOBODY)
    with pytest.raises(control.Silent, match="can be changed by others"):
        control.ask(place(requests), {})
    os.chown(requests.folder, 0, 0)
    Path(requests.folder).chmod(0o755)
    with pytest.raises(control.Silent, match="can be changed by others"):
        control.ask(place(requests), {})
    Path(requests.folder).chmod(0o700)
    (tmp_path / "link").symlink_to(requests.folder)
    with pytest.raises(control.Silent):
        control.ask(place(requests, socket=str(tmp_path / "link")), {})


def test_a_forged_watchdog_of_another_user_is_not_believed(nodes: LocalNodes, prepare: Prepare) -> None:
    """He listens in a folder that is ours by owner and mode; only the kernel's word is left."""
    node = prepare()
    wait(node, "ready")
    where = place_of(nodes)
    control_socket = Path(str(where["socket"]), "control")
    control_socket.unlink()
    device = control_socket.parent.stat().st_dev  # for the rename below
    beside = next(at for at in map(Path, ("/tmp", "/run", "/dev/shm")) if at.stat().st_dev == device)
    forged = Path(tempfile.mkdtemp(dir=beside))
    os.chown(forged, NOBODY, NOBODY)
    code = f"s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM); s.bind('{forged}/control')\nif os.fork() == 0:"
    code += " _, client = s.recvfrom(9999); s.sendto(b'{}', client); os._exit(0)"
    with other_user(code):
        (forged / "control").rename(control_socket)
        with pytest.raises(NoAnswer, match=r"of nobody \(uid 65534\) listens in place of the watchdog"):
            node.poll(0)
    forged.rmdir()
    watchdog = where["process"][0]  # type: ignore[index]
    assert node.stop("the watchdog cannot be reached").over
    until(lambda: not alive(watchdog))


def test_who_carries_a_runs_id_is_not_taken_for_a_part_of_it(nodes: LocalNodes, prepare: Prepare) -> None:
    """Run ids stand in the command lines of containers: everybody can list them."""
    with other_user("pass", SHAKEDOWN_RUN=f"{RUN}/n") as other:
        node = prepare()
        wait(node, "ready")
        node.stop("enough")
        status = wait(node, "over")
        assert status.running_at_end == [] and status.survivors == [] and other.poll() is None


def test_a_slow_or_silent_server_costs_a_visit_three_seconds(requests: control.RequestSocket) -> None:
    with contextlib.suppress(control.Silent):
        began = time.monotonic()
        control.ask(place(requests), {}, timeout=0.5)  # nobody serves it
    assert 0.5 <= time.monotonic() - began < 30


def test_a_job_is_ended_by_its_lease_whatever_is_sent(nodes: LocalNodes, prepare: Prepare) -> None:
    node = prepare(lease_s=2)
    wait(node, "ready")
    node.go()
    wait(node, "running")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as connection:
        connection.connect(f"{place_of(nodes)['socket']}/control")
        until(lambda: _trickle(connection) and not marked(RUN, "n"), 15)
    assert node.poll(0).ending == "the controller was silent for 2 s"


def _trickle(connection: socket.socket) -> bool:
    with contextlib.suppress(OSError):
        connection.send(b" ")
    return True


@pytest.mark.parametrize(
    "request_",
    [
        {"command": "poll"},
        {"command": "poll", "run_id": "other"},
        {"command": "kill", "run_id": RUN},
        {"command": "poll", "run_id": RUN, "offset": "1"},
        {"command": "poll", "run_id": RUN, "offset": -1},
        {"command": "poll", "run_id": RUN, "offset": 1e999},
    ],
)
def test_only_a_request_of_this_run_renews_its_lease(
    nodes: LocalNodes, prepare: Prepare, request_: dict[str, object]
) -> None:
    node = prepare(lease_s=1.5)
    wait(node, "ready")
    began = time.monotonic()
    where = place_of(nodes)
    with contextlib.suppress(control.Dead):
        while time.monotonic() - began < 60:
            assert "error" in control.ask(where, request_)
            time.sleep(0.1)
    assert time.monotonic() - began < 40


def test_the_sampler_is_told_of_the_end_while_it_runs_and_only_then(tmp_path: Path) -> None:
    """Its last sample is of the end. One that has died, or never began, is not waited for."""
    own = sampling.Sampler(str(tmp_path), None, subprocess.Popen)
    own.stop(lambda: pytest.fail("none was begun"))
    with subprocess.Popen(["sleep", "60"]) as child:
        own._process = child
        own.stop(lambda: time.sleep(0.05) is not None)
        assert child.wait(10) == -signal.SIGTERM
    own.stop(lambda: pytest.fail("it has ended"))
