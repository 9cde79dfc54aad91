"""Whom the others wait for: by what real ranks of gloo leave behind that stand still, and by records of NCCL's form."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from shakedown.evidence.diagnosis import signs
from shakedown.evidence.diagnosis.origin import decide
from shakedown.evidence.diagnosis.signs import of_hang
from shakedown.evidence.hangs import records
from shakedown.evidence.hangs.analysis import Collective, Hang, Rank, analyse, main_thread
from shakedown.evidence.hangs.records import flight_of, rank_of, ranks_of
from shakedown.evidence.results import Failure
from shakedown.jobs.faults import StepTimes
from shakedown.logs.kept_logs import KeptLog
from shakedown.node.launcher import folder, processes, standstill
from shakedown.runs.diagnosis import signs_of
from shakedown.runs.directory import Evidence, JobRecord, RunDirectory
from tests.nodes import launch_plan, until

WAYS = ("stopped", "in a loop", "in another collective", "in another group")
PATIENCE_S = 60.0  # for 16 processes to join their groups on a machine that does other things


class Standing:
    """Ranks that stand still, and what they leave behind."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.parents: dict[str, dict[int, int]] = {}
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
        script = [sys.executable, "-m", "tests.standing_still", str(folder), *WAYS]
        self.process = subprocess.Popen(script, stdout=subprocess.PIPE, text=True, env=environment)
        assert self.process.stdout is not None
        for _ in range(4 * len(WAYS)):
            way, rank, parent = self.process.stdout.readline().split()
            self.parents.setdefault(way.replace("_", " "), {})[int(rank)] = int(parent)

    def children(self, parent: int) -> list[int]:
        return [int(pid) for pid in Path(f"/proc/{parent}/task/{parent}/children").read_text().split()]

    def close(self) -> None:
        parents = [parent for its in self.parents.values() for parent in its.values()]
        for pid in [*(child for parent in parents for child in self.children(parent)), *parents, self.process.pid]:
            os.kill(pid, signal.SIGKILL)
        self.process.wait(30)

    def found(self, way: str) -> list[Rank]:
        """What is known of each rank, each on a node of its own, written down as the launcher does."""
        ranks = []
        for rank, parent in self.parents[way].items():
            folder = self.folder / way / str(rank)
            standstill.take(str(folder), "no mark", parent)
            files = {file.name: file.read_bytes() for file in (folder / "hang").iterdir() if file.is_file()}
            ranks += ranks_of(f"node{rank}", files, [])
        return ranks


@pytest.fixture(scope="module")
def standing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standing]:
    made = Standing(tmp_path_factory.mktemp("standing"))
    try:
        yield made
    finally:
        made.close()


def settled(standing: Standing, way: str) -> tuple[Hang, list[Rank]]:
    """Once all have come to where they stand still: each that can has answered, and twice they say the same."""
    answering = 3 if way == "stopped" else 4
    deadline, before = time.monotonic() + PATIENCE_S, object()
    while True:
        ranks = standing.found(way)
        hang = analyse(ranks, world_size=4)
        there = sum(bool(rank.answered and rank.last) for rank in ranks) == answering
        said = hang and there and (hang.why, hang.culprits, hang.entered)
        if hang is not None and said and said == before and any(rank.waits_in for rank in ranks):
            return hang, ranks
        before = said
        assert time.monotonic() < deadline, (hang, ranks)
        time.sleep(0.5)


@pytest.mark.parametrize(
    ("way", "why", "said"),
    [
        ("stopped", "missing", "its process is stopped"),
        ("in a loop", "missing", "spin"),
        ("in another collective", "other collective", "broadcast"),
    ],
)
def test_the_rank_that_the_others_wait_for_is_named(standing: Standing, way: str, why: str, said: str) -> None:
    hang, ranks = settled(standing, way)
    assert (hang.why, hang.culprits, hang.nodes) == (why, (2,), ("node2",)), hang
    assert said in " ".join([hang.text, *hang.facts])
    assert [rank.rank for rank in ranks] == [0, 1, 2, 3], "each rank left its evidence"
    assert all(rank.stacks for rank in ranks if rank.state not in "Tt")
    found = decide(of_hang(hang))
    assert found is not None and (found.origin, found.confidence) == (("node2",), "likely")


