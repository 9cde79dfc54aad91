"""What the ledger keeps of nodes' service, and what the command does with it before it acts."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import click
import pytest
from sqlalchemy import text

from shakedown.cli import main
from shakedown.ledger import claims as book
from shakedown.ledger.history import export
from shakedown.ledger.store import Ledger, LedgerError, open_ledger
from shakedown.report.formats import InService, text_of
from shakedown.runner.pyinfra.invocation import invocation
from shakedown.runner.repair.child import Busy, Commands, alone, shown
from shakedown.runner.repair.scheduler import after
from shakedown.service.marks import Board
from shakedown.service.marks import shown as of_node
from shakedown.service.model import Step, history
from shakedown.state.findings import Finding, Verdict
from tests import forks
from tests.reports import HOSTILE
from tests.unit.test_service import a_record, accused, known, step


def keep(ledger: Ledger, folder: Path, **more: object) -> None:
    from shakedown.runs.directory import RunDirectory

    record = a_record(**more)
    directory = RunDirectory.create(record.run_id, folder)
    directory.save(record, {})
    ledger.add(directory)


def test_what_a_run_says_comes_back_in_order_and_is_exported(tmp_path: Path) -> None:
    ledger = open_ledger(tmp_path / "ledger.sqlite")
    assert book.known_of(ledger, ["node1"])["node1"].incidents == (), "there is none yet"
    bad = Finding(name="gpu_count", node="node2", verdict=Verdict.FAIL, wanted=8, actual=HOSTILE)
    keep(ledger, tmp_path / "runs", findings=[bad])
    later = {"run_id": "20261123T090000-bbbbbb", "started_at": "2026-11-23T09:00:00+00:00"}
    keep(ledger, tmp_path / "runs", **later)
    now = 1_795_430_000  # 2026-11-23
    found = book.known_of(ledger, ["node1", "node2", "node9"], now)
    (said,) = found["node2"].incidents
    assert (said.name, said.drains, said.run_id, said.at) == ("gpu_count", True, "20261123T080000-aaaaaa", 1795420800)
    assert said.what.isprintable()
    assert [proof.run_id for proof in found["node2"].passed_loads] == [later["run_id"]]
    assert len(found["node1"].passed_loads) == 2 and found["node9"].passed_loads == ()
    taken = [step(now + 1, "begun", "mend", node="node2"), step(now + 2, "ended", "mend", node="node2", outcome="done")]
    for each in taken:
        book.write(ledger, each)
    assert book.known_of(ledger, ["node2"], now)["node2"].steps == tuple(taken)
    assert book.under_way(ledger, now) == {"node2"}, "it has not been under load since"
    assert book.under_way(ledger, now + 3) == set(), "long ago"
    book.write(ledger, step(now + 3, "ended", "load", node="node2", outcome="done"))
    assert book.under_way(ledger, now) == set()
    book.write(ledger, step(now + 4, "begun", "mend", node="node2"))
    book.write(ledger, step(now + 5, "handed over", node="node2"))
    assert book.under_way(ledger, now) == set(), "a person has it"
    assert book.newest_run(ledger, "node2", 1795420801) == later["run_id"]
    assert book.newest_run(ledger, "node2", now + 1) == ""
    rows = [json.loads(line) for line in export(ledger)]
    assert [len(row["accusations"]) for row in rows] == [1, 0] and [len(row["proofs"]) for row in rows] == [2, 3]
    with ledger.writing() as connection:
        connection.execute(text("UPDATE accusations SET source = 'nobody'"))
    with pytest.raises(LedgerError, match="no ledger has"):
        book.known_of(ledger, ["node2"], now)


def test_a_table_takes_names_as_they_are_and_shows_no_control(tmp_path: Path) -> None:
    its = known(accused(node=HOSTILE, what=HOSTILE), step(200, "handed over", node=HOSTILE, why=HOSTILE))
    board = Board([of_node("node1", its, history(its), parts=["2026-11-01 gpu 0: 1 (was 2)"])], ["Slurm is away"])
    for form in ("table", "json"):
        said = text_of(InService(board, show_all=True), form)
        assert "\x1b" not in said and "out" in said and "Slurm is away" in said


def test_nodes_that_are_alike_are_one_row() -> None:
    out = {f"node{n:02d}": known(accused(), step(200, "handed over")) for n in range(1, 65)}
    board = Board([of_node(name, its, history(its)) for name, its in out.items()])
    lines = text_of(InService(board), "table").splitlines()
    assert lines[0] == "node[01-64]" and lines[1].startswith("    out since ") and len(lines) <= 6
    shown_all = text_of(InService(board, show_all=True), "table").splitlines()
    assert {*out} <= {*shown_all}


def test_what_service_shows_fits_100_columns() -> None:
    """In pipes and mail too, with names that are long and say little to a range."""
    names = [f"gpu-{chr(97 + n) * 9}.rack7.site.example" for n in range(26)]
    accused_of = accused(what="gemm: gpu5 bf16: 12 % below its peers " * 6)
    its = known(accused_of, step(200, "handed over", why="reboot was tried and did not help " * 6))
    board = Board([of_node(name, its, history(its)) for name in names])
    for show_all in (False, True):
        lines = text_of(InService(board, show_all=show_all), "table").splitlines()
        assert max(len(line) for line in lines if line.strip() not in names) <= 100


def test_commands_are_what_a_person_would_type(tmp_path: Path) -> None:
    commands = Commands("rack.py", ('smoke={"iterations": 9}', "gpu=cpu"), parallel=4)
    assert shown(commands.mend(["node1", "node2"])).startswith(
        "shakedown run rack.py --no-smoke --limit node1 --limit node2"
    )
    load = commands.deploy("load", ["node1"], smoke={"exclude": None})
    assert json.loads(next(word for word in load if word.startswith("smoke=")).partition("=")[2]) == {
        "iterations": 9, "exclude": None
    }  # fmt: skip
    assert load[-2:] == ["--parallel", "4"]
    secret = Commands("rack.py", ('smoke={"environment": {"HF_TOKEN": "hf_abcdefgh"}}',)).check(["node1"])
    assert "hf_abcdefgh" in secret[-1] and "hf_abcdefgh" not in shown(secret)


def test_mend_is_still_another_name_of_repair() -> None:
    command = main.get_command(click.Context(main), "service")
    assert command is not None
    for option in ("--repair", "--mend"):
        parsed = command.make_context("service", ["rack.py,", option], resilient_parsing=True).params
        assert parsed["repair"] or parsed["mend"]
    assert "--mend" not in command.get_help(click.Context(command))


def test_what_is_yet_to_come_stops_everything() -> None:
    with pytest.raises(LedgerError, match="yet to come"):
        after(known(accused(at=int(time.time()) + 3600)))
    assert after(known(accused(at=int(time.time()) + 5))) >= int(time.time()) + 5


def test_a_signal_reaches_the_command_that_runs_and_is_known_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(invocation, "interrupted", False)
    commands, up = Commands("rack.py"), tmp_path / "up"
    waits = (
        "import signal, sys, time; signal.signal(15, lambda *_: sys.exit(7)); "
        "open(sys.argv[1], 'w').close(); time.sleep(60)"
    )

    def end() -> None:
        until = time.monotonic() + 60
        while not up.exists() and time.monotonic() < until:
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGTERM)

    with commands.handing_on():
        threading.Thread(target=end).start()
        assert commands.run([sys.executable, "-c", waits, str(up)]) == 7
    assert commands.interrupted
    assert commands.run([sys.executable, "-c", waits, "/nonexistent/up"]) == 130, "nothing is begun after it"
    assert Commands("rack.py").run(["/nonexistent"]) == 127


def test_only_one_is_at_work_also_when_it_has_left_a_command_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHAKEDOWN_RUNS", str(tmp_path / "runs"))
    with alone() as (lock, _path):
        with pytest.raises(Busy, match="is held"), alone():
            pass
        left = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, pass_fds=[lock])
    try:
        with pytest.raises(Busy), alone():
            pass
    finally:
        left.communicate(b"\n")
    with alone():
        pass


def test_a_step_is_bounded_whatever_was_said() -> None:
    assert len(Step(node="node1", at=1, done="ended", why="x" * 9000).why) <= 500


def test_a_ledger_that_cannot_be_read_is_told_in_words_and_no_node_is_in_service(tmp_path: Path) -> None:
    site, book_of_sorts = tmp_path / "site.py", tmp_path / "ledger"
    site.write_text("r = (['@local'], {'gpu': 'cpu'})\n")
    book_of_sorts.write_text("no database\n")
    places = {"SHAKEDOWN_LEDGER": str(book_of_sorts), "SHAKEDOWN_RUNS": str(tmp_path / "runs")}
    done = forks.called("shakedown", "service", site, cwd=tmp_path, **places)
    assert done.returncode == 4, done.stderr
    assert f"shakedown: ledger {book_of_sorts}: " in " ".join(done.stderr.split()) and "Traceback" not in done.stderr
    assert "in service" not in done.stdout
