"""What a node lacks for a job, whose a process is and what it waits for: real files, ports and processes."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from shakedown.node.launcher import folder, needs, processes, standstill
from tests.nodes import until


def script(path: Path, text: str) -> str:
    path.write_text(text)
    path.chmod(0o755)
    return str(path)


def lacking(*wanted: dict[str, object]) -> list[str]:
    return [lack["text"] for lack in needs.lacking(list(wanted), dict(os.environ))]


def test_a_program_that_cannot_be_run_is_told_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "dangling").symlink_to("nowhere")
    (tmp_path / "text").write_text("")
    (tmp_path / "folder").mkdir()
    script(tmp_path / "fine", "#!/bin/sh\n")
    names = ("none", "dangling", "text", "folder", "fine")
    assert lacking(*({"kind": "program", "path": str(tmp_path / name)} for name in names)) == [
        f"{tmp_path}/none is missing",
        f"{tmp_path}/dangling is a link to what is missing",
        f"{tmp_path}/text is no program that this user may run",
        f"{tmp_path}/folder is no program that this user may run",
    ]


def test_the_programs_of_an_environment_that_is_missing_say_no_more(tmp_path: Path) -> None:
    bad = {"kind": "python", "path": f"{tmp_path}/venv/python", "modules": ["torch"]}
    programs = [{"kind": "program", "path": f"{tmp_path}/{where}/torchrun"} for where in ("venv", "other")]
    assert lacking(bad, *programs) == [f"{tmp_path}/venv/python is missing", f"{tmp_path}/other/torchrun is missing"]
    assert len(lacking(*programs)) == 2


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("#!/bin/sh\necho a banner\necho shakedown lacks:\n", ""),
        ("#!/bin/sh\necho shakedown lacks: torch numpy\n", "lacks torch, numpy (pip install"),
        ("#!/bin/sh\necho shakedown lacks:\necho first >&2; echo last >&2; exit 3\n", "exit code 3: last"),
        ("#!/bin/sh\necho no python here\n", "exit code 0: no python here"),
        ("#!/bin/sh\nexit 0\n", "exit code 0: no word"),
        ("#!/nowhere/python\n", "the interpreter that it names is missing"),
        ("\x7fELF of another machine", "Exec format error"),
        ("#!/bin/sh\nexec sleep 30\n", "it gave no answer within"),
    ],
)
def test_an_interpreter_is_asked_for_its_modules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, words: str
) -> None:
    monkeypatch.setattr(needs, "_LIMIT_S", 0.5 if "sleep" in text else 60.0)
    found = lacking({"kind": "python", "path": script(tmp_path / "python", text), "modules": ["torch"]})
    assert found == [] if not words else words in found[0]


def test_this_interpreter_has_its_own_modules_and_no_others() -> None:
    modules = ["json", "json.decoder", "no_such_module", "no_such.part"]
    (found,) = lacking({"kind": "python", "path": sys.executable, "modules": modules})
    assert found.startswith(f"{sys.executable} lacks no_such_module, no_such.part (")


def test_data_may_be_the_beginning_of_names(tmp_path: Path) -> None:
    (tmp_path / "wiki.bin").touch()
    assert lacking({"kind": "data", "path": f"{tmp_path}/wiki"}, {"kind": "data", "path": str(tmp_path)}) == []
    assert lacking({"kind": "data", "path": f"{tmp_path}/book"}) == [f"the data {tmp_path}/book are missing"]


def test_an_engine_that_is_not_there_lacks_no_image(tmp_path: Path) -> None:
    path = f"{tmp_path}/docker"
    need = {"kind": "image", "path": path, "image": "r/x"}
    assert lacking(need) == [f"{path} cannot be asked for r/x: it is not installed"]
    script(tmp_path / "docker", "#!/bin/sh\necho sha256:1\n")
    assert lacking(need) == []
    script(tmp_path / "docker", "#!/bin/sh\necho Error: No such image: r/x >&2; exit 1\n")
    assert lacking(need) == [f"{path} has no image r/x: Error: No such image: r/x"]
    script(tmp_path / "docker", "#!/bin/sh\necho no daemon >&2; exit 1\n")
    assert lacking(need) == [f"{path} cannot be asked for r/x: no daemon"]
    script(tmp_path / "docker", "\x7fELF of another machine")
    assert lacking(need) == [f"{path} cannot be asked for r/x: Exec format error"]


def test_room_is_that_of_where_the_files_will_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder, "refusal", lambda path: "")
    monkeypatch.setenv("HOME", str(tmp_path))
    asked = {"kind": "room", "path": f"{tmp_path}/not/yet", "size": 1}
    assert lacking(asked, {**asked, "path": ""}) == []
    job, run = lacking({**asked, "size": 2**60}, {**asked, "size": 2**60, "path": ""})
    assert job.startswith(f"{tmp_path} has ") and "and the job needs" in job
    assert run.startswith(f"{tmp_path} has ") and "and the run folder needs" in run


def test_nothing_is_written_where_another_user_could_exchange_it(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    (found,) = lacking({"kind": "room", "path": f"{tmp_path}/open", "size": 1})
    assert found.startswith(f"no files are written in {tmp_path}/open: ")


def test_a_port_is_held_by_who_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        need = {"kind": "port", "path": "", "address": "127.0.0.1", "port": server.getsockname()[1]}
        assert lacking(need) == [f"port {need['port']} of 127.0.0.1 cannot be used: Address already in use"]
    assert lacking(need) == []


Start = Callable[[str], processes.Process]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts Python programs that say when they are ready."""
    children: list[subprocess.Popen[bytes]] = []

    def begin(program: str) -> processes.Process:
        text = f"import os, signal, sys, time\n{program}\nprint(flush=True)\ntime.sleep(60)"
        child = subprocess.Popen([sys.executable, "-I", "-S", "-c", text], stdout=subprocess.PIPE)
        children.append(child)
        assert child.stdout
        child.stdout.readline()
        process = processes.read(child.pid)
        assert process is not None
        return process

    yield begin
    for child in children:
        child.kill()
        child.communicate()


