"""The two scripts that run on a node: what a registry is asked, and what an engine's words mean."""

from __future__ import annotations

import base64
import hashlib
import io
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from shakedown.node.assets import pull as pull_script
from shakedown.node.assets import registry as registry_script
from shakedown.node.assets.words import clean
from shakedown.operations.registries import ADVICE, KINDS, parse_answer, password_of

# As modules whose insides are replaced below.
pull: Any = pull_script
registry: Any = registry_script

MANIFEST = {"layers": [{"size": 100}, {"size": 23}]}
ONE = "sha256:" + hashlib.sha256(json.dumps(MANIFEST).encode()).hexdigest()
INDEX = {
    "manifests": [
        {"digest": "sha256:" + "1" * 64, "platform": {"os": "linux", "architecture": "s390x"}},
        {"digest": ONE, "platform": {"os": "linux", "architecture": "amd64"}},
    ]
}
MANY = "sha256:" + hashlib.sha256(json.dumps(INDEX).encode()).hexdigest()


class _Answers(BaseHTTPRequestHandler):
    """A registry that wants a token for repository a/private, and knows three images."""

    def do_GET(self) -> None:
        port = self.server.server_address[1]  # type: ignore[index]
        authorization = self.headers.get("Authorization", "")
        if self.path.startswith("/token"):
            right = authorization == "Basic " + base64.b64encode(b"me:sesame").decode()
            self._send(200 if right else 401, {"token": "let-me-in"})
        elif "/private/" in self.path and authorization != "Bearer let-me-in":
            challenge = f'Bearer realm="http://127.0.0.1:{port}/token",service="s",scope="repository:a/private:pull"'
            self._send(401, {}, {"WWW-Authenticate": challenge})
        elif self.path.endswith("/manifests/many"):
            self._send(200, INDEX, {"Docker-Content-Digest": MANY})
        elif self.path.endswith(("/manifests/one", ONE)):
            self._send(200, MANIFEST, {"Docker-Content-Digest": ONE})
        else:
            self._send(404, {})

    def _send(self, status: int, body: Any, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(json.dumps(body).encode())

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Answers)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


def ask(address: str, reference: str = "one", repository: str = "a/b", **more: Any) -> Any:
    job = {"registry": address, "repository": repository, "reference": reference, "insecure": True, **more}
    try:
        return registry.ask(job)
    except Exception as error:
        return registry.explain(error)


def test_a_tag_has_a_digest_and_a_size(address: str) -> None:
    assert ask(address) == {"digest": ONE, "compressed_bytes": 123}


def test_of_an_image_for_several_machines_the_index_is_pulled_and_ours_is_measured(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry.platform, "machine", lambda: "x86_64")
    assert ask(address, "many") == {"digest": MANY, "compressed_bytes": 123}
    monkeypatch.setattr(registry.platform, "machine", lambda: "riscv64")
    assert ask(address, "many")["error"] == "unknown"


def test_a_registry_that_wants_a_token_gets_one(address: str) -> None:
    assert ask(address, repository="a/private", username="me", password="sesame")["digest"] == ONE


@pytest.mark.parametrize(
    ("more", "kind"),
    [
        ({"reference": "gone"}, "unknown"),
        ({"repository": "a/private", "username": "me", "password": "wrong"}, "login"),
        ({"repository": "a/private"}, "login"),
        ({"insecure": False}, "plain"),
    ],
)
def test_a_failure_is_told_by_its_kind(address: str, more: dict[str, Any], kind: str) -> None:
    answer = ask(address, **more)
    assert answer["error"] == kind and kind in ADVICE


def test_a_registry_that_is_not_there_is_worth_another_try() -> None:
    assert ask("127.0.0.1:1")["error"] == "transport"


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        ("Error response from daemon: manifest for r/x@sha256:0 not found: manifest unknown", "unknown"),
        ("Error response from daemon: unauthorized: authentication required", "login"),
        ("pull access denied for x, repository does not exist or may require 'docker login'", "login"),
        ("tls: failed to verify certificate: x509: certificate signed by unknown authority", "certificate"),
        ("http: server gave HTTP response to HTTPS client", "plain"),
        ("write /var/lib/docker/tmp/GetImageBlob1: no space left on device", "space"),
        ("Cannot connect to the Docker daemon at unix:///var/run/docker.sock", "engine"),
        ("read tcp 10.0.0.1:33->10.0.0.2:443: read: connection reset by peer", "transport"),
        ("net/http: TLS handshake timeout", "transport"),
        ("unexpected EOF", "transport"),
        ("received unexpected HTTP status: 503 Service Unavailable", "transport"),
        ("something nobody has seen", "engine"),
    ],
)
def test_an_engine_s_words_have_a_kind(words: str, kind: str) -> None:
    assert pull.classify(words, KINDS) == kind and kind in ADVICE


