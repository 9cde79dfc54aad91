"""Downloads: a server that breaks off, changes its mind, or has another file."""

from __future__ import annotations

import contextlib
import hashlib
import http.server
import json
import os
import random
import re
import shutil
import signal
import socket
import stat
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from shakedown.facts.dataset import Downloaded
from shakedown.node.assets import lease
from shakedown.node.assets.web import public
from shakedown.node.safe_files import walk
from shakedown.operations import dataset
from shakedown.transport.program import command
from tests.sent_scripts import NOBODY, NODE, argv, run, text_of

DATA = random.Random(1).randbytes(300_000)
SHA = hashlib.sha256(DATA).hexdigest()


@dataclass
class Server:
    """One file over HTTP. `cuts` breaks that many answers off after `portion` bytes."""

    data: bytes = DATA
    etag: str | None = '"one"'
    ranges: bool = True
    cuts: int = 0
    portion: int = 100_000
    status: int = 200
    length: bool = True
    drip: float = 0  # seconds between portions
    shift: int = 0  # bytes by which it goes on elsewhere
    reason: str | None = None
    asked: list[str | None] = field(default_factory=list)
    url: str = ""

    def answer(self, request: http.server.BaseHTTPRequestHandler) -> None:
        span = request.headers.get("Range")
        self.asked.append(span)
        if self.status != 200:
            request.send_response(self.status, self.reason)
            request.end_headers()
            return
        begin, condition = 0, request.headers.get("If-Range")
        if span and self.ranges and condition in (None, self.etag):
            match = re.fullmatch(r"bytes=(\d+)-", span)
            assert match
            begin = int(match[1])
        body = self.data[begin:]
        request.send_response(206 if begin else 200)
        if self.length:
            request.send_header("Content-Length", str(len(body)))
        if begin:
            request.send_header("Content-Range", f"bytes {begin + self.shift}-{len(self.data) - 1}/{len(self.data)}")
        if self.etag:
            request.send_header("ETag", self.etag)
        request.end_headers()
        first_of_all = len(self.asked) == 1  # asks for the length only
        if self.cuts and not first_of_all:
            self.cuts -= 1
            body = body[: self.portion]
        with contextlib.suppress(OSError):
            while self.drip and not first_of_all and len(body) > self.portion:
                request.wfile.write(body[: self.portion])
                body = body[self.portion :]
                time.sleep(self.drip)
            request.wfile.write(body)


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            made.answer(self)

        def log_message(self, format: str, *args: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listening:
        threading.Thread(target=listening.serve_forever, daemon=True).start()
        made.url = f"http://127.0.0.1:{listening.server_port}/data.bin"
        yield made
        listening.shutdown()


def download(
    server: Server,
    folder: Path,
    tries: int = 3,
    room: int = 0,
    uid: int | None = None,
    timeout_s: float = 5,
    stall_s: float = 5,
    **file: Any,
) -> tuple[int, str, str]:
    job = {
        "folder": str(folder),
        "files": [{"url": server.url, "name": "data.bin", **file}],
        "tries": tries,
        "stall_s": stall_s,
        "timeout_s": timeout_s,
        "room_bytes": room,
    }
    done = run("download.py", job, folder.parent / f"{folder.name}-state", uid)
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, done.stdout, done.stderr


def left(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name != ".shakedown.lock")


PART = f".data.bin.part-{socket.gethostname()}-{os.geteuid()}"


def test_a_connection_that_breaks_is_gone_on_with(server: Server, tmp_path: Path) -> None:
    server.cuts = 2
    code, said, error = download(server, tmp_path, sha256=SHA, size=len(DATA))
    assert code == 0, error
    assert (tmp_path / "data.bin").read_bytes() == DATA
    assert server.asked == [None, None, "bytes=100000-", "bytes=200000-"]
    assert left(tmp_path) == ["data.bin"], "what was checked is recorded elsewhere"
    assert f"sha256 {SHA} (as wanted)" in said
    assert re.findall(r"data.bin: \d+ of", said) == [], "how far it is, only every few seconds"


def test_another_run_goes_on_where_the_last_one_was_given_up(server: Server, tmp_path: Path) -> None:
    server.cuts, server.portion = 99, 100_000
    code, _, error = download(server, tmp_path, tries=1)
    assert code == 1 and error.startswith("transport: ")
    assert left(tmp_path) == [PART], "nothing half there under the final name"
    server.cuts = 0
    assert download(server, tmp_path)[0] == 0
    assert server.asked[-1] == "bytes=100000-" and (tmp_path / "data.bin").read_bytes() == DATA


@pytest.mark.parametrize("change", ["etag", "ranges", "no validator"])
def test_a_part_of_another_version_is_not_mixed_in(server: Server, tmp_path: Path, change: str) -> None:
    server.cuts = 99
    if change == "no validator":
        server.etag = None
    assert download(server, tmp_path, tries=1)[0] == 1
    server.cuts, server.data = 0, DATA[::-1]
    if change == "etag":
        server.etag = '"two"'
    elif change == "ranges":
        server.ranges = False
    assert download(server, tmp_path)[0] == 0
    assert (tmp_path / "data.bin").read_bytes() == DATA[::-1]


def test_a_file_that_is_not_the_one_is_not_kept(server: Server, tmp_path: Path) -> None:
    code, _, error = download(server, tmp_path, sha256="0" * 64)
    assert code == 1 and error.startswith("other: data.bin is not the wanted file: wanted sha256 ")
    assert left(tmp_path) == []
    code, _, error = download(server, tmp_path, size=7)
    assert code == 1 and "the server has 300000 bytes, not 7" in error


def test_what_somebody_else_put_there_is_checked_and_never_overwritten(server: Server, tmp_path: Path) -> None:
    (tmp_path / "data.bin").write_bytes(b"mine")
    assert download(server, tmp_path, sha256=SHA)[0] == 1
    assert (tmp_path / "data.bin").read_bytes() == b"mine" and server.asked == []
    (tmp_path / "data.bin").write_bytes(DATA)
    assert download(server, tmp_path, sha256=SHA)[0] == 0
    assert server.asked == []


def test_no_byte_is_asked_for_without_room(server: Server, tmp_path: Path) -> None:
    code, _, error = download(server, tmp_path, room=2**60)
    assert code == 1 and error.startswith("space: ")
    assert len(server.asked) == 1 and left(tmp_path) == []


def test_a_refusal_is_not_tried_again_and_a_busy_server_is(server: Server, tmp_path: Path) -> None:
    server.status = 404
    code, _, error = download(server, tmp_path)
    assert code == 1 and error.startswith("refused: ") and len(server.asked) == 1
    for server.status in (500, 503):
        server.asked = []
        code, _, error = download(server, tmp_path)
        assert code == 1 and error.startswith("transport: ") and len(server.asked) == 3


def test_a_length_that_nobody_knows_proves_nothing(server: Server, tmp_path: Path) -> None:
    server.length = False
    code, _, error = download(server, tmp_path)
    assert code == 1 and "gives no length" in error
    server.asked = []
    assert download(server, tmp_path, sha256=SHA)[0] == 0


def test_a_record_that_no_longer_fits_the_file_is_no_proof(server: Server, tmp_path: Path) -> None:
    assert download(server, tmp_path, sha256=SHA)[0] == 0
    asked = len(server.asked)
    assert download(server, tmp_path, sha256=SHA)[0] == 0
    assert len(server.asked) == asked
    (tmp_path / "data.bin").write_bytes(DATA[:-1])
    assert download(server, tmp_path, sha256=SHA)[0] == 1


# Folders of others, and folders that are shared


@pytest.fixture
def theirs() -> Iterator[Path]:
    """A folder of nobody's, below one of root's that everybody can look into."""
    made = Path(tempfile.mkdtemp())
    made.chmod(0o755)
    (made / "theirs").mkdir()
    os.chown(made / "theirs", NOBODY, NOBODY)
    (made / "precious").write_bytes(b"root's\n")
    yield made / "theirs"
    shutil.rmtree(made)


LAID = {
    "a link": lambda path: path.symlink_to("../precious"),
    "a link to nothing": lambda path: path.symlink_to("../new"),
    "a hard link": lambda path: os.link(path.parent.parent / "precious", path),
    "a FIFO": os.mkfifo,
    "a folder": lambda path: path.mkdir(),
    "a file of theirs": lambda path: (path.write_bytes(DATA[:100_000]), os.chown(path, NOBODY, NOBODY)),
    "an open file": lambda path: (path.write_bytes(DATA[:100_000]), path.chmod(0o666)),
}

only_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be attacked by another user")


@only_root
@pytest.mark.parametrize("what", sorted(LAID))
def test_a_part_that_another_user_laid_is_not_written_to(server: Server, theirs: Path, what: str) -> None:
    LAID[what](theirs / PART)
    code, _, error = download(server, theirs, sha256=SHA)
    assert code == 0, error
    assert server.asked[-1] is None, "nor gone on with"
    assert (theirs / "data.bin").read_bytes() == DATA and left(theirs) == ["data.bin"]
    found = (theirs / "data.bin").stat()
    assert (found.st_uid, stat.S_IMODE(found.st_mode)) == (0, 0o644)
    assert (theirs.parent / "precious").read_bytes() == b"root's\n" and not (theirs.parent / "new").exists()


@only_root
@pytest.mark.parametrize("what", ["a link", "a link to nothing", "a FIFO", "a folder"])
@pytest.mark.parametrize("name", ["data.bin", ".shakedown.lock"])
def test_what_another_user_laid_under_our_names_is_refused(server: Server, theirs: Path, name: str, what: str) -> None:
    LAID[what](theirs / name)
    code, _, error = download(server, theirs)
    assert code == 1 and error.startswith("folder: ") and name in error and "remove it" in error
    assert (theirs.parent / "precious").read_bytes() == b"root's\n" and server.asked == []


@only_root
def test_nothing_beside_the_data_is_proof(server: Server, theirs: Path) -> None:
    """As earlier versions left it, and as any user can write it."""
    (theirs / "data.bin").write_bytes(b"x" * len(DATA))
    found = (theirs / "data.bin").stat()
    forged = {"url": server.url, "size": found.st_size, "mtime": int(found.st_mtime), "sha256": SHA}
    (theirs / ".data.bin.shakedown").write_text(json.dumps(forged))
    assert facts(theirs) == {}
    code, _, error = download(server, theirs, sha256=SHA)
    assert code == 1 and error.startswith("other: ")


def facts(folder: Path) -> dict[str, Any]:
    """What the fact says, with the state that `download` has here."""
    text = text_of(NODE / "data.py", folder.parent / f"{folder.name}-state")
    text += "\nimport sys\nprint(json.dumps(downloaded(sys.argv[1], sys.argv[2:])))"
    done = subprocess.run(["sh", "-c", command(text, str(folder), "data.bin")], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return Downloaded().process(done.stdout.splitlines())


def test_a_file_that_was_exchanged_and_dressed_up_is_looked_at_again(server: Server, tmp_path: Path) -> None:
    assert download(server, tmp_path, sha256=SHA)[0] == 0
    path = tmp_path / "data.bin"
    assert facts(tmp_path)["data.bin"] == {"size": len(DATA), "sha256": SHA}
    before = path.stat()
    path.write_bytes(DATA[::-1])
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert facts(tmp_path) == {}
    assert download(server, tmp_path, sha256=SHA)[0] == 1


@only_root
@pytest.mark.parametrize("how", ["another's", "open", "a folder of theirs"])
def test_a_record_that_another_user_could_have_written_is_none(server: Server, tmp_path: Path, how: str) -> None:
    assert download(server, tmp_path, sha256=SHA)[0] == 0
    (record,) = (tmp_path.parent / f"{tmp_path.name}-state/data").glob("[0-9a-f]*.json")
    if how == "open":
        record.chmod(0o666)
    else:
        os.chown(record if how == "another's" else record.parent, NOBODY, NOBODY)
    assert facts(tmp_path) == {}


def node(server: Server, folder: Path, name: str, **more: object) -> subprocess.Popen[str]:
    """A download on another node: with its own locks and records, and its own boot."""
    state = folder.parent / f"{folder.name}-{name}"
    job = {"folder": str(folder), "tries": 3, "stall_s": 5, "timeout_s": 30, "room_bytes": 0}
    document = {**job, "files": [{"url": server.url, "name": "data.bin", "sha256": SHA}]}
    words = argv("download.py", state, BEAT_S=0.2, **more)
    (folder.parent / f"{name}.boot").write_text(name)
    words[-1] = words[-1].replace("/proc/sys/kernel/random/boot_id", str(folder.parent / f"{name}.boot"))
    words[-1] = words[-1].replace("socket.gethostname()", repr(name))
    child = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert child.stdin
    child.stdin.write(json.dumps(document))
    child.stdin.close()
    child.stdin = None
    return child


def test_nodes_that_share_a_folder_download_once(server: Server, tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    server.portion, server.drip = 10_000, 0.1  # 3 s, in which a busy machine has started all of them
    nodes = [node(server, shared, f"n{number}") for number in range(4)]
    told = [child.communicate(timeout=60) for child in nodes]
    assert [child.returncode for child in nodes] == [0] * 4, told
    assert len(server.asked) == 2, "the length, and the file"
    assert sum("waiting for" in out for out, _ in told) == 3
    assert all(f"sha256 {SHA}" in out for out, _ in told), "each has read it for itself"
    assert [path.name for path in shared.iterdir()] == ["data.bin"]


def test_a_node_that_died_is_taken_over_and_its_part_told(server: Server, tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    server.drip = 30
    dead = node(server, shared, "dead")
    wait_for(lambda: any(".part-dead" in path.name for path in shared.iterdir()))
    wait_for(lambda: len(server.asked) == 2)
    dead.kill()
    dead.wait()
    server.drip = 0
    out, error = (alive := node(server, shared, "alive", LEASE_S=2.0)).communicate(timeout=60)
    assert alive.returncode == 0, error
    assert "root (uid 0) on dead has not renewed its lock" in out and "have left .data.bin.part-dead" in out
    assert [path.name for path in shared.iterdir()] == ["data.bin"]


def test_a_node_that_was_only_asleep_spoils_nothing_when_it_wakes_up(server: Server, tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    server.drip = 3
    asleep = node(server, shared, "asleep")
    wait_for(lambda: len(server.asked) == 2)
    asleep.send_signal(signal.SIGSTOP)
    server.drip = 0
    other = node(server, shared, "other", LEASE_S=1.0)
    out, error = other.communicate(timeout=60)
    assert other.returncode == 0, (out, error)
    asleep.send_signal(signal.SIGCONT)
    asleep.communicate(timeout=60)
    assert (shared / "data.bin").read_bytes() == DATA
    assert download(server, shared, sha256=SHA)[0] == 0


def test_a_lock_that_goes_on_stirring_is_waited_for_and_its_holder_named(server: Server, tmp_path: Path) -> None:
    lock = tmp_path / ".shakedown.lock"
    ended = threading.Event()

    def stir() -> None:
        with lock.open("wb", buffering=0) as file:  # over itself, as a holder does: nobody reads an empty lock
            for beats in range(1000):
                record = {"token": "x", "node": "elsewhere\x1b[2J", "beats": beats}
                os.pwrite(file.fileno(), json.dumps(record).ljust(400).encode(), 0)
                if ended.wait(0.2):
                    return

    thread = threading.Thread(target=stir)
    thread.start()
    wait_for(lambda: lock.exists() and lock.stat().st_size > 0)
    code, out, error = download(server, tmp_path, timeout_s=3)
    ended.set()
    thread.join()
    assert code == 1 and error.startswith("busy: ") and "on elsewhere" in error
    assert "\x1b" not in out + error and server.asked == []


def test_a_run_of_this_node_that_died_holds_nobody_up(server: Server, tmp_path: Path) -> None:
    server.cuts, server.portion, server.drip = 1, 100_000, 0
    assert download(server, tmp_path, tries=1)[0] == 1
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    here = f"{boot} {Path('/proc/self/ns/pid').readlink()} {os.geteuid()}"
    (tmp_path / ".shakedown.lock").write_text(json.dumps({"token": "x", "node": "n", "place": here, "beats": 3}))
    begun = time.monotonic()
    assert download(server, tmp_path)[0] == 0
    assert time.monotonic() - begun < 40 and server.asked[-1] == "bytes=100000-"


def test_a_server_that_drips_is_left_in_time(server: Server, tmp_path: Path) -> None:
    server.drip = 0.3
    server.portion = 1000
    code, _, error = download(server, tmp_path, timeout_s=2)
    assert code == 1 and error.startswith("time: ") and left(tmp_path) == [PART]


def test_a_server_that_is_busy_for_ever_is_left_in_time(server: Server, tmp_path: Path) -> None:
    server.status = 503
    assert download(server, tmp_path, tries=4, timeout_s=1)[2].startswith("time: ")


def test_a_server_that_sends_without_end_is_stopped(server: Server, tmp_path: Path) -> None:
    server.length, server.data = False, DATA * 20
    code, _, error = download(server, tmp_path, size=len(DATA), sha256=SHA)
    assert code == 1 and "more than 300000 bytes came" in error
    assert download(server, tmp_path, sha256=SHA, room=2**60)[2].startswith("space: ")


def test_a_server_that_goes_on_elsewhere_is_not_followed(server: Server, tmp_path: Path) -> None:
    server.cuts = 1
    assert download(server, tmp_path, tries=1, sha256=SHA)[0] == 1
    server.shift = 7
    assert download(server, tmp_path, tries=2, sha256=SHA)[2].startswith("transport: ")
    server.shift = 0
    assert download(server, tmp_path, sha256=SHA)[0] == 0


def test_the_part_of_another_url_is_not_gone_on_with(server: Server, tmp_path: Path) -> None:
    server.cuts = 1
    assert download(server, tmp_path, tries=1, sha256=SHA)[0] == 1
    server.url += "?another"
    assert download(server, tmp_path, sha256=SHA)[0] == 0
    assert server.asked[-1] is None


def test_what_gives_access_to_a_url_is_not_shown() -> None:
    assert public("https://u:p@ss@host:8/a/b@c?X-Amz-Signature=s3cret&x=1#f") == "https://host:8/a/b@c?..."
    assert public("http://host/a") == "http://host/a"


def test_the_refusal_of_a_signed_url_does_not_repeat_its_signature(server: Server, tmp_path: Path) -> None:
    server.status = 403
    code, out, error = download(server, tmp_path, url=f"{server.url}?sig=s3cret")
    assert code == 1 and error.startswith("refused: ") and "s3cret" not in out + error


def test_words_of_a_server_do_not_reach_the_terminal_as_they_are(server: Server, tmp_path: Path) -> None:
    server.reason = "no\x1b[2J\x9b2J"
    server.status = 403
    error = download(server, tmp_path)[2]
    assert error.startswith("refused: ") and error.rstrip("\n").isprintable()


def wait_for(condition: Callable[[], object]) -> None:
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.mark.parametrize("stands", ["prepared", "absent", "no mark in it"])
def test_a_data_set_that_is_not_there_after_its_preparation_fails_the_node(
    monkeypatch: pytest.MonkeyPatch, stands: str
) -> None:
    monkeypatch.setattr(dataset, "host", SimpleNamespace(get_fact=lambda fact, folder: stands))
    wrong = dataset._unprepared("/data/set")
    assert wrong == (None if stands == "prepared" else f"/data/set after preparing it: {stands}")


def test_a_holder_whose_lock_has_no_beat_yet_has_no_name() -> None:
    assert lease.holder({"owner": 0, "node": None}) == "root (uid 0) on a node that has not written its name yet"
    assert lease.holder({"owner": 0, "node": "n1"}) == "root (uid 0) on n1"


def test_a_part_counts_for_the_room_and_a_whole_file_needs_none(server: Server, tmp_path: Path) -> None:
    server.cuts = 99
    assert download(server, tmp_path, tries=1)[0] == 1
    _, _, error = download(server, tmp_path, room=2**60)
    assert error.startswith(f"space: 200000 bytes are needed and {2**60} to be left, ")
    server.cuts = 0
    assert download(server, tmp_path)[0] == 0
    assert download(server, tmp_path, room=2**60) == (0, "", "")


@pytest.mark.parametrize(("etag", "sha256", "asked"), [('W/"one"', None, None), ('W/"one"', SHA, "bytes=100000-")])
def test_a_weak_name_of_a_version_is_no_proof_of_what_follows(
    server: Server, tmp_path: Path, etag: str, sha256: str | None, asked: str | None
) -> None:
    server.etag, server.cuts = etag, 1
    assert download(server, tmp_path, sha256=sha256)[0] == 0
    assert server.asked[-1] == asked and (tmp_path / "data.bin").read_bytes() == DATA


def test_what_replaced_a_dead_holder_s_lock_stays(tmp_path: Path) -> None:
    (tmp_path / "lock").write_text('{"token": "new"}')
    place = walk(str(tmp_path), 0o755)
    lease.put_aside(place, "lock", {"token": "dead"})
    assert [path.name for path in tmp_path.iterdir()] == ["lock"]
    lease.put_aside(place, "lock", {"token": "new"})
    lease.put_aside(place, "lock", {"token": "new"})
    assert list(tmp_path.iterdir()) == []
