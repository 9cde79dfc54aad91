"""What a registry, or whoever answers in its place, cannot do: get the password, change the image, hold the node."""

from __future__ import annotations

import base64
import hashlib
import json
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from shakedown.operations.atomic import ASSETS
from shakedown.operations.registries import ADVICE
from shakedown.transport.program import program
from tests.lab import certificates

BODY = json.dumps({"layers": [{"size": 100}, {"size": 23}]}).encode()
DIGEST = "sha256:" + hashlib.sha256(BODY).hexdigest()
BASIC = "Basic " + base64.b64encode(b"me:sesame").decode()
PATH = "/v2/a/b/manifests/one"

Answer = tuple[int, dict[str, str], bytes]


@dataclass
class Web:
    """A server; `answer` says what to each path and Authorization, `asked` keeps both."""

    scheme: str
    port: int = 0
    answer: Callable[[str, str | None], Answer] = lambda path, authorization: (200, {}, BODY)
    raw: Callable[[Any], None] | None = None
    asked: list[tuple[str, str | None]] = field(default_factory=list)

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"

    def __truediv__(self, path: str) -> str:
        return f"{self.scheme}://{self.host}/{path}"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return certificates.make(tmp_path_factory.mktemp("certificates"), "127.0.0.1")


@contextmanager
def serve(authority: Path | None) -> Iterator[Web]:
    web = Web("https" if authority else "http")

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            web.asked.append((self.path, self.headers.get("Authorization")))
            if web.raw:
                with suppress(OSError):
                    web.raw(self.wfile)
                return
            status, headers, body = web.answer(self.path, self.headers.get("Authorization"))
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            with suppress(OSError):
                self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if authority:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(authority.parent / "server.crt", authority.parent / "server.key")
        server.socket = context.wrap_socket(server.socket, server_side=True)
    web.port = server.server_address[1]
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield web
    server.shutdown()
    server.server_close()


@pytest.fixture
def registry(authority: Path) -> Iterator[Web]:
    with serve(authority) as web:
        yield web


@pytest.fixture
def other(authority: Path) -> Iterator[Web]:
    with serve(authority) as web:
        yield web


@pytest.fixture
def plain() -> Iterator[Web]:
    with serve(None) as web:
        yield web


