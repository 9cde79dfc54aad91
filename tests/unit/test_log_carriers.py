"""The documents and parts in which engines and collectors keep the lines of a job."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from shakedown.gates import read_log
from shakedown.logs.lines import MAX_LINE, Hosts, Unpacker
from tests.unit.test_hostile_logs import assert_linear

LOGS = Path(__file__).resolve().parents[1] / "data" / "logs"
WHEN = "2026-11-30T07:00:00.123456789Z"


def _pretty(key: str, line: str, beside: str) -> list[str]:
    return ["  {", f'    "{key}": {json.dumps(line)},', f'    "{beside}": 2', "  },"]


CARRIERS: dict[str, Callable[[str], list[str]]] = {
    "Docker": lambda line: [json.dumps({"stream": "stdout", "log": line + "\n", "time": WHEN})],
    "a pod, in parts": lambda line: [f"{WHEN} stdout P {line[:9]}", f"{WHEN} stdout F {line[9:]}"],
    "fluentd": lambda line: [json.dumps({"container_id": "a", "source": "stdout", "log": line})],
    "fluentd's file": lambda line: [f"{WHEN}\tdocker.train\t" + json.dumps({"container_id": "a", "log": line})],
    "Filebeat": lambda line: [json.dumps({"@timestamp": WHEN, "message": line, "stream": "stdout"})],
    "journald": lambda line: [json.dumps({"__CURSOR": "s=1", "_TRANSPORT": "stdout", "MESSAGE": line})],
    "Google Cloud": lambda line: [json.dumps({"insertId": "a", "textPayload": line, "timestamp": WHEN})],
    "Google Cloud, of an agent": lambda line: [json.dumps({"insertId": "a", "jsonPayload": {"message": line}})],
    "Google Cloud, over lines": lambda line: _pretty("textPayload", line, "timestamp"),
    "CloudWatch": lambda line: [json.dumps({"timestamp": 1, "message": line, "ingestionTime": 2})],
    "CloudWatch, over lines": lambda line: _pretty("message", line, "ingestionTime"),
    "Loki": lambda line: [json.dumps({"labels": {"pod": "a"}, "line": line, "timestamp": WHEN})],
    "Vector": lambda line: [json.dumps({"file": "/x", "message": line, "source_type": "file"})],
}


@pytest.mark.parametrize("carrier", CARRIERS)
def test_what_an_engine_or_a_collector_carries_is_read_as_the_plain_log(carrier: str) -> None:
    plain = [
        *(LOGS / "upstream.log").read_text("utf-8").splitlines(),
        "Traceback (most recent call last):",
        '  File "/w/train.py", line 9, in step',
        '    loss = forward("a")',
        'RuntimeError: The frobnicated tensor "a" has no value',
    ]
    lines = [line + "\n" for text in plain for line in CARRIERS[carrier](text)]
    carried = read_log(["".join(lines)])
    by_line = read_log(["{\n", '"ingestionTime": 1,\n', *lines])
    assert by_line.iterations == carried.iterations and by_line.failure
    wanted = read_log([line + "\n" for line in plain])
    assert carried.iterations == wanted.iterations and len(wanted.iterations) == 20
    assert carried.failure is not None and wanted.failure is not None
    assert carried.failure.name == wanted.failure.name != "traceback"


@pytest.mark.parametrize(
    "line",
    [
        '{"level": "warning", "message": "RuntimeError: gone", "timestamp": 1, "stream": "x"}',
        '{"@timestamp": "2026-11-30", "log.level": "warning", "message": "RuntimeError: gone"}',
        '{"message": "Not Found", "status": "404"}',
        'response: {"log": "RuntimeError: gone"}',
        '{"_TRANSPORT": "kernel", "MESSAGE": "Out of memory: Killed process 9"}',
        '    "message": "RuntimeError: gone",',
    ],
)
def test_a_document_of_the_job_itself_stays(line: str) -> None:
    assert Unpacker().take(line.encode() + b"\n") == line.encode() + b"\n"


def test_parts_of_a_line_that_docker_cut_are_one_line_whole_or_not() -> None:
    documents = [json.dumps({"log": part, "stream": "stdout"}) + "\n" for part in ("x" * 16384, "y" * 16384, "z\n")]
    reader = Unpacker()
    assert [reader.take(document.encode()) for document in documents] == [
        *(b"\n", b"\n"),
        b"x" * 16384 + b"y" * 16384 + b"z\n",
    ]
    assert reader.take(documents[0].encode()) == b"\n" and reader.rest() == b"x" * 16384
    short = b'{"log": "no line end", "stream": "stdout"}\n'
    assert Unpacker().take(short * 2) == b"no line end\n" * 2


def test_parts_without_an_end_take_time_in_proportion_and_no_more_than_a_line() -> None:
    part = f"{WHEN} stdout P {'x' * 100}\n".encode()

    def work(size: int) -> Callable[[], object]:
        return lambda: Unpacker().take(part * size)

    assert_linear(work, 1000)
    reader = Unpacker()
    reader.take(part * (MAX_LINE // 50))
    assert len(reader.rest()) == MAX_LINE


def test_a_line_s_host_is_read_only_where_lines_begin_with_hosts() -> None:
    hosts, plain = Hosts(), Hosts()
    hosts.block(b"node1: starting\nnode2: starting\nnode1: ready\n")
    plain.block(b"starting\nvalue: 3\nready\n")
    assert [hosts.host("node2: killed"), plain.host("value: 4")] == ["node2", ""]
