"""The commands over what earlier runs have left: ledger, history, compare; and what the end of a run does."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import sys
import tarfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import pytest
from click.testing import CliRunner, Result

from shakedown.cli import main
from shakedown.ledger import claims as book
from shakedown.ledger import compare
from shakedown.ledger.compare import Group
from shakedown.ledger.compared import key_of
from shakedown.ledger.store import Ledger, open_ledger
from shakedown.runs.directory import JobRecord, RunDirectory, RunNode
from shakedown.runs.folder import run_ids
from shakedown.state.findings import Finding, Verdict
from tests import forks
from tests.states import DELETED, with_
from tests.unit.test_ledger import PLAN, SERIAL, STATES, a_run


@pytest.fixture(autouse=True)
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the runs, with the ledger in it."""
    monkeypatch.setenv("SHAKEDOWN_RUNS", str(tmp_path / "runs"))
    monkeypatch.delenv("SHAKEDOWN_LEDGER", raising=False)
    monkeypatch.setenv("COLUMNS", "300")
    return tmp_path / "runs"


def shakedown(*words: str, code: int = 0) -> Result:
    done = CliRunner().invoke(main, list(words))
    assert done.exit_code == code, done.output
    return done


def test_what_is_added_is_shown_and_exported(runs: Path) -> None:
    for number in (1, 2):
        a_run(runs, number, value=400.0 + number)
    assert "2 runs kept" in shakedown("ledger", "add", "--all").stderr
    assert "1 run kept" in shakedown("ledger", "add", "20261101T02").stderr
    newest, older = shakedown("history").stdout.splitlines()[1:]
    assert "20261101T020000-000002" in newest and "402" in newest and "401" in older
    found = json.loads(shakedown("history", "--part", SERIAL, "--format", "json").stdout)
    assert (found["stays"][0]["node"], found["stays"][0]["runs"], len(found["runs"])) == ("node01", 2, 2)
    assert shakedown("history", "--recipe", "none such").stdout == "no such run in the ledger\n"
    near = shakedown("history", "--recipe", "llama3-8b").stderr
    assert near == "shakedown: did you mean --recipe llama3-8b-fp8?\n"
    first, second = (json.loads(line) for line in shakedown("ledger", "export").stdout.splitlines())
    assert [run["run_id"][-1] for run in (first, second)] == ["1", "2"]
    assert first["jobs"][0]["figures"][0]["value"] == 401.0
    assert {part["kind"] for part in first["nodes_of_run"][1]["parts"]} == {"gpu", "nic", "board"}


def test_what_cannot_be_added_is_named_and_the_rest_is_kept(runs: Path, tmp_path: Path) -> None:
    a_run(runs, 1)
    a_run(runs, 2).write("run.json", "{")
    done = shakedown("ledger", "add", "20261101T01", "20261101T02", "nothing", code=2)
    assert "1 run kept" in done.stderr and "000002/run.json" in done.stderr and "nothing: no such file" in done.stderr
    assert len(shakedown("history").stdout.splitlines()) == 2
    assert "RUNS, or --all" in shakedown("ledger", "add", code=2).stderr
    assert "neither 2026-11-22" in shakedown("history", "--since", "yesterday", code=2).stderr


def test_there_is_no_history_before_the_first_run() -> None:
    assert "there is none yet" in shakedown("history", code=2).stderr
    assert "there is none yet" in shakedown("ledger", "export", code=2).stderr


def test_a_run_that_is_judged_again_is_kept_as_it_is_judged_now(runs: Path) -> None:
    run = a_run(runs, 1)
    assert not (runs / "ledger.sqlite").exists()
    done = shakedown("judge", run.path.name, "--ledger", code=4)  # its logs are gone
    (row,) = json.loads(shakedown("history", "--format", "json").stdout)["runs"]
    assert (row["verdict"], row["jobs"][0]["verdict"]) == ("unknown", "unknown"), done.output
    assert run.load().verdict == Verdict.OK, "the run directory is as it was"


