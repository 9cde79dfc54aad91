"""`shakedown drift --prometheus`: which nodes are connected to, by a real Prometheus with the sample configuration."""

from __future__ import annotations

import asyncio
import json
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, cast

import pytest
import yaml

from shakedown.checks.examination import Examination
from shakedown.common.prometheus_names import AGENT_REPORT, LABELS, NAMES
from shakedown.desired.problems import InventoryError
from shakedown.node.agent import run
from shakedown.runner import selection
from shakedown.runner.selection import Memory, Read, Series, round_of
from shakedown.state.findings import Verdict
from tests import forks
from tests.monitoring import prometheus

SAMPLE = Path(__file__).parents[2] / "contrib/prometheus/scrape.yml"
NOW = 1_800_000_000.0
GOOD = Series(digest="d1", verdict="ok", node="", at=NOW - 60)


def names(count: int) -> list[str]:
    return [f"node{number:05d}" for number in range(1, count + 1)]


def memory(nodes: list[str], **changed: Read) -> Memory:
    kept = dict.fromkeys(nodes, Read(digest="d1", verdict=Verdict.OK)) | changed
    return Memory(inventory="rack.py", seed=0, drawn=[], nodes=kept)


def chosen(held: dict[str, list[Series]], kept: Memory, nodes: list[str], seed: int | None = 7) -> selection.Round:
    return round_of(dict.fromkeys(nodes, 1800.0), held, kept, NOW, seed)


def reported(nodes: list[str], **changed: list[Series]) -> dict[str, list[Series]]:
    return {node: [GOOD.model_copy(update={"node": node})] for node in nodes} | changed


@pytest.mark.parametrize(
    ("held", "last", "reason"),
    [
        ([], None, "never read"),
        ([], Read(digest="d1", verdict=Verdict.OK), "without a report in Prometheus"),
        ([{}, {}], Read(digest="d1", verdict=Verdict.OK), "with several reports in Prometheus"),
        ([{"digest": "d2"}], Read(digest="d1", verdict=Verdict.OK), "changed"),
        ([{"digest": ""}], Read(digest="", verdict=Verdict.OK), "changed"),
        ([{"at": NOW - 1801}], Read(digest="d1", verdict=Verdict.OK), "stale"),
        ([{"at": NOW + 61}], Read(digest="d1", verdict=Verdict.OK), "stale"),
        ([{"at": float("nan")}], Read(digest="d1", verdict=Verdict.OK), "stale"),
        ([{"verdict": "drift"}], Read(digest="d1", verdict=Verdict.OK), "not ok"),
        ([{"verdict": "perfect"}], Read(digest="d1", verdict=Verdict.OK), "not ok"),
        ([{}], Read(digest="d1", verdict=Verdict.FAIL), "not ok when last read"),
        ([{}], Read(digest="d1", verdict=Verdict.UNKNOWN), "not ok when last read"),
        ([{"node": "node00002"}], Read(digest="d1", verdict=Verdict.OK), "with a report of another node"),
    ],
)
def test_a_node_is_left_out_only_where_nothing_speaks_against_it(
    held: list[dict[str, Any]], last: Read | None, reason: str
) -> None:
    nodes = names(3)
    kept = memory(nodes)
    kept = kept.model_copy(update={"nodes": {n: r for n, r in kept.nodes.items() if n != nodes[0]}})
    if last:
        kept = memory(nodes, **{nodes[0]: last})
    own = [GOOD.model_copy(update={"node": nodes[0], **more}) for more in held]
    found = chosen(reported(nodes, **{nodes[0]: own}), kept, nodes)
    assert found.reasons[nodes[0]] == reason
    assert len(found.reasons) == 2 and len(found.left_out) == 1, "one of the two others is drawn"
    assert {finding.verdict for finding in found.left_out} == {Verdict.OK}


def test_a_node_of_which_something_else_is_asked_now_is_connected_to() -> None:
    nodes = names(300)
    kept = memory(nodes, **{nodes[7]: Read(digest="d1", verdict=Verdict.OK, desired="before")})
    found = round_of(dict.fromkeys(nodes, 1800.0), reported(nodes), kept, NOW, 7, dict.fromkeys(nodes, ""))
    assert found.reasons[nodes[7]] == "with another desired state, or read by another version"
    asked = dict.fromkeys(nodes, "now")
    every = round_of(dict.fromkeys(nodes, 1800.0), reported(nodes), memory(nodes), NOW, 7, asked)
    assert set(every.reasons) == set(nodes) and every.desired == asked


