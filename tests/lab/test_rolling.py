"""A run in batches: stopped by a node that fails, resumed, a node that does not answer, and one smoke run."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.docs import schemas
from tests.lab.conftest import RackMaker
from tests.lab.namespaces import Node
from tests.lab.processes import inside
from tests.lab.product import Product, finish, smoke, until

NUMA = "/proc/sys/kernel/numa_balancing"


def balancing(node: Node) -> str:
    return node.read(NUMA).strip()


def turns(record: dict[str, Any]) -> dict[str, str]:
    return {turn["node"]: turn["status"] for turn in record["rolling"]["turns"]}


@pytest.mark.parametrize("train", [False, pytest.param(True, marks=pytest.mark.long)])
def test_a_run_in_batches_stops_goes_on_and_trains_once(rack: RackMaker, tmp_path: Path, train: bool) -> None:
    lab, product = rack(4), Product(tmp_path)
    first, second, third, last = lab
    wanted = smoke(iterations=4, telemetry_s=None) | {"rolling": {"batch": "25%", "tries": 2}}
    inventory = lab.inventory(tmp_path / "lab.py", wanted)
    last.down()
    second.exec(f"mount -o remount,bind,ro {NUMA}")

    ran = product.run("shakedown", "run", inventory, "--no-smoke", "--max-failed", "0")
    assert ran.code == 1, ran.text
    assert "batch 1 of 4: node1 (0 done, 0 failed)" in ran.err and "batch 2 of 4: node2 (1 done" in ran.err, ran.err
    assert "stopped: 1 of 4 nodes failed (node2), max_failed is 0" in ran.err
    record = product.record()
    assert turns(record) == {"node1": "done", "node2": "failed", "node3": "waiting", "node4": "waiting"}
    assert (balancing(first), balancing(third)) == ("0", "1")
    assert record["verdict"] == "fail" and f"--resume {record['run_id']}" in ran.err
    assert {node["name"]: node["part"] for node in record["nodes"]}["node3"] == "excluded"

    second.exec(f"mount -o remount,bind,rw {NUMA}")
    first.exec(f"echo 1 > {NUMA}")
    ran = product.run("shakedown", "run", inventory, "--no-smoke", "--resume", "latest", "--batch", "2")
    assert ran.code == 1, ran.text
    assert f"done in {record['run_id']}, and not touched again: node1" in ran.err
    assert "batch 1 of 2: node2, node3" in ran.err and "no answer yet from node4: trying again" in ran.err, ran.err
    assert "unreached: node4: no answer after 2 tries: " in ran.err
    assert (balancing(first), balancing(second), balancing(third)) == ("1", "0", "0")
    again = product.record()
    assert turns(again) == {"node1": "done", "node2": "done", "node3": "done", "node4": "failed"}
    assert again["rolling"]["resumes"] == again["rolling"]["turns"][0]["run"] == record["run_id"]
    assert again["rolling"]["turns"][0]["verdict"] == "ok"

    if not train:
        return
    last.up()
    first.exec(f"echo 0 > {NUMA}")
    ran = product.run("shakedown", "run", inventory, "--resume", "latest")
    assert ran.code == 0, ran.text
    assert "batch 1 of 1: node4 (3 done, 0 failed)" in ran.err and "smoke run: PASSED" in ran.text
    record = product.record()
    assert set(turns(record).values()) == {"done"} and record["verdict"] == "ok"
    assert [(job["node"], len(job["plan"]["nodes"])) for job in record["jobs"]] == [(None, 4)]
    assert schemas.problems_of(tmp_path / "runs/latest") == []


class Files(ThreadingHTTPServer):
    """Has one file for each node but for those that lack it, and holds back what is `held`."""

    def __init__(self, address: str) -> None:
        self.lacking, self.held, self.asked = {"node2"}, {"node1"}, set[str]()
        self.released = threading.Event()
        super().__init__((address, 0), Handler)


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


@contextmanager
def serving(address: str) -> Iterator[Files]:
    with Files(address) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield server
        server.released.set()
        server.shutdown()


def connections(node: Node) -> list[int]:
    """The processes of sshd that serve one connection each."""
    assert node.init_pid is not None
    servers = {process.pid: process for process in inside(node.init_pid) if process.name.startswith("sshd")}
    return [pid for pid, process in servers.items() if process.parent in servers]


def test_a_batch_goes_on_where_idle_connections_hang_and_where_it_was_interrupted(
    rack: RackMaker, tmp_path: Path
) -> None:
    lab, product = rack(3), Product(tmp_path)
    with serving(str(lab.slot.gateway)) as files:
        place = f"http://{files.server_address[0]!s}:{files.server_port}"
        hosts = {
            node.name: {"datasets": {"own": {"folder": "/root/data", "files": [{"url": f"{place}/{node.name}"}]}}}
            for node in lab
        }
        wanted = {"gpu": "cpu", "tuning": {"numa_balancing": None}, "rolling": {"batch": 1, "tries": 1}}
        inventory = lab.inventory(tmp_path / "lab.py", wanted, hosts=hosts)
        command = ("shakedown", "run", inventory, "--no-smoke")
        process = product.start(*command, "--max-failed", "0")
        until(lambda: "node1" in files.asked, 100)
        frozen = [pid for node in lab.nodes[1:] for pid in connections(node)]
        assert len(frozen) >= 2
        for pid in frozen:
            os.kill(pid, signal.SIGSTOP)
        files.released.set()
        code, text = finish(process, 150)
        for pid in frozen:
            os.kill(pid, signal.SIGKILL)
        first = product.record()
        assert code == 1 and turns(first) == {"node1": "done", "node2": "failed", "node3": "waiting"}, text
        assert "stopped: 1 of 3 nodes failed (node2), max_failed is 0" in text
        assert "404" in first["rolling"]["turns"][1]["why"] and first["verdict"] == "fail"

        files.lacking.clear()
        files.asked.clear()
        files.released.clear()
        files.held = {"node2"}
        lab.nodes[0].exec("rm -r /root/data")
        process = product.start(*command, "--resume", "latest")
        until(lambda: "node2" in files.asked, 100)
        process.send_signal(signal.SIGINT)
        code, text = finish(process, 100)
        second = product.record()
        assert code == 130 and turns(second) == {"node1": "done", "node2": "under way", "node3": "waiting"}, text
        assert second["rolling"]["resumes"] == first["run_id"] and second["verdict"] == "fail"
        assert f"done in {first['run_id']}, and not touched again: node1" in text and "node1" not in files.asked
