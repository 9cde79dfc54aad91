"""How the nodes of a trial find each other and wait for each other, and the programs that two of them run."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from shakedown.trials.models import read_log
from shakedown.trials.workload import run
from shakedown.trials.workload.programs import Failed, Link
from shakedown.trials.workload.registry import TRIALS, Measured, Place, Trial, trials

if TYPE_CHECKING:
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

# Torch is imported when a test begins: each process of a parallel run collects this file.
SAMPLES = Path(__file__).parents[1] / "data/trials"
PAIR = "perftest/0/0/0-1"


@pytest.fixture
def store() -> TCPStore:
    """The first node's store, on a free port."""
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    return TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)


def joined(store: TCPStore) -> TCPStore:
    from shakedown.trials.workload import between

    return between.join("127.0.0.1", store.port, 60)


def test_nodes_wait_for_each_other_and_not_for_one_that_never_comes(store: TCPStore) -> None:
    from shakedown.trials.workload import between

    came: list[int] = []

    def come(node: int) -> None:
        between.barrier(joined(store), "0/begin", 3, 60)
        came.append(node)

    threads = [threading.Thread(target=come, args=(node,)) for node in (1, 2)]
    for each in threads:
        each.start()
    time.sleep(0.3)
    assert came == [], "a node is missing"
    between.barrier(joined(store), "0/begin", 3, 60)
    for each in threads:
        each.join(60)
    assert sorted(came) == [1, 2]
    began = time.monotonic()
    between.barrier(joined(store), "1/begin", 2, 0.2)
    assert 0.1 < time.monotonic() - began < 30


def test_the_store_is_kept_until_every_node_is_through() -> None:
    from shakedown.trials.workload import between

    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    keeping = threading.Thread(target=between.keep, args=("127.0.0.1", port, 2, 120.0))
    keeping.start()
    nodes = [between.join("127.0.0.1", port, 60) for _ in range(2)]
    nodes[0].add(between.THROUGH, 1)
    time.sleep(1.5)
    assert keeping.is_alive(), "one is still at work"
    nodes[1].add(between.THROUGH, 1)
    keeping.join(60)
    assert not keeping.is_alive()


