"""Controllers that share a ledger: who is at work on a node, and what becomes of it when the controller dies.

The controllers are processes of their own, over SQLite and over a real PostgreSQL; their nodes are states in memory.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from multiprocessing import get_context
from multiprocessing.context import ForkProcess
from pathlib import Path

import pytest

from shakedown.ledger import claims, schema
from shakedown.ledger import claims as book
from shakedown.ledger.claims import LEASE_S, Holder, Room, begin, end, holders, renew, this_process
from shakedown.ledger.store import Ledger, open_ledger
from shakedown.runner.repair.service import Picture
from shakedown.service.model import Step
from tests.unit.test_escalation import NODES, Lab, finding

ROOMY = Room(at_once=9)


def step(node: str, done: str = "begun", rung: str = "reboot", who: str = "") -> Step:
    return Step.model_validate({"node": node, "at": int(time.time()), "done": done, "rung": rung, "who": who})


def other(**changed: object) -> Holder:
    """Return a process that is not this one, and lives."""
    parent = claims.processes.read(os.getppid())
    assert parent is not None
    found = replace(this_process(), who="ops@elsewhere:7", pid=parent.pid, start=parent.started)
    return replace(found, **changed)  # type: ignore[arg-type]


def test_of_two_processes_that_begin_on_one_node_the_second_is_refused(ledger: Ledger) -> None:
    mine = this_process()
    assert begin(ledger, step("node1", who="ops@elsewhere:7"), ROOMY, other()) == ""
    assert begin(ledger, step("node1"), ROOMY, mine) == "node1: ops@elsewhere:7 is at work there"
    assert begin(ledger, step("node2"), ROOMY, mine, also=["node1"]) == "node1: ops@elsewhere:7 is at work there"
    assert begin(ledger, step("node2"), ROOMY, mine, also=["node3"]) == ""
    assert holders(ledger) == {"node1": "ops@elsewhere:7"}
    assert set(holders(ledger, other())) == {"node2", "node3"}, "a partner of a load is claimed, too"
    assert end(ledger, step("node2", "ended"), mine, also=["node3"])
    assert holders(ledger, other()) == {}
    assert [each.done for each in book.known_of(ledger, ["node2"])["node2"].steps] == ["begun", "ended"]


@pytest.mark.parametrize(
    "dead",
    [
        {"pid": 2**22 + 7},  # no process
        {"start": 1},  # another process has the pid now
        {"place": "another boot", "renewed": -LEASE_S - 1},
    ],
)
def test_a_claim_of_a_process_that_is_gone_is_taken_over(ledger: Ledger, dead: dict[str, int | str]) -> None:
    ago = int(dead.get("renewed", 0))
    gone = other(**{key: value for key, value in dead.items() if key != "renewed"})
    assert begin(ledger, step("node1", who="ops@elsewhere:7"), ROOMY, gone) == ""
    with ledger.writing() as connection:
        connection.execute(schema.claims.update().values(renewed=schema.claims.c.renewed + ago))
    seen = claims.newest_step(ledger)
    assert holders(ledger) == {}
    assert begin(ledger, step("node1"), Room(at_once=9, seen=seen), this_process()) == ""
    assert not end(ledger, step("node1", "ended"), gone), "a controller that wakes up again writes nothing"
    assert renew(ledger, gone) == set()
    assert book.known_of(ledger, ["node1"])["node1"].steps[-1].done == "begun"


@pytest.mark.parametrize(
    ("place", "age", "holds"),
    [
        ("there", 0, True),
        ("there", LEASE_S, True),
        ("there", LEASE_S + 1, False),
        ("", LEASE_S, True),
        ("there", -LEASE_S, True),
        ("there", -LEASE_S - 1, False),
    ],
)
def test_a_claim_that_no_process_here_shows_holds_for_its_lease(place: str, age: int, holds: bool) -> None:
    gone = other(place=place, pid=2**22 + 7)
    assert (
        gone.lives(renewed=1_000_000 - age, now=1_000_000, mine=replace(this_process(), place=place and "here"))
        == holds
    )


def test_a_claim_from_another_machine_holds_as_long_as_it_is_renewed(ledger: Ledger) -> None:
    far = other(place="another boot", pid=2**22 + 7)
    assert begin(ledger, step("node1", who="ops@elsewhere:7"), ROOMY, far) == ""
    with ledger.writing() as connection:
        connection.execute(schema.claims.update().values(renewed=schema.claims.c.renewed - LEASE_S - 60))
    assert holders(ledger) == {}
    assert renew(ledger, far) == {"node1"}
    assert holders(ledger) == {"node1": "ops@elsewhere:7"}


def test_a_command_that_outlived_its_controller_keeps_the_claim(tmp_path: Path) -> None:
    ledger, lock = open_ledger(tmp_path / "ledger.sqlite"), tmp_path / "service.lock"
    fd = os.open(lock, os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(fd, fcntl.LOCK_EX)
    orphan = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, pass_fds=[fd])
    os.close(fd)
    try:
        gone = other(pid=2**22 + 7, lock=str(lock))
        assert begin(ledger, step("node1", who="ops@elsewhere:7"), ROOMY, gone) == ""
        assert "at work" in begin(ledger, step("node1"), ROOMY, this_process())
    finally:
        orphan.communicate(b"\n")
    assert holders(ledger) == {}


def test_what_was_begun_since_the_ledger_was_read_counts(ledger: Ledger) -> None:
    two = Room(at_once=2)
    for node in ("node1", "node2"):
        assert begin(ledger, step(node, who="ops@elsewhere:7"), two, other()) == ""
    assert "2 out of service already" in begin(ledger, step("node3"), two, this_process())
    assert "2 out of service already" in begin(ledger, step("node3", "drained", ""), two)
    book.write(ledger, step("node2", "resumed", "", who="ops@elsewhere:7"))
    assert begin(ledger, step("node3"), two, this_process()) == ""
    late = begin(ledger, step("node4"), Room(frozenset({"node4"}), 9, two.seen), this_process())
    assert late == "", "a node that is out already needs no room"
    book.write(ledger, step("node5", "handed over", "", who="ops@elsewhere:7"))
    assert "meanwhile handed over by ops@elsewhere:7" in begin(ledger, step("node5"), ROOMY, this_process())


def controller(where: str, folder: Path, me: str, nodes: Sequence[str], mode: str) -> None:
    """It looks, waits until the other has looked, and then acts. What its commands do stands in a file."""

    def note(what: str) -> None:
        with (folder / "log").open("a") as file:
            file.write(f"{me} {what}\n")

    def reboot(hosts: list[str]) -> None:
        note("begins " + " ".join(hosts))
        time.sleep(600 if mode == "hang" else 1)
        note("ends " + " ".join(hosts))
        for host in hosts:
            lab.found.pop(host)

    def look(hosts: Sequence[str] = ()) -> Picture:
        return Lab.look(lab, tuple(hosts) or (*nodes, "node3"))

    lab = Lab("rack.py", ledger=open_ledger(where), folder=folder / "runs", service={"rungs": ["reboot"]})
    lab.found = {node: [finding(node)] for node in nodes}
    lab.hooks = {"reboot": reboot}
    lab.look = look  # type: ignore[method-assign]
    picture = lab.look()
    (folder / f"{me}.ready").touch()
    while mode == "race" and not (folder / "go").exists():
        time.sleep(0.01)
    lab.escalation().run(picture, 1)
    note("said " + " | ".join(lab.said))


def start(ledger: Ledger, folder: Path, me: str, nodes: Sequence[str], mode: str) -> ForkProcess:
    where = str(ledger.place.path or ledger.place.url.render_as_string(hide_password=False))
    process = get_context("fork").Process(target=controller, args=(where, folder, me, nodes, mode), daemon=True)
    process.start()
    return process


def ended(process: ForkProcess) -> bool:
    """Whether it came to its end, without an error."""
    process.join(120)
    return process.exitcode == 0


def wait_for(path: Path, text: str = "") -> None:
    until = time.monotonic() + 120
    while not path.exists() or text not in path.read_text():
        assert time.monotonic() < until, path
        time.sleep(0.02)


def accuse(ledger: Ledger, folder: Path, nodes: Sequence[str]) -> None:
    lab = Lab("rack.py", ledger=ledger, folder=folder / "runs")
    lab.found = {node: [finding(node)] for node in nodes}
    lab.keep("drift", NODES)


def log(folder: Path, what: str) -> list[str]:
    lines = (folder / "log").read_text().splitlines()
    return [line.partition(" ")[2] for line in lines if line.split()[1] in what.split()]


@pytest.mark.parametrize("theirs", ["node1", "node2"])
def test_two_controllers_at_once_reboot_no_node_twice_and_no_more_than_at_once(
    ledger: Ledger, tmp_path: Path, theirs: str
) -> None:
    accuse(ledger, tmp_path, ["node1", "node2"])
    both = [start(ledger, tmp_path, me, [node], "race") for me, node in (("a", "node1"), ("b", theirs))]
    for me in "ab":
        wait_for(tmp_path / f"{me}.ready")
    (tmp_path / "go").touch()
    assert all(ended(process) for process in both)
    did = log(tmp_path, "begins ends")
    assert len(did) == 2 and did[0].replace("begins", "ends") == did[1], did
    refused = "is at work there" if theirs == "node1" else "service.at_once allows 1"
    assert any(refused in line or "meanwhile" in line for line in log(tmp_path, "said"))


def test_a_controller_goes_on_where_a_dead_one_stopped_and_not_before(ledger: Ledger, tmp_path: Path) -> None:
    accuse(ledger, tmp_path, ["node1"])
    first = start(ledger, tmp_path, "a", ["node1"], "hang")
    try:
        wait_for(tmp_path / "log", "begins")
        assert ended(start(ledger, tmp_path, "b", ["node1"], "go"))
        assert log(tmp_path, "begins") == ["begins node1"]
    finally:
        first.kill()  # and it is not waited for: a process that nobody has buried is dead, too
    time.sleep(0.1)
    assert ended(start(ledger, tmp_path, "c", ["node1"], "go"))
    first.join()
    assert log(tmp_path, "begins ends") == ["begins node1", "begins node1", "ends node1"]