def test_two_runs_differ_first_in_what_matters(runs: Path) -> None:
    first = a_run(runs, 1)
    bad = with_(STATES["node02"], {"gpus.2.link.width": 8, "rocm_version": "6.4.2", "gpus.7": DELETED})
    hot = with_(STATES["node01"], {"gpus.2.temperature_c": 80.0, "rocm_version": "6.4.2"})
    second = a_run(
        runs, 2, states={"node01": hot, "node02": bad}, value=385.0, verdict=Verdict.FAIL, inventory="other.py"
    )
    found = json.loads(shakedown("compare", first.path.name, "latest", "--format", "json").stdout)
    groups = [difference["group"] for difference in found["differences"]]
    assert groups == sorted(groups, key=get_args(Group).index)
    said = {(each["group"], each["what"]): each for each in found["differences"]}
    assert said["verdict", "run"]["second"] == "fail"
    assert said["figures", "throughput_per_gpu"]["change"] == "-3.75%, worse"
    assert said["versions", "ROCm"]["second"] == "6.4.2"
    assert said["state", "rocm_version"]["nodes"] == ["node01", "node02"]
    assert said["state", "gpus.0000:03:00.0.link.width"]["nodes"] == ["node02"]
    assert [each for each in said if "0000:08:00.0" in each[1]] == [("state", "gpus.0000:08:00.0")]
    assert said["state", "gpus.0000:08:00.0"]["second"] == "-"
    assert said["rest", "inventory"]["first"] == "rack.py"
    assert not [what for _, what in said if "temperature" in what], "a reading of the moment"
    table = shakedown("compare", first.path.name, second.path.name).stdout
    assert table.index("verdicts") < table.index("-3.75%, worse") < table.index("ROCm") < table.index("other.py")
    assert "nothing differs" in shakedown("compare", "latest", "latest").stdout


def test_runs_of_other_jobs_and_of_lost_states_are_compared_as_far_as_they_go(runs: Path) -> None:
    first = a_run(runs, 1)
    second = a_run(
        runs, 2, states={"node01": STATES["node01"]}, nodes=[RunNode(name="x", verdict="ok", part="trained")]
    )
    first.write("states/node01.json", "{")
    found = json.loads(shakedown("compare", first.path.name, second.path.name, "--format", "json").stdout)
    assert "states/node01.json" in found["notes"][0]
    assert "not of equals" in found["notes"][-1] and "nodes" in found["notes"][-1]
    assert [each["nodes"] for each in found["differences"] if each["what"] == "node"] == [["node01", "node02"], ["x"]]
    assert "no such run" in shakedown("compare", first.path.name, "nothing", code=2).stderr


def test_a_job_that_only_one_run_has_planned_is_compared_with_what_the_other_says(runs: Path) -> None:
    first = a_run(runs, 1)
    for number, (jobs, said) in enumerate((([], "none"), ([JobRecord(error="no port is free")], "no port is free")), 2):
        second = a_run(runs, number, jobs=jobs)
        for names in ((first, second), (second, first)):
            command = ["compare", *(run.path.name for run in names), "--format", "json"]
            found = json.loads(shakedown(*command).stdout)["differences"]
            shown = {each["what"]: {each["first"], each["second"]} for each in found if each["group"] == "plan"}
            assert shown["job"] == {"planned", said} and shown["iterations"] == {"-", str(PLAN.iterations)}, shown


def test_a_drift_check_is_kept_where_asked_and_a_broken_ledger_changes_no_verdict(runs: Path) -> None:
    command = [str(Path(sys.executable).with_name("shakedown")), "drift", "@local", "--data", "gpu=cpu", "--ledger"]
    told = []
    for place in (runs / "ledger.sqlite", "/proc/nowhere/ledger"):
        environment = {**os.environ, "SHAKEDOWN_LEDGER": str(place)}
        code, _out, err = forks.run(command, Path.cwd(), environment)
        told.append((code, "not in the ledger: ledger /proc/nowhere/ledger: No such file" in err))
        assert f"evidence: {runs}/2" in err, err
    assert [lacking for _, lacking in told] == [False, True]
    (row,) = json.loads(shakedown("history", "--format", "json").stdout)["runs"]
    assert (row["kind"], row["node"], row["nodes"], row["jobs"]) == ("drift", None, 1, [])
    kept = {bool(record.not_in_ledger): record for record in (RunDirectory(runs / name).load() for name in run_ids())}
    assert [kept[lacking].verdict.exit_code for _, lacking in told] == [code for code, _ in told]
    assert not (runs / "latest").exists(), "which is the newest run"
    shakedown("judge", row["run_id"], code=2)


HOSTILE: dict[str, object] = {
    "runs SET started": 10**18,
    "runs SET finished": -(10**18),
    "runs SET not_ok": "many",
    "runs SET verdict": "\x1b[31mok",
    "jobs SET recipe": b"\xff\xfe",
    "nodes SET why": "\x1b[31m\u202eall is well",
    "ledger_version SET version": "",
}


@pytest.mark.parametrize("column", HOSTILE)
def test_a_ledger_from_elsewhere_is_refused_in_words_and_writes_nothing_on_a_terminal(runs: Path, column: str) -> None:
    a_run(runs, 1)
    shakedown("ledger", "add", "--all")
    with sqlite3.connect(runs / "ledger.sqlite") as connection:
        connection.execute("PRAGMA ignore_check_constraints = 1")
        connection.execute(f"UPDATE {column} = ?", (HOSTILE[column],))
    connection.close()
    for words in (["history", "--node", "node01"], ["ledger", "export"]):
        done = CliRunner().invoke(main, words)
        assert done.exit_code in (0, 2) and isinstance(done.exception, SystemExit | None), done.exception
        assert "\x1b" not in done.output and "\u202e" not in done.output