@pytest.mark.parametrize(
    "stacks",
    [
        'Thread 0x00007f01 (most recent call first):\n  File "threading.py", line 982 in run\n\n'
        'Current thread 0x00007f00 (most recent call first):\n  File "train.py", line 9 in spin\n',
        'Thread 0x00007f00 (most recent call first):\n  File "train.py", line 2 in load\n\n'
        'Thread 0x00007f01 (most recent call first):\n  File "threading.py", line 982 in run\n\n'
        'Thread 0x00007f00 (most recent call first):\n  File "train.py", line 9 in spin\n',
        'Process 7: python\nThread 7 (active): "MainThread"\n    spin (train.py:9)\n'
        'Thread 9 (idle): "Thread-1 (_answer)"\n    run (threading.py:982)\n',
    ],
)
def test_of_several_threads_the_main_one_says_where_a_rank_is(stacks: str) -> None:
    (frame,) = main_thread(stacks)[1:2]
    assert "spin" in frame


def test_who_waits_in_another_group_is_not_the_one(standing: Standing) -> None:
    """Ranks 2 and 3 wait for 0 and 1 in the group of all, and rank 0 waits for rank 1."""
    hang, ranks = settled(standing, "in another group")
    assert (hang.why, hang.culprits) == ("missing", (1,)), (hang, ranks)


def test_a_process_that_does_not_listen_gets_no_signal(tmp_path: Path) -> None:
    (tmp_path / "hang").mkdir()
    sleeper = subprocess.Popen(["sleep", "600"])
    try:
        assert not standstill._listens(folder.below(str(tmp_path), "hang"), sleeper.pid, str(sleeper.pid))
        answer = standstill.take(str(tmp_path), "no mark", os.getpid())
        assert sleeper.poll() is None
        assert f"hang/process-{sleeper.pid}.json" in answer["files"] and answer["late"] == []
        document = json.loads((tmp_path / f"hang/process-{sleeper.pid}.json").read_text())
        assert document["state"] == "S" and document["threads"]
    finally:
        sleeper.kill()
        sleeper.wait()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be had to run another user's program")
def test_a_process_cannot_have_root_run_a_program_by_what_it_calls_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    place = tmp_path / "bin"
    place.mkdir(mode=0o755)
    (place / "py-spy").write_text("#!/bin/sh\n")
    (place / "py-spy").chmod(0o755)
    sleeper = subprocess.Popen([str(place / "python"), "600"], executable="/bin/sleep")
    try:
        until(Path(f"/proc/{sleeper.pid}/cmdline").read_bytes)  # the kernel fills it after Popen has returned
        process = processes.read(sleeper.pid)
        assert process is not None and standstill._py_spy([process]) == str(place / "py-spy")
        place.chmod(0o777)
        assert standstill._py_spy([process]) is None
        place.chmod(0o755)
        os.chown(place / "py-spy", 65534, -1)
        assert standstill._py_spy([process]) is None
    finally:
        sleeper.kill()
        sleeper.wait()


def test_who_answers_in_the_place_of_ras_cannot_delay_the_evidence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a limit in all this would be as long as somebody sends bytes."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        monkeypatch.setattr(standstill, "_RAS", server.getsockname())
        monkeypatch.setattr(standstill, "_RAS_S", 0.3)

        def trickle() -> None:
            connection, _ = server.accept()
            with connection, contextlib.suppress(OSError):
                for _ in range(1200):
                    connection.sendall(b"x")
                    time.sleep(0.05)

        thread = threading.Thread(target=trickle, daemon=True)
        thread.start()
        said = standstill._ras()
        assert set(said) <= {"x"} and len(said) < 1200
        thread.join(PATIENCE_S)
        assert not thread.is_alive(), "it was hung up on"