def ask(web: Web, authority: Path | None, reference: str = "one", **more: Any) -> dict[str, Any]:
    job = {"registry": web.host, "repository": "a/b", "reference": reference, "username": "me", "password": "sesame"}
    document = json.dumps({**job, "ca": authority.read_text() if authority else None, **more})
    text = program(ASSETS / "registry.py")
    done = subprocess.run(
        [sys.executable, "-I", "-c", text], input=document, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    assert answer.get("error", "digest") in ADVICE
    return answer


def wants_basic(path: str, authorization: str | None) -> Answer:
    return (200, {}, BODY) if authorization else (401, {"WWW-Authenticate": 'Basic realm="r"'}, b"")


def to(url: str, status: int = 302) -> Callable[[str, str | None], Answer]:
    """Takes the password, and then sends on."""
    return lambda path, given: (status, {"Location": url}, b"") if given else wants_basic(path, given)


def to_token_server(realm: str) -> Callable[[str, str | None], Answer]:
    challenge = {"WWW-Authenticate": f'Bearer realm="{realm}",service="s"'}
    return lambda path, given: (200, {}, BODY) if given == "Bearer let-me-in" else (401, challenge, b"")


@pytest.mark.parametrize("status", [301, 302, 303, 307])
def test_the_password_does_not_go_to_another_port_of_the_host(
    registry: Web, other: Web, authority: Path, status: int
) -> None:
    registry.answer = to(other / "elsewhere", status)
    assert ask(registry, authority) == {"digest": DIGEST, "compressed_bytes": 123}
    assert registry.asked[-1][1] == BASIC
    assert other.asked == [("/elsewhere", None)]


def test_the_password_stays_with_its_own_origin(registry: Web, authority: Path) -> None:
    def answer(path: str, given: str | None) -> Answer:
        return to(registry / "moved")(path, given) if path == PATH else wants_basic(path, given)

    registry.answer = answer
    assert ask(registry, authority)["digest"] == DIGEST
    assert registry.asked[-1] == ("/moved", BASIC)


def test_https_does_not_become_http(registry: Web, plain: Web, authority: Path) -> None:
    registry.answer = to(plain / "clear")
    answer = ask(registry, authority)
    assert answer["error"] == "downgrade" and plain.asked == []
    assert ask(registry, authority, insecure=True)["error"] == "downgrade" and plain.asked == []


@pytest.mark.parametrize("url", ["file:///etc/passwd", "ftp://127.0.0.1/x", "https://a:b@127.0.0.1/", "https://[/"])
def test_nothing_but_a_web_address_is_followed(registry: Web, authority: Path, url: str) -> None:
    registry.answer = to(url)
    assert ask(registry, authority)["error"] in ("answer", "transport")  # urllib refuses some by itself
    registry.answer = to_token_server(url)
    assert ask(registry, authority)["error"] == "answer"


def test_a_login_that_another_host_asks_for_is_not_the_registry_s(registry: Web, other: Web, authority: Path) -> None:
    registry.answer = lambda path, given: (302, {"Location": other / "login"}, b"")
    other.answer = to_token_server(other / "token")
    answer = ask(registry, authority)
    assert answer["error"] == "login" and "redirected to" in answer["detail"]
    assert other.asked == [("/login", None)]


def test_a_token_server_gets_the_password_over_tls_only(registry: Web, other: Web, plain: Web, authority: Path) -> None:
    other.answer = lambda path, given: (200, {}, b'{"token": "let-me-in"}' if given == BASIC else b"{}")
    plain.answer = other.answer
    registry.answer = to_token_server(other / "token")
    assert ask(registry, authority)["digest"] == DIGEST
    registry.answer = to_token_server(plain / "token")
    answer = ask(registry, authority)
    assert answer["error"] == "downgrade" and "token server" in answer["detail"] and plain.asked == []
    assert ask(registry, authority, insecure=True)["digest"] == DIGEST


def test_a_token_server_that_sends_on_does_not_pass_the_password_along(
    registry: Web, other: Web, plain: Web, authority: Path
) -> None:
    registry.answer = to_token_server(registry / "token")

    def answer(path: str, given: str | None) -> Answer:
        if path.startswith("/token"):
            return 302, {"Location": other / "token"}, b""
        return to_token_server(registry / "token")(path, given)

    registry.answer = answer
    other.answer = lambda path, given: (200, {}, b'{"token": "let-me-in"}')
    assert ask(registry, authority)["digest"] == DIGEST
    assert other.asked == [("/token", None)]


def test_the_host_of_a_token_server_is_told(registry: Web, authority: Path) -> None:
    with serve(None) as elsewhere:
        elsewhere.answer = lambda path, given: (200, {}, b'{"token": "let-me-in"}')
        registry.answer = to_token_server(f"http://localhost:{elsewhere.port}/token")
        assert ask(registry, authority, insecure=True)["token_server"] == f"localhost:{elsewhere.port}"


def test_another_port_of_the_host_is_another_server_and_told(registry: Web, other: Web, authority: Path) -> None:
    other.answer = lambda path, given: (200, {}, b'{"token": "let-me-in"}')
    registry.answer = to_token_server(other / "token")
    assert ask(registry, authority)["token_server"] == (other / "").split("/")[2]


def test_a_challenge_that_is_made_to_be_slow_is_read_at_once(registry: Web, authority: Path) -> None:
    registry.answer = lambda path, given: (401, {"WWW-Authenticate": "Bearer " + "a" * 60_000}, b"")
    began = time.monotonic()
    assert ask(registry, authority)["error"] == "answer"
    assert time.monotonic() - began < 40


@pytest.mark.parametrize(
    ("reference", "announced"), [("one", "sha256:" + "0" * 64), ("sha256:" + "0" * 64, None), ("one", "sha512:00")]
)
def test_a_manifest_that_is_not_its_digest_is_refused(
    registry: Web, authority: Path, reference: str, announced: str | None
) -> None:
    headers = {"Docker-Content-Digest": announced} if announced else {}
    registry.answer = lambda path, given: (200, headers, BODY)
    assert ask(registry, authority, reference)["error"] == "digest"


def test_the_manifest_for_this_machine_is_held_against_the_index(registry: Web, authority: Path) -> None:
    own = [{"os": "linux", "architecture": name} for name in ("amd64", "arm64")]
    index = json.dumps({"manifests": [{"digest": "sha256:" + "1" * 64, "platform": each} for each in own]}).encode()
    registry.answer = lambda path, given: (200, {}, index if path == PATH else BODY)
    assert ask(registry, authority)["error"] == "digest"
    evil = json.dumps({"manifests": [{"digest": "../../../x", "platform": each} for each in own]}).encode()
    registry.answer = lambda path, given: (200, {}, evil)
    assert ask(registry, authority)["error"] == "answer"


BAD: dict[str, bytes] = {
    "deep": b"[" * 200_000,
    "deep object": b'{"layers":' * 100_000,
    "a list": b"[]",
    "no text": b"\xff\xfe\x00",
    "empty": b"",
    "a page": b"<html>",
    "manifests of no kind": b'{"manifests": {"a": 1}}',
    "a manifest of no kind": b'{"manifests": [1]}',
    "a platform of no kind": b'{"manifests": [{"platform": 7}], "layers": []}',
    "a layer without size": b'{"layers": [{}]}',
    "a size of no kind": b'{"layers": [{"size": "1"}]}',
    "a negative size": b'{"layers": [{"size": -1}]}',
    "no end of a number": b'{"layers": [{"size": ' + b"9" * 4000 + b"}]}",
    "true": b'{"layers": [{"size": true}]}',
    "not a number": b'{"layers": [{"size": NaN}]}',
}


@pytest.mark.parametrize("what", sorted(BAD))
def test_an_answer_of_any_kind_ends_in_words(registry: Web, authority: Path, what: str) -> None:
    registry.answer = lambda path, given: (200, {}, BAD[what])
    answer = ask(registry, authority)
    assert answer["error"] in ("answer", "unknown") and len(answer["detail"]) <= 500


def test_a_token_of_any_kind_ends_in_words(registry: Web, authority: Path) -> None:
    for token in (b"[]", b"{}", b'{"token": 7}', b'{"token": "a\\r\\nX-Evil: 1"}', b'{"token": ""}', b"[" * 100_000):
        answers = to_token_server(registry / "token")
        registry.answer = lambda path, given, a=answers, t=token: (  # type: ignore[misc]
            (200, {}, t) if path.startswith("/token") else a(path, given)
        )
        assert ask(registry, authority)["error"] == "answer", token


def test_gigabytes_are_not_taken(registry: Web, authority: Path) -> None:
    sent = []

    def raw(out: Any) -> None:
        out.write(b"HTTP/1.0 200 OK\r\n\r\n")
        for _ in range(4000):  # 4 GB
            out.write(b" " * 1_000_000)
            sent.append(1)

    registry.raw = raw
    answer = ask(registry, authority)
    assert answer["error"] == "answer" and "more than 4194304 bytes" in answer["detail"]
    assert len(sent) < 100


def test_redirects_in_a_ring_end(registry: Web, authority: Path) -> None:
    count = iter(range(1000))
    registry.answer = lambda path, given: (302, {"Location": registry / f"again/{next(count)}"}, b"")
    answer = ask(registry, authority)
    assert answer["error"] == "answer" and "redirect" in answer["detail"]
    assert len(registry.asked) < 10


def test_a_server_that_drips_is_left(registry: Web, authority: Path) -> None:
    def raw(out: Any) -> None:
        out.write(b"HTTP/1.0 200 OK\r\n\r\n")
        for _ in range(600):
            out.write(b" ")
            time.sleep(0.1)

    registry.raw = raw
    text = program(ASSETS / "registry.py").replace("ALL_S = 120", "ALL_S = 2")
    job = {"registry": registry.host, "repository": "a/b", "reference": "one", "ca": authority.read_text()}
    begun = time.monotonic()
    done = subprocess.run([sys.executable, "-I", "-c", text], input=json.dumps(job), capture_output=True, text=True)
    assert json.loads(done.stdout)["error"] == "transport" and time.monotonic() - begun < 40


def test_insecure_is_http_only_where_tls_is_not_spoken(registry: Web, plain: Web, authority: Path) -> None:
    assert ask(plain, None, insecure=True)["digest"] == DIGEST
    assert ask(plain, None)["error"] == "plain"
    registry.answer = lambda path, given: (500, {}, b"")
    assert ask(registry, None, insecure=True)["error"] == "transport"
    assert len(registry.asked) == 1, "a registry that speaks TLS is not asked in clear after an error"
    assert ask(registry, None)["error"] == "certificate"


def test_words_of_a_server_are_not_escapes_of_a_terminal(registry: Web, authority: Path) -> None:
    registry.raw = lambda out: out.write(b"HTTP/1.0 500 \x1b]0;mine\x07\x1b[2J\xc2\x9b\r\n\r\n")
    detail = ask(registry, authority)["detail"]
    assert detail.startswith("HTTP 500") and detail.isprintable()


def test_a_token_server_is_told_only_where_the_password_went_elsewhere(
    registry: Web, other: Web, authority: Path
) -> None:
    def answer(path: str, given: str | None) -> Answer:
        if path.startswith("/token"):
            return 200, {}, b'{"token": "let-me-in"}'
        return to_token_server(registry / "token?account=me")(path, given)

    registry.answer = answer
    assert ask(registry, authority) == {"digest": DIGEST, "compressed_bytes": 123}
    assert registry.asked[1] == ("/token?account=me&service=s", BASIC)
    other.answer = lambda path, given: (200, {}, b'{"token": "let-me-in"}')
    registry.answer = to_token_server(other / "token")
    assert ask(registry, authority, username=None) == {"digest": DIGEST, "compressed_bytes": 123}


def test_no_password_goes_to_a_registry_that_asks_for_none(registry: Web, authority: Path) -> None:
    for status, kind in ((404, "unknown"), (400, "transport")):
        registry.answer, registry.asked = lambda path, given, s=status: (s, {}, b""), []  # type: ignore[misc]
        assert ask(registry, authority)["error"] == kind and registry.asked == [(PATH, None)]


def test_a_layer_may_be_empty(registry: Web, authority: Path) -> None:
    registry.answer = lambda path, given: (200, {}, b'{"layers": [{"size": 0}, {"size": 7}]}')
    assert ask(registry, authority)["compressed_bytes"] == 7
