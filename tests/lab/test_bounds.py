"""Nodes that fall silent in the middle of an operation: each fails alone and by name, and the others go on."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.lab.conftest import RackMaker
from tests.lab.namespaces import Rack
from tests.lab.product import PROJECT, Product, finish, until


@pytest.fixture
def product(tmp_path: Path) -> Product:
    return Product(tmp_path)


class Held(ThreadingHTTPServer):
    """Serves one file, once it is released; `asked` holds the addresses of those who wait."""

    def __init__(self, address: str) -> None:
        self.asked: set[str] = set()
        self.released = threading.Event()
        super().__init__((address, 0), Handler)


class Handler(BaseHTTPRequestHandler):
    server: Held

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        self.server.asked.add(self.client_address[0])
        self.server.released.wait(120)
        self.send_response(200)
        self.send_header("Content-Length", "4")
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(b"data")

    def log_message(self, *_arguments: object) -> None:
        return


@pytest.fixture
def server(rack: RackMaker) -> Iterator[tuple[Held, Rack]]:
    lab = rack(3)
    held = Held(str(lab.slot.gateway))
    thread = threading.Thread(target=held.serve_forever)
    thread.start()
    yield held, lab
    held.released.set()
    held.shutdown()
    thread.join(10)
    held.server_close()


def test_a_frozen_sshd_and_a_pulled_cable_in_an_operation(server: tuple[Held, Rack], product: Product) -> None:
    held, lab = server
    sound, frozen, cut = lab
    url = f"http://{held.server_address[0]!s}:{held.server_address[1]}/x"
    wanted = {"gpu": "cpu", "datasets": {"own": {"folder": "/root/data", "files": [{"url": url}]}}}
    wanted["tuning"] = {"numa_balancing": None}
    inventory = lab.inventory(product.folder / "lab.py", wanted)
    process = product.start("pyinfra", inventory, PROJECT / "deploy/datasets.py", "-y")
    until(lambda: len(held.asked) == 3, 60)
    frozen.freeze()
    cut.cut()
    held.released.set()
    try:
        code, text = finish(process, 150)
    finally:
        frozen.thaw()
        cut.heal()
    assert code == 1, text
    end = text[text.rindex("verdict: fail") :]
    assert f'failed: {frozen.name}, {cut.name}: in "Data set own": no sign of life for 45 s' in end
    assert f"  ok: {sound.name}\n" in end
    nodes = {node["name"]: node for node in product.record()["nodes"]}
    assert "no sign of life" in nodes[frozen.name]["why"]
    assert nodes[sound.name]["why"] == ""
    assert sound.read("/root/data/x") == "data"