def test_a_pid_that_another_process_has_by_now_is_left_alone(start: Start) -> None:
    process = start("")
    assert processes.named([process.pid, process.started]) and processes.find(*process[:2])
    for other in ([process.pid], [process.pid, process.started + 1], [0, 0], [True, 1], None, {}, [1, 2, 3]):
        assert processes.named(other) == [], other
    processes.send(process._replace(started=process.started + 1), signal.SIGKILL)
    time.sleep(0.1)
    assert processes.find(*process[:2])
    processes.send(process, signal.SIGKILL)
    until(lambda: not processes.find(*process[:2]))  # a zombie: this test has not waited for it
    assert processes.read(process.pid) is not None


def test_a_process_is_asked_once_and_then_killed(start: Start, tmp_path: Path) -> None:
    asked = tmp_path / "asked"
    handler = f"lambda *_: open({str(asked)!r}, 'a').write('x')"
    process = start(f"signal.signal(signal.SIGTERM, {handler})")
    os.kill(process.pid, signal.SIGSTOP)
    begun = time.monotonic()
    assert processes.end(lambda: processes.find(*process[:2]), 0.5, 20.0) == []
    assert asked.read_text() == "x" and 0.5 <= time.monotonic() - begun < 15


def test_what_cannot_be_ended_is_told_in_time(start: Start) -> None:
    process = start("")._replace(started=1)  # no signal reaches it
    begun = time.monotonic()
    assert processes.end(lambda: [process], 0.2, 0.2) == [process]
    assert 0.4 <= time.monotonic() - begun < 10


def test_the_digest_of_a_log_is_of_its_beginning(tmp_path: Path) -> None:
    data = os.urandom(3 << 20)
    (tmp_path / "leader.log").write_bytes(data)
    for length in (0, 5, (2 << 20) + 5, len(data), len(data) + 9):
        wanted = hashlib.sha256(data[:length]).hexdigest()
        assert folder.digest(str(tmp_path), "leader.log", length, 60.0) == (wanted, len(data))
    assert folder.digest(str(tmp_path), "leader.log", 5, -1.0) == (None, len(data))
    assert folder.chunk(str(tmp_path), "leader.log", 7, 5) == (data[7:12], 12, len(data))


