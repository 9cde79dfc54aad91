"""Downloads: a server that breaks off, changes its mind, or has another file."""

from __future__ import annotations

import contextlib
import hashlib
import http.server
import json
import random
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).parents[2] / "operations/assets/download.py"
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
    asked: list[str | None] = field(default_factory=list)
    url: str = ""

    def answer(self, request: http.server.BaseHTTPRequestHandler) -> None:
        span = request.headers.get("Range")
        self.asked.append(span)
        if self.status != 200:
            request.send_error(self.status)
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
            request.send_header("Content-Range", f"bytes {begin}-{len(self.data) - 1}/{len(self.data)}")
        if self.etag:
            request.send_header("ETag", self.etag)
        request.end_headers()
        first_of_all = len(self.asked) == 1  # asks for the length only
        if self.cuts and not first_of_all:
            self.cuts -= 1
            body = body[: self.portion]
        with contextlib.suppress(OSError):
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


def download(server: Server, folder: Path, tries: int = 3, room: int = 0, **file: Any) -> tuple[int, str, str]:
    job = {
        "folder": str(folder),
        "files": [{"url": server.url, "name": "data.bin", **file}],
        "tries": tries,
        "stall_s": 5,
        "timeout_s": 5,
        "room_bytes": room,
    }
    done = subprocess.run([sys.executable, "-I", SCRIPT], input=json.dumps(job), capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


def left(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name != ".shakedown.lock")


def test_a_connection_that_breaks_is_gone_on_with(server: Server, tmp_path: Path) -> None:
    server.cuts = 2
    code, said, error = download(server, tmp_path, sha256=SHA, size=len(DATA))
    assert code == 0, error
    assert (tmp_path / "data.bin").read_bytes() == DATA
    assert server.asked == [None, None, "bytes=100000-", "bytes=200000-"]
    assert left(tmp_path) == [".data.bin.shakedown", "data.bin"]
    assert f"sha256 {SHA} (as wanted)" in said


def test_another_run_goes_on_where_the_last_one_was_given_up(server: Server, tmp_path: Path) -> None:
    server.cuts, server.portion = 99, 100_000
    code, _, error = download(server, tmp_path, tries=1)
    assert code == 1 and error.startswith("transport: ")
    assert left(tmp_path) == [".data.bin.part", ".data.bin.part.json"], "nothing half there under the final name"
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
    assert code == 1 and error.startswith("other: data.bin has sha256")
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
    server.status, server.asked = 503, []
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