def test_a_node_that_waits_for_one_that_starts_later_is_not_ended_for_its_silence(
    store: TCPStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says that its own start is over before it waits: the limit of a start is shorter than a round's patience."""
    from shakedown.trials.workload import between

    said: list[dict[str, Any]] = []
    monkeypatch.setattr(between, "own_output", lambda: said.append)
    monkeypatch.setattr(between, "barrier", lambda *_: said.append({"waits": True}))
    request = {"trial": "perftest", "pass": 0, "nodes": 2, "rounds": [[]], "from": 0, "place": 0, "limit_s": 60}
    between.main(json.dumps({**request, "address": "127.0.0.1", "port": store.port, "start_s": 60}))
    assert said == [{"begins": ""}, {"waits": True}, {"round": 0}, {"ends": "perftest"}]


def test_a_process_that_does_not_start_is_named_with_the_limit_of_a_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "workload"
    folder.mkdir()
    (folder / "run.py").write_text("import time; time.sleep(60)")
    monkeypatch.setattr(run, "FOLDER", folder)
    request = {"trial": "perftest", "rounds": [[[0, 1]]], "repetitions": [1], "place": 0, "limit_s": 60}
    assert run._rounds_from(0, {**request, "start_s": 0.3}, "rail0") == 1
    (found,) = read_log("n", capsys.readouterr().out.splitlines()).readings
    assert (found.state, found.note, found.rail) == ("timeout", "nothing for 0.3 s", "rail0")


def test_no_figure_goes_through_the_store(store: TCPStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stranger on the training network can change what stands there: what was measured does not."""
    from shakedown.trials.workload import between

    figure = 4711.0815

    def measured(place: Place) -> Iterator[Measured]:
        link = place.link
        assert link is not None
        link.tell(f"{place.rank}/port", "20001")
        assert link.hear(f"{1 - place.rank}/port") == "20001"
        yield Measured("rate", figure)

    monkeypatch.setitem(TRIALS, "told", Trial("told", "pairs", {"rate": "Gb/s"}, 1, False, False, measured))
    told: list[dict[str, Any]] = []
    request = {"trial": "told", "pass": 0, "nodes": 2, "rounds": [[[0, 1]]], "repetitions": [1], "limit_s": 60}

    def take(node: int) -> None:
        own = {**request, "place": node, "own": "127.0.0.1"}
        between.take_round(joined(store), own, 0, Place("pair", None, ranks=2), told.append)

    threads = [threading.Thread(target=take, args=(node,)) for node in (0, 1)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(60)
    readings = [each for each in told if "figure" in each]
    assert sorted((each["part"], each["value"]) for each in readings) == [("0>1", figure), ("1>0", figure)]
    keys = ["told/0/0/begin", "told/0/0/begin/all", "told/0/0/0-1/0/port", "told/0/0/0-1/1/port"]
    assert store.check(keys) and store.num_keys() - len(keys) <= 1, "and torch's own"
    assert not any(b"4711" in bytes(store.get(key)) for key in keys)
    assert "4711" in json.dumps(readings)


PROGRAM = '''#!/usr/bin/env python3
"""As perftest: a server that takes one client, and a client that prints a table. A Debian package in the lab's virtual
machines is the real one; here the figures are of a sample."""
import socket, sys
words = sys.argv[1:]
port = int(words[words.index("-p") + 1])
if words[-1] == "127.0.0.1":
    with socket.create_connection((words[-1], port)) as there:
        there.recv(1)
    print(open({sample!r}).read().replace("{value}", sys.argv[2][-1] == "1" and "{value}" or "7.5"))
    sys.exit({code})
with socket.create_server(("127.0.0.1", port)) as listener:
    listener.accept()[0].sendall(b"x")
'''


def pair(store: TCPStore, prefix: str = PAIR, limit_s: float = 30) -> list[list[Measured] | Exception]:
    """What each of two nodes measures, or what became of it."""
    from torch.distributed import PrefixStore  # type: ignore[attr-defined]

    found: list[list[Measured] | Exception] = [[], []]

    def measure(rank: int) -> None:
        link = Link(PrefixStore(prefix, joined(store)), rank, "127.0.0.1", f"dev{rank}", 1, limit_s, {})
        try:
            found[rank] = list(trials()["perftest"].function(Place("pair", None, link=link)))
        except Failed as error:
            found[rank] = error

    threads = [threading.Thread(target=measure, args=(rank,)) for rank in (0, 1)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    return found


def install(folder: Path, code: int = 0) -> None:
    for name, value in (("ib_write_bw", "193.21"), ("ib_read_lat", "1.87")):
        (folder / name).write_text(PROGRAM.format(sample=str(SAMPLES / f"{name}.txt"), value=value, code=code))
        (folder / name).chmod(0o755)


def test_each_node_tells_what_it_writes_and_reads(
    store: TCPStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    install(tmp_path)
    first, second = pair(store)
    assert isinstance(second, list)
    assert [(each.figure, each.value) for each in second] == [("ib_write_bw", 193.21), ("ib_read_lat", 1.87)]
    assert isinstance(first, list) and [each.value for each in first] == [7.5, 7.5]


def test_the_other_node_can_give_a_program_no_option(monkeypatch: pytest.MonkeyPatch) -> None:
    for told in ("--out_json_file=/etc/passwd 20000", "-h 1", "10.0.0.1 -1", "10.0.0.1 1 --reversed", "10.0.0.1 70000"):
        monkeypatch.setattr(Link, "hear", lambda _self, _key, told=told: told)
        link = Link(None, 0, "127.0.0.1", "dev0", 1, 1, {})  # type: ignore[arg-type]
        with pytest.raises(Failed, match="no valid address and port"):
            link.connect("0/x", ["true", "-p", "{port}", "{address}"])


def test_a_program_that_fails_fails_both_ends_and_one_that_is_missing_is_no_failure(
    store: TCPStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    install(tmp_path, code=3)
    first, second = pair(store)
    assert "exit code 3" in str(first) and "no client measured" in str(second)
    (tmp_path / "ib_read_lat").unlink()
    monkeypatch.setattr("shakedown.trials.workload.programs.PLACES", ())
    monkeypatch.setenv("PATH", str(tmp_path))
    first, _ = pair(store, "perftest/0/1/0-1")
    assert isinstance(first, list) and first[0].note == "ib_read_lat not installed"


def test_a_node_does_not_wait_for_ever_for_what_the_other_one_never_says(store: TCPStore) -> None:
    from torch.distributed import PrefixStore  # type: ignore[attr-defined]

    link = Link(PrefixStore(PAIR, joined(store)), 0, "127.0.0.1", "dev0", 1, 0.2, {})
    with pytest.raises(Failed, match=r"did not answer within 0\.2 s"):
        link.hear("1/port")
    store.set(f"{PAIR}/1/port", b"\xff\x00 10.0.0.1")
    with pytest.raises(Failed, match="no valid address and port"):
        store.set(f"{PAIR}/x/0/port", b"\xff 1")
        link.connect("x", ["true"])
