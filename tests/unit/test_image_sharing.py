"""Images from node to node: who takes from whom, that only the two that were meant speak, that only the image is let
through."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import socket
import subprocess
import sys
import tarfile
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from shakedown.images import held, parse
from shakedown.node.assets import handover
from shakedown.node.assets.archive import Refused, let_through
from shakedown.operations.givers import REGISTRY, Givers, Sharing
from shakedown.smoke.plan.network import Ways
from shakedown.state import Image, NodeState
from shakedown.transport.program import program
from tests.states import healthy, image, with_

ASSETS = Path(handover.__file__).parent
TOKEN = "5a" * 32


def anybody(_giver: str) -> bool:
    return True


def test_with_two_receivers_each_64_nodes_are_served_in_four_rounds_by_one_pull() -> None:
    givers, waiting = Givers(2, {}), [f"node{number}" for number in range(64)]
    rounds, pulls = 0, 0
    while waiting:
        rounds += 1
        chosen = {node: source for node in waiting if (source := givers.choose(node, anybody)) is not None}
        assert max(Counter(source for source in chosen.values() if source).values(), default=0) <= 2
        pulls += list(chosen.values()).count(REGISTRY)
        for node, source in chosen.items():
            givers.ended(node, source, True)
        waiting = [node for node in waiting if node not in chosen]
    assert (pulls, rounds) == (1, 5)
    assert set(givers.serving.values()) == {0}


def test_who_reaches_no_giver_pulls_and_who_fails_twice_does_too() -> None:
    givers = Givers(1, {"a": 0, "b": 0})
    assert givers.choose("c", lambda _node: False) == REGISTRY
    for _ in range(2):
        source = givers.choose("d", anybody)
        assert source in ("a", "b")
        givers.ended("d", str(source), False)
    assert givers.choose("d", anybody) == REGISTRY
    assert "d" not in givers.serving and givers.failures["d"] == 2


def test_a_giver_that_fails_twice_is_asked_no_more_and_the_next_pulls() -> None:
    givers = Givers(2, {"a": 0})
    for node in ("b", "c"):
        givers.ended(node, str(givers.choose(node, anybody)), False)
    assert givers.choose("d", anybody) == REGISTRY
    assert givers.choose("e", anybody) is None  # waits for d
    givers.ended("d", REGISTRY, False)
    assert givers.choose("e", anybody) == REGISTRY
    givers.ended("e", REGISTRY, True)
    assert givers.choose("b", anybody) == "e"


def test_those_who_wait_are_woken_when_one_has_it() -> None:
    import gevent

    sharing = Sharing(1, lambda _giver, _receiver: "198.18.0.1", lambda _image: [])
    givers = sharing.of("sha256:1")
    assert givers is sharing.of("sha256:1") and givers.wait("a", anybody) == REGISTRY
    waiting = gevent.spawn(givers.wait, "b", anybody)
    gevent.sleep(0)
    assert not waiting.ready()
    givers.ended("a", REGISTRY, True)
    assert waiting.get(timeout=30) == "a"


def seen(*interfaces: tuple[str, str], netdev: str | None = None) -> NodeState:
    blank = {"mac": "02:00:00:00:00:01", "up": True, "speed_mbps": 400000, "ipv6": [], "bdf": None}
    mtu = healthy().interfaces[0].mtu.model_dump()  # type: ignore[union-attr]
    listed = [{"name": name, "ipv4": [address], "mtu": mtu, **blank} for name, address in interfaces]
    devices = [{**healthy().rdma[0].model_dump(), "netdev": netdev}] if netdev else []  # type: ignore[index]
    return with_(healthy(), {"interfaces": listed, "routes": [], "rdma": devices})


def test_the_fabric_s_own_address_is_taken_where_the_receiver_reaches_it() -> None:
    states = {
        "a": seen(("eno1", "10.0.0.1/24"), ("rail0", "10.1.0.1/24"), netdev="rail0"),
        "b": seen(("eno1", "10.0.0.2/24"), ("rail0", "10.1.0.2/24"), netdev="rail0"),
        "c": seen(("eno1", "10.0.0.3/24")),
        "d": seen(("eno1", "10.9.0.3/24")),
    }
    ways = Ways(states)
    assert [ways.address("a", node) for node in "bcd"] == ["10.1.0.1", "10.0.0.1", None]
    assert ways.address("c", "a") == "10.0.0.3" and ways.address("gone", "a") is None
    assert Ways(states, "eno1").address("a", "b") == "10.0.0.1"


def archive(*files: tuple[str, bytes], form: int = tarfile.PAX_FORMAT) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=form) as tar:
        for name, content in files:
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            entry.pax_headers = {"comment": "long " * 50} if name.startswith("layer") else {}
            tar.addfile(entry, io.BytesIO(content))
        link = tarfile.TarInfo("again")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(link)
    return made.getvalue()


LAYERS = (b"lower" * 3000, b"upper")
CONFIG = json.dumps(
    {"rootfs": {"diff_ids": ["sha256:" + hashlib.sha256(each).hexdigest() for each in LAYERS]}}
).encode()
ID = "sha256:" + hashlib.sha256(CONFIG).hexdigest()
OTHERS = json.dumps([{"Config": "evil", "RepoTags": ["ubuntu:latest"], "Layers": []}]).encode()
SAVED = (("l/layer.tar", LAYERS[1]), ("layer.tar", LAYERS[0]), ("c.json", CONFIG), ("manifest.json", OTHERS))


@pytest.mark.parametrize("form", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT])
def test_the_image_is_let_through_under_our_own_names_and_nothing_else_is_named(form: int) -> None:
    passed = io.BytesIO()
    assert let_through(io.BytesIO(archive(*SAVED, form=form)), passed, ID, 1 << 20) > 15000
    passed.seek(0)
    with tarfile.open(fileobj=passed) as tar:
        content = {entry.name: tar.extractfile(entry).read() for entry in tar}  # type: ignore[union-attr]
    (manifest,) = json.loads(content.pop("manifest.json"))
    assert manifest["RepoTags"] is None and content[manifest["Config"]] == CONFIG
    assert [content[name] for name in manifest["Layers"]] == list(LAYERS)
    assert all(name.startswith("blob-") for name in content)


def flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


WHOLE = archive(*SAVED)


@pytest.mark.parametrize(
    ("sent", "why"),
    [
        (flipped(WHOLE, WHOLE.index(b"lowerlower")), "layers are not in it"),
        (flipped(WHOLE, WHOLE.index(b'"rootfs"')), "the image sha256:"),
        (archive(*SAVED[1:]), "1 of 2 layers are not in it"),
        (archive(SAVED[0], SAVED[1], SAVED[3]), "is not in it"),
        (WHOLE[:9000], "cut short"),
        (b"HTTP/1.0 200 OK" * 50, "no tar"),
        (archive(*SAVED, ("more", b"x" * (2 << 20))), "longer than the image can be"),
        (b"", "cut short"),
    ],
)
def test_another_content_never_gets_a_manifest(sent: bytes, why: str) -> None:
    passed = io.BytesIO()
    with pytest.raises(Refused, match=why):
        let_through(io.BytesIO(sent), passed, ID, 1 << 20)
    assert b"manifest.json" not in passed.getvalue()


DOCKER = """#!/bin/sh
# Stands for the engine: it gives out the archive that lies beside it, and keeps what it is to load.
here=$(dirname "$0")
case "$1" in
  save) echo "$2" >> "$here/saved"; cat "$here/archive" ;;
  load) cat > "$here/loaded" ;;
  info) echo / ;;
  image) echo "ID" ;;