def test_the_name_of_an_image_is_no_failure() -> None:
    assert pull.classify("r/denied: unexpected EOF", KINDS, "r/denied") == "transport"
    assert pull.classify("10.0.0.1:5000/x@sha256:0a5020eef: something new", KINDS, "10.0.0.1:5000/x") == "engine"
    assert pull.classify("something new at 10.0.0.1:5000", KINDS) == "engine"


def test_progress_is_counted_from_docker_s_and_podman_s_lines() -> None:
    docker = ["a" * 12 + ": Pulling fs layer", "b" * 12 + ": Already exists", "a" * 12 + ": Download complete"]
    assert progress(docker) == "1 of 2 layers"
    assert progress([*docker, "a" * 12 + ": Pull complete"]) == "2 of 2 layers"
    assert progress(["Copying blob sha256:" + "c" * 64]) == "1 layers begun"
    assert progress([]) == "asking the registry"


def progress(lines: list[str]) -> str:
    said = pull.Layers()
    said.collect(io.BytesIO("\n".join(lines).encode()))
    return str(said.progress())


def test_an_engine_that_talks_without_end_is_not_kept() -> None:
    """Neither its lines, nor one without an end, nor layers that no image has; and nothing that moves a cursor."""
    said = pull.Layers()
    said.collect(io.BytesIO(b"x" * 2_000_000 + b"".join(b"%012x: Pulling fs layer\n" % n for n in range(5_000))))
    assert len(said.layers) == 1000 and len(said.last) == 3 and max(map(len, said.last)) <= 1000
    said.take("no \x1b[2J\x9b room\r\n")
    assert said.last[-1].isprintable()