def test_data_that_waits_for_an_answer_is_of_connections_that_stand(monkeypatch: pytest.MonkeyPatch) -> None:
    row = "   {}: 0100000A:1F90 0200000A:C350 {} {:08X}:00000000 01:00000019 {:08X}  1000        0 1 1\n"
    rows = [
        row.format(0, "01", 64, 5),
        row.format(1, "06", 64, 6),
        row.format(2, "01", 0, 7),
        row.format(3, "01", 64, 0),
        row.format(4, "01", 64, 8)[:64] + "\n",  # cut
    ]
    monkeypatch.setattr(
        standstill, "kernel_text", lambda path, limit: "head\n" + "".join(rows if "tcp6" not in path else [])
    )
    assert standstill._unacknowledged(1) == [{"local": "10.0.0.1", "peer": "10.0.0.2", "again": 5}]


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("0100007F:1F90", "127.0.0.1"),
        ("0000000000000000FFFF00000100000A:1F90", "10.0.0.1"),
        ("000080FE00000000FF5450024FA10C5E:1F90", "000080FE00000000FF5450024FA10C5E:1F90"),
    ],
)
def test_a_connection_over_ipv6_is_of_no_address_of_ipv4(text: str, address: str) -> None:
    assert standstill._address(text) == address


def nccl(rank: int, entered: int, operation: str = "nccl:all_reduce", size: int = 1024, over: int = 0) -> bytes:
    """A record as PyTorch's NCCL backend dumps it: version 2.10, with the fields that are read and others."""
    entries = [
        {
            "frames": [], "record_id": number, "pg_id": 0, "process_group": ("0", "default_pg"),
            "collective_seq_id": number, "p2p_seq_id": 0, "op_id": number, "is_p2p": False,
            "profiling_name": operation if number == entered else "nccl:all_reduce", "time_created_ns": 1,
            "input_sizes": ((size if number == entered else 1024,),), "input_dtypes": ["Float"],
            "output_sizes": ((1024,),), "state": "completed" if number <= (over or entered - 1) else "scheduled",
            "retired": number <= (over or entered - 1) - 1, "timeout_ms": 600000,
        }
        for number in range(1, entered + 1)
    ]  # fmt: skip
    config = {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2, 3]"}}
    status = {"0": {"last_enqueued_collective": entered, "last_started_collective": entered - 1}}
    document = {"version": "2.10", "entries": entries, "pg_config": config, "pg_status": status, "rank": rank}
    return pickle.dumps(document, protocol=2)


def of_nccl(*dumps: bytes) -> Hang:
    ranks = [rank_of(number, f"node{number}", flight_of(data)) for number, data in enumerate(dumps) if data]
    found = analyse(ranks, world_size=4)
    assert found is not None
    return found


def test_records_of_nccl_come_to_the_same() -> None:
    behind = of_nccl(nccl(0, 5), nccl(1, 5), nccl(2, 4, over=4), nccl(3, 5))
    assert (behind.why, behind.culprits, behind.entered) == ("missing", (2,), (0, 1, 3))
    other = of_nccl(nccl(0, 5), nccl(1, 5, "nccl:broadcast"), nccl(2, 5), nccl(3, 5))
    assert (other.why, other.culprits) == ("other collective", (1,)) and "broadcast" in other.text
    assert other.collective is not None and other.collective.operation == "all_reduce", "in which the others stand"
    sizes = of_nccl(nccl(0, 5), nccl(1, 5), nccl(2, 5), nccl(3, 5, size=2048))
    assert (sizes.why, sizes.culprits) == ("other sizes", (3,))
    half = of_nccl(nccl(0, 5, "nccl:broadcast"), nccl(1, 5, "nccl:broadcast"), nccl(2, 5), nccl(3, 5))
    assert (half.why, half.culprits) == ("other collective", ()), "two against two: nobody is named"


