"""What a run waits for is said after some seconds, seldom, and with the nodes that are waited for."""

from __future__ import annotations

import gevent  # noqa: F401  (pyinfra's own first import)

from shakedown.node.assets.pull import Layers
from shakedown.runner.progress import AGAIN_S, EVERY_S, FEW, FIRST_S, RunProgress, Waiting


def looked(kept: RunProgress, *moments: float) -> list[str]:
    said: list[str] = []
    waiting = Waiting(kept, said.append)
    for moment in moments:
        waiting.look(moment)
    return [line.partition(", since ")[0] + line[line.index(": ", line.index(", since ")) :] for line in said]


def test_nothing_is_said_of_what_takes_no_time() -> None:
    kept = RunProgress(waits={"n1": ("thp: set it", 100.0)})
    assert looked(kept, 100.0, 100.0 + FIRST_S - 0.1) == []


def test_many_hosts_are_counted_from_the_first_second() -> None:
    said: list[str] = []
    kept = RunProgress(waits={f"n{number}": ("the connection", 100.0) for number in range(64)})
    waiting = Waiting(kept, said.append)
    for moment in (100.5, 101.0, 102.0, 104.0):
        waiting.look(moment)
        kept.waits.popitem()
    assert said == ["the connection: waiting for 63 nodes", "the connection: waiting for 61 nodes"]
    for moment in range(110, 145):  # one comes for one that goes
        kept.waits = dict.fromkeys(map(str, range(40)), ("the connection", moment - 2.0))
        waiting.look(float(moment))
    assert said[2:] == ["the connection: waiting for 40 nodes"] * 3, "in 35 s"
    del said[2:]
    few = Waiting(RunProgress(waits={"n1": ("the connection", 100.0)}), said.append)
    few.look(102.0)
    assert len(said) == 2


def test_the_oldest_is_said_with_all_that_are_at_the_same() -> None:
    kept = RunProgress(waits={f"n{number}": ("image: pull x", 100.0 + number) for number in range(1, 41)})
    kept.waits["n99"] = ("mtu: set it", 120.0)
    assert looked(kept, 160.0) == ["waiting for 0:00:59: image: pull x, on n[1-40]"]


def test_lines_are_few_and_more_often_only_where_something_changes() -> None:
    kept = RunProgress(waits={"n1": ("mtu: set it", 0.0)})
    assert len(looked(kept, *(float(second) for second in range(10, 250)))) == 1 + (239 // int(AGAIN_S))
    said: list[str] = []
    waiting = Waiting(kept, said.append)
    for second in range(10, 100):
        kept.waits = {f"n{second}": ("mtu: set it", 0.0)}
        waiting.look(float(second))
    assert len(said) == 1 + 89 // int(EVERY_S)


def test_of_many_that_tell_how_it_goes_one_is_heard() -> None:
    kept = RunProgress(waits={f"n{number}": ("image: pull x", 0.0) for number in range(1, FEW + 3)})
    kept.saying = {"n2": "3 of 12 layers\x1b[2J"}
    assert looked(kept, 20.0) == ["waiting for 0:00:20: image: pull x, on n[1-10]"], "it was shown as it came"
    kept.saying = dict.fromkeys(kept.waits, "3 of 12 layers\x1b[2J")
    assert looked(kept, 20.0) == ["waiting for 0:00:20: image: pull x, on n[1-10]; n1: 3 of 12 layers"]


def test_what_is_over_is_waited_for_no_more() -> None:
    kept = RunProgress(waits={"n1": ("mtu: set it", 0.0)}, saying={"n1": "x"})
    kept.hosts["n1"].begin("mtu: set it")
    assert kept.unfinished() == {"n1": "mtu: set it"}
    kept.ended("n1")
    assert looked(kept, 50.0) == [] and not kept.unfinished() and not kept.saying


def test_a_pull_tells_bytes_once_there_are_any() -> None:
    said = Layers()
    assert said.progress(0, 5 << 30) == "asking the registry"
    for line in ("aaaaaaaaaaaa: Pulling fs layer", "bbbbbbbbbbbb: Pulling fs layer", "aaaaaaaaaaaa: Pull complete"):
        said.take(line)
    assert said.progress(-5, 5 << 30) == "1 of 2 layers"
    assert said.progress(700 << 20, 5 << 30) == "1 of 2 layers, 700 MiB written, compressed size 5.0 GiB"
    assert said.progress(7 << 30) == "1 of 2 layers, 7.0 GiB written"