def sent(tmp_path: Path, **more: Any) -> tuple[Path, RunDirectory]:
    """Return an archive in which somebody speaks of this site's nodes, and the run in it."""
    bad = Finding(name="gpu_count", node="node01", verdict=Verdict.FAIL, wanted=8, actual=7)
    run = a_run(tmp_path / "theirs", 5, findings=[bad], **more)
    archive = tmp_path / "theirs.shakedown.tar.gz"
    shakedown("bundle", str(run.path), "--output", str(archive))
    return archive, run


def statements(ledger: Ledger, own: RunDirectory) -> tuple[int, int, int, str]:
    """Return what a ledger holds about this site: incidents, passed loads, passed jobs, the newest run of node01."""
    record = own.load()
    states = {node.name: own.load_state(node.name) for node in record.nodes}
    key = key_of(record.jobs[0], states)
    assert key is not None
    known = book.known_of(ledger, STATES, 1_793_500_000).values()
    counts = (
        sum(len(node.incidents) for node in known),
        sum(len(node.passed_loads) for node in known),
    )
    return *counts, len(ledger.earlier(key)), book.newest_run(ledger, "node01", 0)


@pytest.mark.parametrize("way", ["judge archive", "add archive", "add folder", "add unpacked"])
def test_what_others_send_changes_nothing_of_this_site(runs: Path, tmp_path: Path, way: str) -> None:
    own = a_run(runs, 1)
    shakedown("ledger", "add", "--all")
    before = statements(open_ledger(), own)
    assert before == (0, 2, 1, own.path.name)
    archive, theirs = sent(tmp_path)
    if way == "add unpacked":  # by hand, among one's own runs
        with tarfile.open(archive) as packed:
            packed.extractall(runs)
    word, what = way.split()
    command = ["judge", str(archive), "--ledger"] if word == "judge" else ["ledger", "add"]
    given = {"archive": str(archive), "folder": str(theirs.path), "unpacked": theirs.path.name}[what]
    done = CliRunner().invoke(main, command if word == "judge" else [*command, given])
    assert "it changes no node's service and no baseline" in " ".join(done.stderr.split()), done.output
    assert statements(open_ledger(), own) == before
    rows = json.loads(shakedown("history", "--format", "json").stdout)["runs"]
    (kept,) = (row for row in rows if row["run_id"].endswith(theirs.path.name))
    assert kept["run_id"].startswith(("archive:", "folder:")) and kept["kept_at"].startswith(("archive:", "folder:"))
    of_node = json.loads(shakedown("history", "--node", "node01", "--format", "json").stdout)["runs"]
    assert [row["run_id"] for row in of_node] == [own.path.name]
    again = CliRunner().invoke(main, ["ledger", "add", "--all"])
    assert again.exit_code == 0 and statements(open_ledger(), own) == before


def test_a_run_of_others_does_not_take_the_place_of_one_s_own(runs: Path, tmp_path: Path) -> None:
    own = a_run(runs, 5)
    shakedown("ledger", "add", "--all")
    before = statements(open_ledger(), own)
    archive, _ = sent(tmp_path)
    shakedown("ledger", "add", str(archive))
    assert statements(open_ledger(), own) == before
    assert "is in the ledger already: not imported" in shakedown("ledger", "import", str(archive), code=2).stderr
    other = runs / "20261101T990000-000009"
    shutil.copytree(tmp_path / "theirs" / own.path.name, other)  # its run.json has the id of another run
    shakedown("ledger", "add", "--all")
    assert statements(open_ledger(), own) == before


def test_what_is_imported_by_name_counts(runs: Path, tmp_path: Path) -> None:
    own = a_run(runs, 1)
    shakedown("ledger", "add", "--all")
    archive, theirs = sent(tmp_path)
    shakedown("ledger", "import", str(archive))
    assert statements(open_ledger(), own) == (1, 3, 2, theirs.path.name)
    assert shakedown("history", "--node", "node01").stdout.count(theirs.path.name) == 1


def test_gates_that_are_not_ok_in_one_of_two_runs_come_first() -> None:
    def of_run(**gates: str) -> Any:
        found = [SimpleNamespace(name=name, node="", job="", verdict=verdict) for name, verdict in gates.items()]
        return SimpleNamespace(record=SimpleNamespace(verdict="ok", gates=found, nodes=[], findings=[]))

    first = of_run(a="ok", b="ok", c="fail", d="unknown", same="ok")
    second = of_run(aa="ok", b="fail", c="ok", d="fail", same="ok")
    found = [(each.what, each.first, each.second) for each in compare._verdicts(first, second)]
    assert found == [
        ("gate b", "ok", "fail"), ("gate c", "fail", "ok"), ("gate d", "unknown", "fail"),
        ("gate a", "ok", "-"), ("gate aa", "-", "ok"),
    ]  # fmt: skip