def test_ranks_of_one_node_alone_do_not_make_a_rank_of_another_node_the_odd_one() -> None:
    """A node that lies holds all its ranks' records against the single rank of another that came so far."""
    operations = ["nccl:all_reduce", "nccl:all_reduce", "nccl:broadcast"]
    for nodes, culprits in ((("a", "a", "b"), ()), (("a", "c", "b"), (2,)), (("b", "b", "b"), (2,))):
        ranks = [
            rank_of(number, nodes[number], flight_of(nccl(number, 5, operation)))
            for number, operation in enumerate(operations)
        ]
        found = analyse(ranks, world_size=4)
        assert found is not None and (found.why, found.culprits) == ("other collective", culprits), nodes


def test_one_node_s_word_names_no_rank_of_another_that_did_not_enter() -> None:
    """A node that lies has a record of a collective that nobody else knows, while the others compute."""
    computes = nccl(1, 5, over=5)
    for nodes, named, among in (
        (("a", "b", "c"), (), ("a", "b", "c")),
        (("a", "b", "b"), (), ("a", "b")),
        (("a", "a", "a"), (1, 2), ("a",)),
    ):
        records = [nccl(0, 6), computes, computes]
        ranks = [rank_of(number, nodes[number], flight_of(data)) for number, data in enumerate(records)]
        found = analyse(ranks, world_size=3)
        assert found is not None and (found.culprits, found.nodes) == (named, among), nodes
        diagnosis = decide(of_hang(found))
        assert diagnosis is not None and diagnosis.origin == (among if named else ()), nodes
    two = analyse([rank_of(n, f"node{n}", flight_of(nccl(n, 6 if n else 5, over=0 if n else 5))) for n in range(3)])
    assert two is not None and two.culprits == (0,), "two nodes wait for it"
    stopped = Rank(rank=1, node="b", state="T")
    alone = analyse([rank_of(0, "a", flight_of(nccl(0, 6))), stopped])
    assert alone is not None and alone.culprits == (1,), "the node itself reports that the process does not run"


def test_a_node_s_word_makes_no_rank_a_member_of_the_others_group() -> None:
    """C and D wait in a group of their own, for A: what A says of that group has them wait for B too."""

    def rank(number: int, group: str, entered: int, over: int, members: tuple[int, ...]) -> Rank:
        every = [Collective(group=group, sequence=at, operation="all_reduce", over=at <= over) for at in (5, entered)]
        last, groups = {group: entered}, {group: members}
        return Rank(
            rank=number, node=f"node{number}", answered=True, collectives=tuple(every), last=last, groups=groups
        )

    honest = [rank(2, "of three", 6, 5, (0, 2, 3)), rank(3, "of three", 6, 5, (0, 2, 3)), rank(1, "0", 5, 5, ())]
    for entered, culprits in ((6, ()), (5, (0,))):
        found = analyse([rank(0, "of three", entered, 5, (0, 1, 2, 3)), *honest])
        assert found is not None and found.culprits == culprits, entered


def test_who_left_no_record_is_not_said_to_be_the_one_unless_its_process_does_not_run() -> None:
    silent = of_nccl(nccl(0, 5), nccl(1, 5), b"", nccl(3, 5))
    assert (silent.why, silent.culprits, silent.missing) == ("no answer", (), (2,))
    ranks = [rank_of(number, f"node{number}", flight_of(nccl(number, 5))) for number in (0, 1, 3)]
    stopped = analyse([*ranks, Rank(rank=2, node="node2", state="T")], world_size=4)
    assert stopped is not None and (stopped.culprits, stopped.nodes) == ((2,), ("node2",))
    many = analyse(ranks, world_size=16)
    assert many is not None and "ranks 2, 4, 5, 6, 7, 8, 9, 10 and 5 more" in many.text