def test_the_draw_is_repeatable_from_its_seed_and_finds_liars() -> None:
    """A lying agent repeats its digest. A hundredth is drawn each round, so that none stays unread for long."""
    nodes = names(2000)
    first, again = (chosen(reported(nodes), memory(nodes), nodes, seed=5) for _ in range(2))
    assert first.reasons == again.reasons and len(first.reasons) == 20
    assert first.memory.seed == 5 and first.memory.drawn == sorted(first.reasons)
    assert "connecting to 20 of 2000 nodes: 20 drawn at random (seed 5)" in str(first)
    seeds = {chosen(reported(nodes), memory(nodes), nodes, seed=None).memory.seed for _ in range(3)}
    assert len(seeds) == 3, "nobody can know who is drawn next"
    nodes = names(200)  # of which two are drawn: as many rounds as for 2000
    liars, unread = set(nodes[:10]), set(nodes[:10])
    kept, rounds = memory(nodes), 0
    while unread and rounds < 2000:
        rounds += 1
        found = chosen(reported(nodes), kept, nodes, seed=rounds)
        caught = {node: Read(digest="d1", verdict=Verdict.FAIL) for node in liars & found.reasons.keys()}
        kept = found.memory.model_copy(update={"nodes": {**kept.nodes, **caught}})
        unread -= caught.keys()
    assert not unread and rounds < 1000
    after = chosen(reported(nodes), kept, nodes)
    assert {after.reasons[node] for node in liars} == {"not ok when last read"}, "and none gets away again"


class _Exporter(asyncio.Protocol):
    """All nodes' node_exporters: a target is told by its address in the query. A thread for each of ten thousand
    connections would take more than a core."""

    def __init__(self, said: dict[str, str]) -> None:
        self.said = said

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        text = self.said.get(data.decode().partition("target=")[2].partition(" ")[0].partition("&")[0])
        status = "200 OK" if text is not None else "503 Service Unavailable"
        self.transport.write(f"HTTP/1.0 {status}\r\nContent-Type: text/plain\r\n\r\n{text or ''}".encode())
        self.transport.close()


@contextmanager
def exporter(said: dict[str, str]) -> Iterator[str]:
    loop = asyncio.new_event_loop()
    server = loop.run_until_complete(loop.create_server(lambda: _Exporter(said), "127.0.0.1", 0, backlog=4096))
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        server.close()
        loop.close()


KNOWN = {name: {"help": NAMES[name], "labels": LABELS[name]} for name in NAMES}


def textfile(node: str, at: float, verdict: str = "ok", names: tuple[str, ...] = ("clock",)) -> str:
    """What the agent's own code leaves of a check."""
    findings = [{"name": name, "verdict": verdict, "remedy": None} for name in names]
    counts = {word: (len(names) if word == verdict else 0) for word in run.VERDICTS}
    result = {"node": node, "inventory": "rack.py", "at": at, "verdict": verdict, "why": "", "findings": findings}
    return run.metrics({**result, "counts": counts, "desired": "a", "program": "b"}, KNOWN)


def configuration(address: str, folder: Path, nodes: list[str], interval: str) -> dict[str, Any]:
    """The sample configuration; the nodes' addresses lead to one server, which no site has."""
    (scrape,) = yaml.safe_load(SAMPLE.read_text())["scrape_configs"]
    targets = folder / "targets.json"
    targets.write_text(json.dumps([{"targets": [f"{node}:9100" for node in nodes]}]))
    scrape |= {"scrape_interval": interval, "scrape_timeout": interval, "file_sd_configs": [{"files": [str(targets)]}]}
    to_one = [
        {"source_labels": ["shakedown_node"], "target_label": "__param_target"},
        {"target_label": "__address__", "replacement": address},
    ]
    return {"scrape_configs": [{**scrape, "relabel_configs": scrape["relabel_configs"] + to_one}]}


def _settled(url: str, count: int, patience: float) -> dict[str, list[Series]]:
    """Wait for so many nodes, as long as more come in: `patience` is for one further node, however busy the machine."""
    held, until = selection._series(url), time.monotonic() + patience
    while len(held) < count and time.monotonic() < until:
        time.sleep(max(0.5, count / 5000))
        before, held = len(held), selection._series(url)
        until = time.monotonic() + patience if len(held) > before else until
    return held


