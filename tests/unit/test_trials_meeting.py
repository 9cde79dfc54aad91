"""Where the nodes of a trial meet, and the programs that two of them run between each other."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from shakedown.trials import trials
from shakedown.trials.workload import meeting as meetings
from shakedown.trials.workload.link import Link, LinkError
from shakedown.trials.workload.meeting import Keeper, Meeting, MeetingError, secret_of
from shakedown.trials.workload.registry import Measured, Place

SAMPLES = Path(__file__).parents[1] / "data/trials"
SECRET = "5e" * 32
PAIR = "perftest/0/0/0-1"


def joined(port: int, place: int) -> Meeting:
    return Meeting("127.0.0.1", port, SECRET if place == 0 else secret_of(SECRET, place), place, 60)


@contextmanager
def kept(secret: str = SECRET) -> Iterator[int]:
    keeper = Keeper("127.0.0.1", 0, secret)
    serving = threading.Thread(target=keeper.serve, args=(1, 120.0))
    serving.start()
    try:
        yield keeper.port
    finally:
        Meeting("127.0.0.1", keeper.port, secret, 0, 60).ask("add", "through")
        serving.join(60)


def test_nodes_that_know_the_secret_meet() -> None:
    with kept() as port:
        first, second = joined(port, 0), joined(port, 1)
        first.ask("set", f"{PAIR}/port", "20001")
        assert second.wait(f"{PAIR}/port", 60) == "20001" and second.wait(f"{PAIR}/nothing", 0.01) is None
        assert [first.ask("add", f"{PAIR}/n", 2), second.ask("add", f"{PAIR}/n", 3)] == [2, 5]


def test_a_third_node_cannot_read_or_spoil_what_two_tell_each_other_nor_be_counted_twice() -> None:
    with kept() as port:
        first, other = joined(port, 0), joined(port, 2)
        first.ask("set", f"{PAIR}/port", "20001")
        assert [first.ask("add", "begin"), first.ask("add", "begin", 1000), other.ask("add", "begin")] == [1, 1, 2]
        for words in (
            ("set", f"{PAIR}/port", "1"),
            ("get", f"{PAIR}/port"),
            ("delete", f"{PAIR}/port"),
            ("set", "begin", "9"),
        ):
            with pytest.raises(MeetingError, match="broke off"):
                joined(port, 2).ask(*words)
        with pytest.raises(MeetingError, match="no meeting at"):  # in another node's name
            Meeting("127.0.0.1", port, secret_of(SECRET, 2), 1, 0.1)
        assert (first.ask("get", f"{PAIR}/port"), first.ask("get", "begin")) == ("20001", "2")


def test_a_node_is_counted_whatever_another_one_has_counted_itself_under() -> None:
    with kept() as port:
        joined(port, 2).ask("add", "begin 1")
        node = joined(port, 1)
        assert [node.ask("add", "begin"), node.ask("get", "begin"), node.ask("get", "begin 1")] == [1, "1", "1"]


def test_strangers_who_say_nothing_keep_no_node_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meetings, "SHAKE_S", 600.0)
    monkeypatch.setattr(meetings, "STRANGERS", 2)
    with kept() as port, contextlib.ExitStack() as silent:
        for _ in range(4):
            silent.enter_context(socket.create_connection(("127.0.0.1", port)))
        assert joined(port, 1).ask("add", "begin") == 1


def test_a_stranger_changes_nothing_and_keeps_nobody_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meetings, "SHAKE_S", 0.5)
    with kept() as port, socket.create_connection(("127.0.0.1", port)) as silent:
        with socket.create_connection(("127.0.0.1", port)) as stranger:
            stranger.recv(100)
            stranger.sendall(b'0 0000 ffff\n["add", "through", 1000]\n["set", "port", "1"]\n')
            with contextlib.suppress(ConnectionResetError):
                assert stranger.recv(100) == b""
        with pytest.raises(MeetingError, match="no meeting at"):
            Meeting("127.0.0.1", port, "another", 0, 0.1)
        node = joined(port, 0)
        assert node.ask("get", "through") is None and node.ask("count", "") == 0
        silent.settimeout(60)
        assert len(silent.recv(100)) == 33 and silent.recv(100) == b"", "who says nothing is let go"


def test_a_node_cannot_fill_the_memory_of_the_first_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meetings, "KEPT", 4000)
    with kept() as port:
        for _ in range(20):  # what is taken away or told anew does not count twice
            with_room = joined(port, 0)
            with_room.ask("set", f"{PAIR}/a", "x" * 300)
            with_room.ask("set", f"{PAIR}/b", "x" * 300)
            assert with_room.ask("delete", f"{PAIR}/b") is True
        with pytest.raises(MeetingError):
            for number in range(20):
                with_room.ask("set", f"{PAIR}/c{number}", "x" * 100)
        with pytest.raises(MeetingError):
            for number in range(40):
                joined(port, 2).ask("add", f"{number}")
        assert joined(port, 1).ask("add", "begin") == 1  # the room of the others
        other = joined(port, 0)
        assert other.ask("get", f"{PAIR}/a") == "x" * 300 and other.ask("count", "") < 20
        for number in range(20):
            other.ask("delete", f"{PAIR}/c{number}")


def test_a_node_tells_nothing_to_who_listens_there_and_does_not_know_the_secret() -> None:
    with kept("of somebody else") as port, pytest.raises(MeetingError, match="no meeting at"):
        Meeting("127.0.0.1", port, SECRET, 0, 0.1)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        said: list[bytes] = []

        def pretend() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.sendall(b"00\n")
                said.append(connection.recv(1000))
                connection.sendall(b"ff\n")
                said.append(connection.recv(1000))

        pretending = threading.Thread(target=pretend)
        pretending.start()
        with pytest.raises(MeetingError, match="does not know the secret"):
            Meeting("127.0.0.1", listener.getsockname()[1], SECRET, 0, 0.0)
        pretending.join(60)
        assert said[1] == b"" and SECRET.encode() not in said[0]


def test_torch_has_its_store_there() -> None:
    from torch.distributed import PrefixStore  # type: ignore[attr-defined]

    from shakedown.trials.workload.store import MeetingStore

    with kept() as port:
        own = [MeetingStore(joined(port, place), PAIR, 60) for place in range(2)]
        first, second = (PrefixStore("gloo", each) for each in own)
        first.set("address", b"\x00\xff1234")
        second.wait(["address"], timedelta(seconds=60))
        assert second.get("address") == b"\x00\xff1234"
        assert [first.add("n", 1), second.add("n", 1)] == [1, 2] and first.get("n") == b"2"
        with pytest.raises(Exception, match="nothing under"):
            first.wait(["never"], timedelta(seconds=0.01))


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


def pair(port: int, limit_s: float = 30) -> list[list[Measured] | Exception]:
    """What each of two nodes measures, or what became of it."""
    found: list[list[Measured] | Exception] = [[], []]

    def measure(rank: int) -> None:
        meeting = joined(port, rank)
        link = Link(meeting, PAIR, rank, "127.0.0.1", f"dev{rank}", 1, limit_s, {})
        try:
            found[rank] = list(trials()["perftest"].function(Place("pair", None, link=link)))
        except LinkError as error:
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


def test_each_node_tells_what_it_writes_and_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    install(tmp_path)
    with kept() as port:
        first, second = pair(port)
    assert isinstance(second, list)
    assert [(each.figure, each.value) for each in second] == [("ib_write_bw", 193.21), ("ib_read_lat", 1.87)]
    assert isinstance(first, list) and [each.value for each in first] == [7.5, 7.5]


def test_the_other_node_can_give_a_program_no_option(monkeypatch: pytest.MonkeyPatch) -> None:
    for told in ("--out_json_file=/etc/passwd 20000", "-h 1", "10.0.0.1 -1", "10.0.0.1 1 --reversed", "10.0.0.1 70000"):
        monkeypatch.setattr(Link, "hear", lambda _self, _key, told=told: told)
        link = Link(None, "perftest/0/0", 0, "127.0.0.1", "dev0", 1, 1, {})  # type: ignore[arg-type]
        with pytest.raises(LinkError, match="no address and port"):
            link.connect("0/x", ["true", "-p", "{port}", "{address}"])


def test_a_program_that_fails_fails_both_ends_and_one_that_is_missing_is_no_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    install(tmp_path, code=3)
    with kept() as port:
        first, second = pair(port)
        assert "exit code 3" in str(first) and "nothing was measured" in str(second)
    (tmp_path / "ib_read_lat").unlink()
    monkeypatch.setattr("shakedown.trials.workload.programs.PLACES", ())
    monkeypatch.setenv("PATH", str(tmp_path))
    with kept() as port:
        first, _ = pair(port)
    assert isinstance(first, list) and first[0].note == "ib_read_lat not installed"