def test_a_record_of_a_rank_that_the_node_was_not_given_is_refused_and_told() -> None:
    """node1 says what it likes of node2's rank."""
    flight = json.dumps({"rank": 2, "flight": {}}).encode()
    process = json.dumps({"pid": 7, "inner_pid": 7, "rank": 2, "state": "T"}).encode()
    files = {"flight-7.json": flight, "failed-8.json": flight, "nccl_2": nccl(2, 5), "stacks-7-2.txt": b"Thread "}
    problems: list[str] = []
    assert ranks_of("node1", files | {"process-7.json": process}, problems, range(1, 2)) == []
    assert len(problems) == 5 and all("rank 2, and the node has rank 1" in problem for problem in problems)
    assert [rank.rank for rank in ranks_of("node2", files, problems, range(2, 3))] == [2] and len(problems) == 5


def gloo(entered: int, size: int) -> dict[str, Any]:
    """A record of gloo, which never says that an entry is completed."""
    entries = [
        {"process_group": ["0", ""], "collective_seq_id": number, "profiling_name": "gloo:all_reduce",
         "input_sizes": [[size if number == entered else 1024]], "retired": number < entered}
        for number in range(1, entered + 1)
    ]  # fmt: skip
    return {"entries": entries}


def of_gloo(rank: int, entered: int, size: int) -> Rank:
    return rank_of(rank, f"node{rank}", flight_of(json.dumps(gloo(entered, size)).encode()))


def test_of_ranks_that_gloo_ended_for_their_sizes_the_odd_one_is_named() -> None:
    """It ends whoever gets more than it asked for: the odd one that asked for less, or the neighbour of one with
    more."""
    given = {f"node{rank}": range(rank, rank + 1) for rank in range(4)}
    alike = [of_gloo(rank, 5, 1024) for rank in (0, 1, 3)]

    def differing(ranks: list[Rank], *nodes: str) -> tuple[str, tuple[str, ...]] | None:
        found = analyse(ranks, {}, 4, given, nodes)
        return (found.why, found.nodes) if found else None

    assert differing(alike, "node2") == ("other sizes", ("node2",))
    over = tuple(each.model_copy(update={"over": True}) for each in alike[2].collectives)
    through = alike[2].model_copy(update={"collectives": over})
    assert differing([*alike[:2], through], "node2") == ("other sizes", ("node2",)), "it only says that it is through"
    more = [of_gloo(0, 5, 1024), of_gloo(2, 5, 2048), of_gloo(3, 5, 1024)]
    assert differing(more, "node1") == ("other sizes", ("node2",)), "and not the neighbour that was ended"
    assert differing(alike, "node1", "node2") is None, "two were ended"
    assert differing(alike[:2], "node2") is None, "one left nothing: it may have been the one"
    assert differing([*alike[:2], of_gloo(3, 6, 1024)], "node2") is None, "one is elsewhere"
    assert analyse(alike[:1], {}, 2, {"node0": range(1), "node2": range(1, 2)}, ["node2"]) is None, "one against one"


def test_the_plan_of_a_job_says_whose_rank_left_nothing_when_gloo_ended_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def whole(folder: Path, kept: KeptLog, limit: int) -> bytes:
        return json.dumps({"rank": int(kept.path), "flight": gloo(5, 1024)}).encode()

    monkeypatch.setattr("shakedown.runs.copies.whole", whole)
    job = JobRecord(plan=launch_plan({f"node{rank}": ["true"] for rank in range(4)}))
    kept = {
        f"node{rank}": [KeptLog(name="hang/flight-7.json", path=str(rank), size=9, kept=9, sha256="")]
        for rank in (0, 1, 3)
    }
    at = datetime(2026, 11, 28, tzinfo=UTC)
    ended = Failure(node="node2", kind="collective_mismatch", text="op.preamble.length <= op.nbytes", at=at)
    found = list(signs_of(job, Evidence(failures=[ended], logs=kept), RunDirectory(tmp_path)))
    (hang,) = (sign for sign in found if sign.name == "hang")
    assert hang.node == "node2" and "rank 2 (node2) got more data there than requested" in hang.text