def _watched(tmp_path: Path, count: int, interval: str, patience: float) -> None:
    nodes, now = names(count), time.time()
    silent, old, changed, failed, other, forged = nodes[:6]
    said = {node: textfile(node, now) for node in nodes}
    before = {node: textfile(node, now) for node in nodes}
    digest = before[changed].partition('digest="')[2].partition('"')[0]
    del said[silent]
    said[old] = textfile(old, now - 7200)
    said[changed] = textfile(changed, now, names=("clock", "memlock"))
    said[failed] = textfile(failed, now, "fail")
    said[other] = textfile(nodes[6], now)  # its word for another node
    # A node that writes the target's label of others, to clear them or to hide itself.
    own = textfile(forged, now)
    said[forged] = own + "".join(
        line.replace("{", f'{{shakedown_node="{victim}",', 1).replace(f'"{forged}"', f'"{victim}"') + "\n"
        for victim in (silent, failed)
        for line in own.splitlines()
        if line.startswith(AGENT_REPORT)
    )
    with (
        exporter(said) as address,
        prometheus(tmp_path, address, configuration(address, tmp_path, nodes, interval)) as p,
    ):
        url = p.url.removesuffix("/api/v1")
        held = _settled(url, count - 1, patience)
        assert set(held) == set(nodes) - {silent}, "a node is known by the target's label, whatever others write"
        kept = Memory(
            inventory="rack.py", seed=0, drawn=[], nodes=dict.fromkeys(nodes, Read(digest=digest, verdict=Verdict.OK))
        )
        found = round_of(dict.fromkeys(nodes, 1800.0), held, kept, time.time())
    drawn = {node for node, reason in found.reasons.items() if reason == "drawn at random"}
    assert {node: reason for node, reason in found.reasons.items() if node not in drawn} == {
        silent: "without a report in Prometheus",
        old: "stale",
        changed: "changed",
        failed: "not ok",
        other: "with a report of another node",
        forged: "with several reports in Prometheus",
    }
    assert len(drawn) == -(-(count - 6) // 100) and len(found.left_out) == count - 6 - len(drawn)


def test_a_real_prometheus_over_the_sample_configuration(tmp_path: Path) -> None:
    _watched(tmp_path, 200, "2s", 60)


@pytest.mark.long
def test_ten_thousand_targets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selection, "PATIENCE_S", 600)  # for one answer, on a machine with much else to do
    _watched(tmp_path, 10_000, "1m", 180)


def test_a_round_that_cannot_be_kept_is_named_with_the_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "runs").write_text("a file")
    monkeypatch.setenv("SHAKEDOWN_RUNS", str(tmp_path / "runs"))
    chosen = selection.Round({}, [], {}, {}, memory(["a"]))
    assert chosen.keep(Examination({})) == (
        f"{tmp_path / 'runs'}: this round could not be kept (Not a directory): the next round reads every node again: "
        "set $SHAKEDOWN_RUNS to a folder that can be written"
    )


@pytest.mark.parametrize(
    "answer",
    [
        b"", b"<html>", b'{"status": "error"}', b'{"data": {"result": [{}]}}', b'{"data": {"result": 7}}', b"[]",
        b'{"data": {"result": [{"metric": {"shakedown_node": "n"}, "value": [1, "x"]}]}}', b"[" * 5000,
    ],
)  # fmt: skip
def test_an_answer_that_is_none_is_named_and_clears_nobody(answer: bytes) -> None:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        with pytest.raises(InventoryError, match=r"no reports of agents .*without --prometheus every node"):
            selection._series(f"http://127.0.0.1:{server.server_address[1]}")
    finally:
        server.shutdown()
        server.server_close()


def test_urls_that_are_none_and_servers_that_are_not_there() -> None:
    for url, words in (
        ("prometheus:9090", "expected a URL"),
        ("ftp://x", "expected a URL"),
        ("http://me:sesame@x", "a password in a URL"),
        ("http://127.0.0.1:1", "no reports of agents .ConnectionRefusedError"),
        ("http://127.0.0.1:99999", "no reports of agents"),
    ):
        with pytest.raises(InventoryError, match=words) as refused:
            selection._series(url)
        assert "sesame" not in str(refused.value)


def test_the_command_reads_once_and_then_what_changed(tmp_path: Path) -> None:
    """A node that cannot be reached stays one, whatever Prometheus holds; a file that others can write is refused."""
    said = {"a": textfile("a", time.time())}
    (tmp_path / "rack.py").write_text('a = [("a", {"ssh_hostname": "127.0.0.1", "ssh_port": 1, "gpu": "cpu"})]\n')

    def drift(url: str) -> subprocess.CompletedProcess[str]:
        words = ("drift", "rack.py", "--prometheus", url)
        return forks.called("shakedown", *words, cwd=tmp_path, SHAKEDOWN_RUNS=str(tmp_path / "runs"))

    with exporter(said) as address, prometheus(tmp_path, address, configuration(address, tmp_path, ["a"], "1s")) as p:
        url = p.url.removesuffix("/api/v1")
        _settled(url, 1, 30)
        first = drift(url)
        assert "connecting to 1 of 1 node: 1 never read" in first.stderr, first.stderr
        (kept,) = (tmp_path / "runs").glob("agents-*.json")
        assert kept.stat().st_mode & 0o777 == 0o600
        memory = Memory.model_validate_json(kept.read_bytes())
        assert memory.nodes["a"].verdict == Verdict.FAIL and memory.nodes["a"].digest
        assert "1 not ok when last read" in drift(url).stderr
        healthy = memory.model_copy(
            update={"nodes": {"a": memory.nodes["a"].model_copy(update={"verdict": Verdict.OK})}}
        )
        kept.write_text(healthy.model_dump_json())
        third = drift(url)
        assert "connecting to 1 of 1 node: 1 drawn at random (seed " in third.stderr, third.stderr
        assert third.returncode == first.returncode == 1, "it cannot be reached, whatever Prometheus holds"
        kept.chmod(0o666)
        refused = drift(url)
        assert refused.returncode == 2 and "others than you could have written it" in refused.stderr
