"""A run in batches as a user sees it: it stops, is interrupted, goes on; over one sshd under several names."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests import forks
from tests.nodes import until
from tests.sshd import SSHD, connections, start

SHAKEDOWN = Path(sys.executable).with_name("shakedown")


class Files(ThreadingHTTPServer):
    """Has one file for each node but for those that lack it, and holds back what is `held`."""

    def __init__(self) -> None:
        self.lacking, self.held, self.asked = {"b"}, {"a"}, set[str]()
        self.released = threading.Event()
        self.sshd = 0
        super().__init__(("127.0.0.1", 0), Handler)


class Handler(BaseHTTPRequestHandler):
    server: Files

    def do_GET(self) -> None:
        name = self.path.strip("/")
        self.server.asked.add(name)
        if name in self.server.held:
            self.server.released.wait(100)
        self.send_response(404 if name in self.server.lacking else 200)
        self.send_header("Content-Length", "4")
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(b"data")

    do_HEAD = do_GET

    def log_message(self, *_arguments: object) -> None:
        return


@pytest.fixture
def files() -> Iterator[Files]:
    with Files() as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield server
        server.released.set()
        server.shutdown()


@pytest.fixture
def site(tmp_path: Path, files: Files) -> Iterator[Path]:
    """An inventory of a, b and c, which are this machine, and of d, which does not answer."""
    assert SSHD, "these tests need sshd: make system"
    (tmp_path / "sshd").mkdir()
    node, server = start(tmp_path / "sshd")
    with socket.create_server(("127.0.0.1", 0)) as probe:
        closed = probe.getsockname()[1]
    hosts = []
    for name in "abcd":
        own = {"folder": str(tmp_path / name), "files": [{"url": f"http://127.0.0.1:{files.server_port}/{name}"}]}
        port = {"ssh_port": closed} if name == "d" else {}
        hosts.append((name, {**node.data(), **port, "datasets": {"own": own}}))
    wanted = {"gpu": "cpu", "tuning": {"numa_balancing": None}, "rolling": {"batch": 1, "max_failed": 0, "tries": 1}}
    path = tmp_path / "site.py"
    path.write_text(f"site = ({hosts!r}, {wanted!r})\n")
    files.sshd = server.pid
    try:
        yield path
    finally:
        server.terminate()
        server.wait(10)


def begin(site: Path, *options: str) -> forks.Program:
    environment = {**os.environ, "PYINFRA_PROGRESS": "off", "HOME": str(site.parent), "COLUMNS": "500"}
    return forks.Program([str(SHAKEDOWN), "run", str(site), "--no-smoke", *options], site.parent, environment)


def turns(site: Path) -> tuple[dict[str, Any], list[str]]:
    record = json.loads((site.parent / "runs/latest/run.json").read_text())
    return record, [turn["status"] for turn in record["rolling"]["turns"]]


def idle(sshd: int) -> list[int]:
    """Of the processes that serve a connection each those that run no command."""
    busy = [
        pid for pid in connections(sshd) for path in Path(f"/proc/{pid}/task").glob("*/children") if path.read_text()
    ]
    return [pid for pid in connections(sshd) if pid not in busy]


def test_a_run_in_batches_calls_again_stops_is_interrupted_and_goes_on(site: Path, files: Files) -> None:
    with begin(site) as process:
        until(lambda: "a" in files.asked and len(idle(files.sshd)) == 2, 100)
        frozen = idle(files.sshd)
        for pid in frozen:
            os.kill(pid, signal.SIGSTOP)
        files.released.set()
        _out, err = process.communicate(timeout=150)
    for pid in frozen:
        os.kill(pid, signal.SIGKILL)
    assert process.returncode == 1, err
    record, now = turns(site)
    assert now[:2] == ["done", "failed"] and now[3] == "waiting"
    assert "batch 1 of 4: a (0 done, 0 failed)" in err
    assert "stopped: 1 of 4 nodes failed (b), max_failed is 0" in err and "404" in record["rolling"]["turns"][1]["why"]
    assert f"d; --resume {record['run_id']} goes on with them" in err and record["verdict"] == "fail"

    files.lacking.clear()
    files.asked.clear()
    files.released.clear()
    files.held = {"b"}
    (site.parent / "a/a").unlink()
    with begin(site, "--resume", "latest") as process:
        until(lambda: "b" in files.asked, 100)
        process.send_signal(signal.SIGINT)
        _out, err = process.communicate(timeout=100)
    assert process.returncode == 130, err
    second, now = turns(site)
    assert now[:2] == ["done", "under way"] and now[3] == "waiting"
    assert second["rolling"]["resumes"] == record["run_id"] == second["rolling"]["turns"][0]["run"]
    assert second["verdict"] == "fail" and f"done in {record['run_id']}, and not touched again: a" in err
    assert not (site.parent / "a/a").exists() and "a" not in files.asked