# The form of RCCL 2.28.3 (ROCm 7.2), as NVIDIA's pages and ROCm/cvs' samples have it.
RAS = """\
RCCL version 2.28.3 compiled with ROCm "7.2.0"

Job summary
===========

  Nodes  Processes         GPUs  Processes     GPUs
(total)   per node  per process    (total)  (total)
      3          8            1         24       24

Errors
======

INCOMPLETE
  Missing communicator data from 1 job process
  Process 3467978 on node 10.0.0.{node} managing GPU 6

#0-0 (3b2fe521bf43bc04) INCOMPLETE
  Missing communicator data from 1 rank
  Rank {rank} -- GPU 6 managed by process 3467978 on node 10.0.0.{node}

Warnings
========

#0-0 (3b2fe521bf43bc04) MISMATCH
  6 ranks have launched up to operation 6649
  Rank 0 -- GPU 0 managed by process 483072 on node 10.0.0.1
"""


def test_whom_ras_does_not_hear_is_named_where_two_others_or_the_node_itself_say_so() -> None:
    addresses = {f"10.0.0.{number}": f"node{number}" for number in (1, 2, 3)}
    given = {f"node{number}": range(8 * number - 8, 8 * number) for number in (1, 2, 3)}
    of = {number: RAS.format(node=number, rank=8 * number - 2) for number in (1, 2, 3)}

    def said(answers: dict[str, str]) -> tuple[tuple[str, ...], tuple[int, ...]] | None:
        found = records.of_answers(answers, addresses, given)
        return (found.nodes, found.culprits) if found else None

    assert said({"node1": of[2], "node3": of[2], "node2": "no answer: Connection refused"}) == (("node2",), (14,))
    assert said({"node2": of[2]}) == (("node2",), (14,)), "its own word of itself"
    assert said({"node1": of[2]}) == (("node1", "node2"), ()), "one node's word of another"
    assert said({"node1": of[2], "node2": of[1]}) == (("node1", "node2"), ())
    assert said({"node1": RAS.format(node=9, rank=14), "node3": RAS.format(node=9, rank=14)}) == ((), ())
    assert said({"node1": of[2].partition("Errors")[0], "node2": "read socket: Connection reset by peer"}) is None
    lies = RAS.format(node=2, rank=1)  # a rank that is not that node's
    assert said({"node1": lies, "node3": lies}) == (("node2",), ())


def test_ras_decides_where_records_name_nobody_and_is_told_otherwise() -> None:
    heard = records.of_answers({"node2": RAS.format(node=2, rank=14)}, {"10.0.0.2": "node2"})
    assert heard is not None
    silent = of_nccl(nccl(0, 5), nccl(1, 5), b"", nccl(3, 5))
    both = records.together(silent, heard)
    assert both is not None and both.nodes == ("node2",) and silent.text in both.facts
    behind = of_nccl(nccl(0, 5), nccl(1, 4, over=4), nccl(2, 5), nccl(3, 5))
    kept = records.together(behind, heard)
    assert kept is not None and kept.nodes == ("node1",) and heard.text in kept.facts
    assert records.together(None, heard) is heard and records.together(silent, None) is silent


def test_what_an_earlier_look_has_written_is_of_no_later_standstill(tmp_path: Path) -> None:
    hang = tmp_path / "hang"
    hang.mkdir()
    for name in ("flight-1.json", "process-1.json", "failed-1.json", "nccl_1", "stacks-1-0.txt"):
        (hang / name).write_text("{}")
    (hang / "flight-2.json").symlink_to(tmp_path / "kept")
    (tmp_path / "kept").write_text("x")
    standstill._forget(folder.below(str(tmp_path), "hang"))
    assert {path.name: path.read_text() for path in hang.iterdir()} == {
        "failed-1.json": "{}", "nccl_1": "{}", "stacks-1-0.txt": ""
    }  # fmt: skip
    assert (tmp_path / "kept").read_text() == "x"