def test_a_second_name_of_a_log_is_not_written_to(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").touch()
    os.close(folder.open_log(str(tmp_path), "new.log"))
    (tmp_path / "leader.log").hardlink_to(tmp_path / "elsewhere")
    with pytest.raises(PermissionError, match="second name"):
        folder.open_log(str(tmp_path), "leader.log")


@pytest.mark.parametrize(
    ("caught", "file", "listens"),
    [
        ("SIGUSR1 SIGUSR2", True, True),
        ("SIGUSR1", True, False),
        ("SIGUSR2", True, False),
        ("SIGUSR1 SIGUSR2", False, False),
    ],
)
def test_only_who_waits_for_both_signals_gets_them(
    start: Start, tmp_path: Path, caught: str, file: bool, listens: bool
) -> None:
    (tmp_path / "hang").mkdir()
    process = start("".join(f"signal.signal(signal.{name}, lambda *_: None)\n" for name in caught.split()))
    if file:
        (tmp_path / f"hang/stacks-{process.pid}-a").touch()
    hang = folder.below(str(tmp_path), "hang")
    assert standstill._listens(hang, process.pid, str(process.pid)) is listens
    assert not standstill._listens(hang, process.pid, "1")


def test_what_a_rank_did_not_write_this_time_is_told(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hang = tmp_path / "hang"
    hang.mkdir()
    monkeypatch.setattr(standstill, "SECONDS", 0.4)
    process = start("".join(f"signal.signal(signal.{name}, lambda *_: None)\n" for name in ("SIGUSR1", "SIGUSR2")))
    stacks, flight = f"stacks-{process.pid}-a", f"flight-{process.pid}.json"
    for name in (stacks, flight, "process-1.json", "kept", "half.partial"):
        (hang / name).write_text("of an earlier look")
    answer = standstill.take(str(tmp_path), "no mark", os.getpid())
    assert answer["late"] == [flight, stacks] and "hang/process-1.json" not in answer["files"]
    assert (hang / stacks).read_text() == "" and (hang / "kept").read_text() and not (hang / flight).exists()
    assert "hang/kept" in answer["files"] and "hang/half.partial" not in answer["files"]
    assert 0.4 <= json.loads((hang / "node.json").read_text())["seconds"] < 30
    os.kill(process.pid, signal.SIGSTOP)
    until(lambda: processes.find(*process[:2])[0].state == "T")
    assert standstill.take(str(tmp_path), "no mark", os.getpid())["late"] == [], "a stopped one cannot answer"


def test_a_process_is_told_with_its_rank_and_what_its_environment_can_tell(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = Path(script(tmp_path / "py-spy", "#!/bin/sh\necho the stacks of $4\n"))
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "8")
    process = start("")
    (tmp_path / "hang").mkdir()
    until(lambda: processes.find(*process[:2])[0].state == "S")
    document = standstill._about(process)
    assert (document["rank"], document["world_size"], document["state"]) == (3, None, "S")
    assert document["threads"] == [{"tid": str(process.pid), "state": ["S"], "wchan": document["threads"][0]["wchan"]}]
    standstill.take(str(tmp_path), "no mark", os.getpid())
    written = json.loads((tmp_path / f"hang/process-{process.pid}.json").read_text())
    assert written["stacks"] == f"the stacks of {process.pid}\n"
    tool.write_text("no program")
    assert standstill._spied(str(tool), process.pid).startswith("py-spy: ")
    os.kill(process.pid, signal.SIGKILL)
    until(lambda: not processes.find(*process[:2]))
    assert standstill._about(process)["rank"] is None


def test_who_is_there_in_the_place_of_ras_is_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        monkeypatch.setattr(standstill, "_RAS", server.getsockname())

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                connection.sendall(connection.recv(100)[:7])
                time.sleep(0.1)
                connection.sendall(b" to the end")

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        assert standstill._ras() == "verbose to the end"
        thread.join(10)
    assert standstill._ras() == "no answer: Connection refused"


def test_only_pytorch_s_own_pipes_are_written_to(tmp_path: Path) -> None:
    names = ("pipe_3.pipe", "pipe_3", "other.pipe")
    readers = []
    for name in names:
        os.mkfifo(tmp_path / name)
        readers.append(os.open(tmp_path / name, os.O_RDONLY | os.O_NONBLOCK))
    os.mkfifo(tmp_path / "pipe_4.pipe")  # nobody listens
    keep = os.open(tmp_path / "pipe_3.pipe", os.O_WRONLY)
    standstill._ask_nccl(folder.below(str(tmp_path), ""))
    os.close(keep)
    assert [os.read(reader, 9) for reader in readers] == [b"1", b"", b""]
    for reader in readers:
        os.close(reader)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_user_runs_a_program_of_theirs_or_of_root_and_nobody_else_s(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process, program = start(""), script(tmp_path / "py-spy", "#!/bin/sh\n")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    for uid, may in ((0, True), (1000, True), (1001, False)):
        os.chown(program, uid, -1)
        assert standstill._ours(process.pid, program) is may