esac
"""


def node(folder: Path, script: str, job: dict[str, Any]) -> subprocess.Popen[str]:
    """A script as it runs on a node, with an engine of its own."""
    folder.mkdir(exist_ok=True)
    (folder / "docker").write_text(DOCKER.replace("ID", ID))
    (folder / "docker").chmod(0o755)
    (folder / "archive").write_bytes(archive(*SAVED))
    started = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", program(ASSETS / script)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"},
    )
    assert started.stdin is not None
    started.stdin.write(json.dumps(job))
    started.stdin.close()
    started.stdin = None
    return started


def job(port: int, **more: Any) -> dict[str, Any]:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        other = probe.getsockname()[1]
    times = {"wait_s": 60, "stall_s": 60, "timeout_s": 120}
    room = {"most_bytes": 1 << 20, "room_bytes": 1}
    return {"id": ID, "address": "127.0.0.1", "ports": [port, other], "token": TOKEN, **times, **room, **more}


def test_a_stranger_gets_nothing_and_the_one_with_the_token_the_image(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:  # so that the second port is the one
        asked = job(taken.getsockname()[1])
        giver = node(tmp_path / "giver", "give.py", asked)
        stranger = None
        for _ in range(600):
            try:
                stranger = socket.create_connection(("127.0.0.1", asked["ports"][1]), 60)
                break
            except OSError:
                threading.Event().wait(0.1)
        assert stranger is not None
        with stranger, pytest.raises(handover.Stranger):
            handover.answer(stranger, "00" * 32)
        taker = node(tmp_path / "taker", "take.py", {**asked, "ports": asked["ports"][1:]})
        out, err = taker.communicate(timeout=100)
        assert taker.returncode == 0 and out.startswith("took 0 MiB from 127.0.0.1"), err
        assert giver.communicate(timeout=100)[0].startswith("gave ") and giver.returncode == 0
    with tarfile.open(tmp_path / "taker/loaded") as tar:
        assert "manifest.json" in tar.getnames()
    assert (tmp_path / "giver/saved").read_text() == f"{ID}\n"
    assert sorted(path.name for path in (tmp_path / "taker").iterdir()) == ["archive", "docker", "loaded"]


def test_who_listens_without_the_token_is_not_taken_from(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def pretend() -> None:
            connection, _ = server.accept()
            with connection:
                connection.sendall(bytes(32))
                connection.recv(64)
                connection.sendall(bytes(32) + archive(*SAVED))

        thread = threading.Thread(target=pretend, daemon=True)
        thread.start()
        asked = {**job(server.getsockname()[1], wait_s=2)}
        taker = node(tmp_path / "taker", "take.py", {**asked, "ports": asked["ports"][:1]})
        _out, err = taker.communicate(timeout=100)
        thread.join(30)
    assert taker.returncode == 1 and "no giver at 127.0.0.1 within 2 s" in err
    assert not (tmp_path / "taker/loaded").exists()


def test_who_says_a_byte_now_and_then_keeps_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handover, "HANDSHAKE_S", 0.3)
    for role in (handover.greet, handover.answer):
        ours, theirs = socket.socketpair()
        ours.settimeout(30)
        over, said = threading.Event(), []

        def drip(other: socket.socket = theirs, over: threading.Event = over, said: list[int] = said) -> None:
            while len(said) < 31 and not over.wait(0.2):
                other.sendall(b"x")
                said.append(1)

        thread = threading.Thread(target=drip)
        thread.start()
        with ours, theirs:
            with pytest.raises((OSError, handover.Stranger)):
                role(ours, TOKEN)
            over.set()
            thread.join(60)
        assert len(said) < 31


def test_a_giver_that_is_never_done_is_left_after_the_time_that_a_transfer_has(tmp_path: Path) -> None:
    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def drip() -> None:
            connection, _ = server.accept()
            with connection, contextlib.suppress(OSError):
                handover.greet(connection, TOKEN)
                while not over.wait(0.1):
                    connection.sendall(b"x")

        thread = threading.Thread(target=drip, daemon=True)
        thread.start()
        asked = job(server.getsockname()[1], timeout_s=1)
        taker = node(tmp_path / "taker", "take.py", {**asked, "ports": asked["ports"][:1]})
        try:
            _out, err = taker.communicate(timeout=30)
        finally:
            taker.kill()
            over.set()
            thread.join(30)
    assert taker.returncode == 1 and "not done in 1 s" in err


def test_an_image_without_room_is_not_fetched(tmp_path: Path) -> None:
    taker = node(tmp_path / "taker", "take.py", job(1, room_bytes=1 << 60))
    assert "GiB free" in taker.communicate(timeout=100)[1] and taker.returncode == 1


def test_what_came_from_a_mirror_has_its_digest_under_the_mirror_s_name() -> None:
    one = "sha256:" + "a" * 64
    stored = Image.model_validate({**image("rocm/x:1", one), "digests": [f"mirror:5000/hub/rocm/x@{one}"]})
    assert held([stored], parse(f"rocm/x:1@{one}"), "docker") == [stored]
    assert held([stored], parse(f"rocm/x:2@{one}"), "docker") == []