def test_all_came_and_two_nodes_do_not_hear_each_other() -> None:
    addresses = {f"10.0.0.{number}": f"node{number}" for number in range(4)}
    ranks = [rank_of(number, f"node{number}", flight_of(nccl(number, 5))) for number in range(4)]

    def cut(*pairs: tuple[int, int]) -> Hang:
        peers = {a: tuple(f"10.0.0.{there}" for here, there in pairs if here == a) for a in range(4)}
        found = analyse([rank.model_copy(update={"unacknowledged": peers[rank.rank]}) for rank in ranks], addresses)
        assert found is not None
        return found

    assert (cut((1, 2), (2, 1)).why, cut((1, 2)).nodes) == ("link", ("node1", "node2"))
    assert cut((1, 2), (2, 1)).culprits == ()
    assert cut((1, 2)).text.startswith("all ranks are in all_reduce number ")
    assert cut((1, 2), (0, 2), (3, 2)).nodes == ("node2",)
    assert cut((0, 1), (2, 3)).nodes == ("node0", "node1", "node2", "node3"), "no end is in both"
    assert {sign.remedy for sign in of_hang(cut((1, 2)))} == {signs.data()["hang"]["link"]["remedy"]}
    both = decide(of_hang(cut((1, 2))), nodes=list(addresses.values()))
    assert both is not None and (both.confidence, both.among) == ("undecided", ("node1", "node2"))
    assert cut().why == "all entered" and cut().nodes == ()


@pytest.mark.parametrize(
    "data",
    [
        pickle.dumps(os.system, protocol=2),
        pickle.dumps({"entries": [print]}, protocol=2),
        b"\x80\x02}q\x00(X\x07\x00\x00\x00entries",
        b"{" * 100_000,
        b'{"entries": 7}',
        b'{"entries": [{"process_group": [], "collective_seq_id": 1}]}',
        b"",
        b"\x80\x02}" + b")" + b"\x85" * 300_000 + b"K\x01s.",  # a key whose digest needs a stack as deep
        b"\x80\x02]q\x000" + b"".join(b"]q%c(h%ch%ce0" % (n + 1, n, n) for n in range(40)) + b"}(X\x01\0\0\0ah(u.",
        b"\x80\x02]q\x00h\x00a.",  # a list that holds itself
        b"\x80\x02}r\xff\xff\xff\x3f0.",  # an index for which the C implementation reserves 16 GiB
    ],
    ids=range(11),  # the longest has a megabyte as its name else
)
def test_a_record_that_is_none_is_refused_and_nothing_of_it_is_called(data: bytes) -> None:
    with pytest.raises(ValueError):
        flight_of(data)
    problems: list[str] = []
    assert ranks_of("node1", {"nccl_0": data, "flight-1.json": data, "process-1.json": data}, problems) == []
    assert len(problems) == 3 and all(problem.startswith("node1: hang/") for problem in problems)


def test_when_a_standstill_is_worth_a_look() -> None:
    plan: Any = launch_plan({"a": ["true"]}, stall_timeout_s=300, start_timeout_s=600)
    times = StepTimes(plan)
    assert not times.is_long(580) and times.is_long(580.1), "before the first iteration: shortly before the limit"
    for when in (100.0, 107.0, 114.0, 121.0):
        times.iteration(when)
    assert not times.is_long(70) and times.is_long(70.1), "ten mean steps"
    quick = StepTimes(launch_plan({"a": ["true"]}, stall_timeout_s=300))
    for when in (1.0, 1.1, 1.2, 1.3):
        quick.iteration(when)
    assert not quick.is_long(30) and quick.is_long(30.1), "and no less than half a minute"
    short = StepTimes(launch_plan({"a": ["true"]}, stall_timeout_s=4))
    short.iteration(1.0)
    assert short.is_long(2.1), "and before the job's own limit"


def test_a_collective_names_the_shape_of_each_input() -> None:
    one = Collective(group="tp", sequence=7, operation="all_reduce", sizes=((4096, 2), ()), over=False)
    assert str(one) == "all_reduce number 7 (inputs: 4096x2 and one number) in process group tp"
    assert str(one.model_copy(update={"sizes": ()})) == "all_reduce number 7 in process group tp"