def test_a_password_that_others_can_read_is_refused(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = tmp_path / "password"
    secret.write_text("sesame\n")
    secret.chmod(0o644)
    with pytest.raises(ValueError, match="chmod 600"):
        password_of(str(secret), None)
    secret.chmod(0o600)
    assert password_of(str(secret), None) == "sesame"
    monkeypatch.delenv("NOT_SET", raising=False)
    with pytest.raises(ValueError, match="NOT_SET"):
        password_of(None, "NOT_SET")


class _Engine:
    """An engine that fails so many times before it pulls."""

    def __init__(self, failures: int, kind: str) -> None:
        self.failures, self.kind, self.tries, self.tagged = failures, kind, 0, False
        self.there, self.left_s = [ONE], 0.0

    def room(self) -> tuple[int, str]:
        return 10**9, "/"

    def pull(self, *arguments: Any) -> None:
        self.tries += 1
        self.left_s = arguments[1] - time.monotonic() if arguments else 0.0
        if self.tries <= self.failures:
            raise pull.Failure(self.kind, "words")

    def digests(self, reference: str) -> list[str]:
        return self.there

    def run(self, *arguments: str) -> str:
        self.tagged = arguments[0] == "tag"
        return ""


def attempt(engine: _Engine, monkeypatch: pytest.MonkeyPatch, **more: Any) -> _Engine:
    monkeypatch.setattr(pull, "Engine", lambda job, folder: engine)
    monkeypatch.setattr(pull.time, "sleep", lambda seconds: None)
    pull.pull(
        {"engine": "docker", "name": "r/x", "digest": ONE, "tagged": "r/x:1", "tries": 3, "timeout_s": 60, **more},
        "/nowhere",
    )
    return engine


def test_a_connection_that_breaks_twice_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = attempt(_Engine(2, "transport"), monkeypatch)
    assert engine.tries == 3 and engine.tagged and 0 < engine.left_s <= 60


@pytest.mark.parametrize(("failures", "kind", "tries"), [(3, "transport", 3), (1, "login", 1), (1, "space", 1)])
def test_what_another_try_would_not_mend_ends_at_once(
    monkeypatch: pytest.MonkeyPatch, failures: int, kind: str, tries: int
) -> None:
    engine = _Engine(failures, kind)
    with pytest.raises(pull.Failure):
        attempt(engine, monkeypatch)
    assert engine.tries == tries


def test_a_look_says_whether_there_is_room_and_pulls_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = attempt(_Engine(0, ""), monkeypatch, looks=True)
    assert engine.tries == 0 and not engine.tagged
    with pytest.raises(pull.Failure, match="free"):
        attempt(_Engine(0, ""), monkeypatch, looks=True, room_bytes=10**10)


def test_without_room_nothing_is_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = _Engine(0, "")
    with pytest.raises(pull.Failure, match="GiB free"):
        attempt(engine, monkeypatch, room_bytes=10**10)
    assert engine.tries == 0


SIZE = '"compressed_bytes": 5'


@pytest.mark.parametrize(
    "line",
    [
        "[]",
        "5",
        "{}",
        "[" * 10_000,
        f'{{"digest": "latest --privileged", {SIZE}}}',
        f'{{"digest": "sha256:{"0" * 64}\\n", {SIZE}}}',
        f'{{"digest": ["{ONE}"], {SIZE}}}',
        f'{{"digest": "{ONE}"}}',
        f'{{"digest": "{ONE}", "compressed_bytes": 1e999}}',
        f'{{"digest": "{ONE}", "compressed_bytes": -1}}',
        f'{{"digest": "{ONE}", "compressed_bytes": {10**18}}}',
        '{"error": {"a": 1}}',
        f'{{"digest": "{ONE}", {SIZE}, "x": "{"x" * 20_000}"}}',
    ],
)
def test_a_node_s_word_of_a_digest_is_a_digest_or_no_answer(line: str) -> None:
    said = parse_answer(["a banner", line])
    assert said["error"] == "answer" and len(said["detail"]) < 500
    assert parse_answer([])["error"] == "answer"


def test_what_a_node_says_of_a_digest_is_taken_whole() -> None:
    said = {"digest": ONE, "compressed_bytes": 5, "token_server": "a:443"}
    assert parse_answer([json.dumps(said)]) == said
    assert parse_answer(['{"error": ["x"], "detail": 7}']) == {"error": "['x']", "detail": "7"}


ENGINE = """#!/bin/sh
case "$*" in
"info --format {{.DockerRootDir}}") test $(basename $0) = docker && echo STORES/docker-data ;;
"info --format {{.Store.GraphRoot}}") test $(basename $0) = podman && echo STORES/podman-data ;;
"info --format {{json .DriverStatus}}") echo '[["Backing Filesystem","extfs"]]' ;;
pull*moves*) for layer in a1b2c3d4e5f6 b1b2c3d4e5f6 c1b2c3d4e5f6; do sleep 0.4; echo "$layer: Pull complete"; done ;;
pull*) exec sleep 30 ;;
esac
"""


@pytest.fixture(params=["docker", "podman"])
def engine(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """An engine that says where it stores images, and whose pull never brings a byte."""
    for folder in ("docker-data", "podman-data"):
        (tmp_path / folder).mkdir()
    script = tmp_path / request.param
    script.write_text(ENGINE.replace("STORES", str(tmp_path)))
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    job = {"engine": request.param, "name": "r/x", "stall_s": 0.1, "kinds": KINDS}
    return pull_script.Engine(job, str(tmp_path))


def test_room_is_that_of_the_folder_in_which_the_engine_stores(engine: Any, tmp_path: Path) -> None:
    assert engine.room()[1] == str(tmp_path / f"{engine.job['engine']}-data")


def test_a_pull_that_brings_nothing_is_ended_as_a_connection_that_broke(engine: Any) -> None:
    before = time.monotonic()
    with pytest.raises(pull_script.Failure, match="nothing arrived") as failure:
        engine.pull("r/x@sha256:0", before + 60, "/proc")  # whose free bytes never change
    assert failure.value.kind == "transport" and time.monotonic() - before < 20


def test_a_pull_that_moves_is_not_ended_for_the_time_since_it_began(
    engine: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    engine.job["stall_s"] = 1
    engine.pull("r/moves@sha256:0", time.monotonic() + 60, "/proc")
    assert capsys.readouterr().out == "", "how far it is, only every few seconds"


def test_how_far_a_pull_is_comes_now_and_then_and_at_its_end_in_time(
    engine: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    blocks = itertools.chain([1000], itertools.repeat(996))  # a disk that nobody else writes to
    disk = SimpleNamespace(f_frsize=1 << 20)
    monkeypatch.setattr(os, "statvfs", lambda _root: SimpleNamespace(**vars(disk), f_bfree=next(blocks)))
    monkeypatch.setattr(pull, "EVERY_S", 0.2)
    engine.job.update(stall_s=30, compressed_bytes=5 << 20)
    far = "asking the registry, 4 MiB written, compressed size 5 MiB"
    with pytest.raises(pull_script.Failure, match=rf"^not done in \d s: {far}$") as failure:
        engine.pull("r/x@sha256:0", time.monotonic() + 0.9, "/")
    assert failure.value.kind == "time"
    assert re.fullmatch(rf"r/x@sha256:0: {far} \(\d s\)", capsys.readouterr().out.splitlines()[-1])


def test_each_wait_for_another_try_is_longer_and_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    waits: list[float] = []
    monkeypatch.setattr(pull.time, "sleep", waits.append)
    with pytest.raises(pull.Failure):
        pull_script.persist(_Engine(9, "transport").pull, 6, 5.0)
    assert waits == [5, 10, 20, 40, 60]
    assert capsys.readouterr().out.splitlines()[1] == "try 2 of 6 broke off, again in 10 s: words"


def test_the_engine_gets_what_the_registry_needs(engine: Any, tmp_path: Path) -> None:
    def made(**more: Any) -> tuple[list[str], list[str]]:
        found = pull_script.Engine({**engine.job, **more}, str(tmp_path))
        return found.options, found.transfer

    assert made() == ([], [])
    if engine.docker:
        assert made(username="me", insecure=True) == (["--config", str(tmp_path)], [])
        return
    assert made(username="me") == ([], ["--authfile", f"{tmp_path}/auth.json"])
    assert made(insecure=True) == ([], ["--tls-verify=false"])
    assert made(ca="pem") == ([], ["--cert-dir", str(tmp_path)]) and (tmp_path / "ca.crt").read_text() == "pem"


def test_room_is_looked_for_where_containerd_stores(
    engine: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / engine.job["engine"]
    script.write_text(script.read_text().replace('"Backing Filesystem"', '"io.containerd.snapshotter.v1"'))
    own = str(tmp_path / f"{engine.job['engine']}-data")
    monkeypatch.setattr(pull, "CONTAINERD_ROOT", str(tmp_path / "none"))
    assert engine.room()[1] == own
    monkeypatch.setattr(pull, "CONTAINERD_ROOT", str(tmp_path))
    room, root = engine.room()
    assert root == (str(tmp_path) if engine.docker else own)
    assert 0 <= room <= shutil.disk_usage(root).total
    Path(own).rmdir()
    monkeypatch.setattr(pull, "CONTAINERD_ROOT", str(tmp_path / "none"))
    assert engine.room()[1] == str(tmp_path), "the folder that it will be made in"


def test_an_image_that_is_not_there_after_the_pull_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = _Engine(0, "")
    engine.there = [MANY]
    with pytest.raises(pull.Failure, match="reported success"):
        attempt(engine, monkeypatch, room_bytes=10**9)
    assert not engine.tagged


def test_bytes_are_told_once_there_are_some() -> None:
    layers = pull.Layers()
    assert layers.progress(2**20 - 1, 2**30) == "asking the registry"
    assert layers.progress(2**20, 2**30) == "asking the registry, 1 MiB written, compressed size 1.0 GiB"
    assert layers.progress(3 * 2**29) == "asking the registry, 1.5 GiB written"


@pytest.mark.parametrize("stream", [1, 2])
def test_an_engine_that_fails_is_quoted(engine: Any, tmp_path: Path, stream: int) -> None:
    (tmp_path / engine.job["engine"]).write_text(f"#!/bin/sh\necho denied: nobody knows you >&{stream}; exit 1\n")
    with pytest.raises(pull_script.Failure, match=r"^denied: nobody knows you$") as failure:
        engine.run("tag", "a", "b")
    assert failure.value.kind == "login" and engine.ask("tag", "a", "b") == ""


def test_letters_that_nobody_sees_are_replaced() -> None:
    for letter in map(chr, (0x34F, 0x115F, 0x1160, 0x180B, 0x180F, 0x3164, 0xE0000, 0xE0FFF, 0x202E)):
        assert clean(f"a{letter}b") == "a\ufffdb", hex(ord(letter))
    assert clean("a\u034e\u1161  b") == "a\u034e\u1161 b"


@pytest.mark.parametrize(
    ("error", "words"),
    [
        ("OSError(28, 'full')", "space: [Errno 28] full"),
        ("OSError(122, 'quota')", "space: [Errno 122] quota"),
        ("OSError(13, 'no')", "folder: [Errno 13] no"),
        ("words.Failure('login', 'who?')", "login: who?"),
        ("KeyError('a fault')", "KeyError: 'a fault'"),
    ],
)
def test_a_script_fails_with_one_line_and_a_fault_with_where_it_is(error: str, words: str) -> None:
    text = f"from shakedown.node.assets import words\ndef work(job): raise {error}\nwords.run_script(work)"
    done = subprocess.run([sys.executable, "-c", text], input="{}", capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and done.stderr.splitlines()[-1] == words
    assert ("Traceback" in done.stderr) is ("fault" in error)
