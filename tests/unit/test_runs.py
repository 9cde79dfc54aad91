"""The run directory: whole or not at all, and judged again offline to the same verdict."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from shakedown.cli import main
from shakedown.desired.models import TOGETHER
from shakedown.gates import Gate
from shakedown.isolation.tree import to_resume
from shakedown.logs.kept_logs import KeptLog, LogFile, LogQuota
from shakedown.runs import copies
from shakedown.runs import directory as runs
from shakedown.runs.directory import (
    Evidence,
    JobRecord,
    RunDirectory,
    RunNode,
    RunRecord,
    desired_digest,
    new_run_id,
    now,
)
from shakedown.runs.folder import earlier_of, find_run, remove_old_checks
from shakedown.runs.judging import judge_job, judge_run, verdict_of
from shakedown.state.findings import Finding, Verdict
from tests.plans import small
from tests.states import desired

LOGS = Path(__file__).parents[1] / "data/logs"
COUNTERS = {"node01": {"ethtool/eth0/rx_errors": 0}}


@pytest.fixture
def directory(tmp_path: Path) -> RunDirectory:
    return RunDirectory.create(new_run_id(), tmp_path)


def keep(directory: RunDirectory, node: str, content: bytes, name: str = "leader.log") -> KeptLog:
    log = LogFile(name, directory.logs / node / name, LogQuota())
    log.write(content)
    log.size = len(content)
    return log.close().model_copy(update={"path": f"logs/{node}/{name}"})


def a_run(directory: RunDirectory, log: str = "rocm.log", **evidence: object) -> tuple[RunRecord, Evidence]:
    kept = keep(directory, "node01", (LOGS / log).read_bytes())
    record = RunRecord(run_id=directory.path.name, started_at=now(), inventory="i.py", desired_digest="0")
    logs = ["logs/node01/leader.log"]
    record.nodes = [RunNode(name="node01", verdict=Verdict.OK, part="trained", logs=logs)]
    record.jobs = [JobRecord(plan=small(iterations=20), logs={"node01": logs})]
    known: dict[str, object] = {"exit_codes": {"node01": 0}, "counters_before": COUNTERS, "counters_after": COUNTERS}
    known["logs"] = {"node01": [kept]}
    return record, Evidence.model_validate(known | evidence)


def verdicts(directory: RunDirectory, record: RunRecord, evidence: Evidence) -> dict[str, str]:
    return {gate.name: gate.verdict.value for gate in judge_run(directory, record, {TOGETHER: evidence})}


def test_of_a_job_that_did_not_start_one_gate_says_why(directory: RunDirectory) -> None:
    record, evidence = a_run(directory, stopped="node01: setup failed: torch is not installed", started=False)
    (gate,) = judge_run(directory, record, {TOGETHER: evidence})
    assert (gate.name, gate.verdict, gate.actual) == ("ran_to_its_end", Verdict.FAIL, "never started")
    assert "torch is not installed" in gate.evidence


def test_latest_is_the_newest(tmp_path: Path) -> None:
    RunDirectory.create("20260101T000000-aaaaaa", tmp_path)
    second = RunDirectory.create("20260101T000001-bbbbbb", tmp_path)
    assert (tmp_path / "latest").resolve() == second.path.resolve()


def test_a_record_comes_back_as_it_was_and_has_the_documented_top_level(directory: RunDirectory) -> None:
    record, evidence = a_run(directory)
    record.findings = [Finding(name="thp", node="node01", verdict=Verdict.DRIFT, wanted="always", actual="never")]
    (job,) = record.jobs
    judged = judge_job(directory, job, evidence)
    record.gates, job.iterations, job.figures = judged.gates, judged.iterations, judged.figures
    directory.save(record, {TOGETHER: evidence})
    assert directory.load() == record
    assert directory.load_evidence() == {TOGETHER: evidence}
    documented = "schema_version run_id started_at finished_at inventory inventory_path desired_digest verdict"
    documented += " nodes findings gates"
    document = json.loads((directory.path / "run.json").read_text())
    later = ["jobs", "diagnosis", "deploy", "kind", "ended_by", "not_in_ledger"]
    later += ["trials", "soak", "isolation", "rolling", "nonce", "simulated"]
    assert list(document) == [*documented.split(), *later, "plan", "iterations", "figures"]
    for part in ("findings", "gates"):
        assert {"name", "verdict", "wanted", "actual", "unit", "evidence", "remedy"} <= set(document[part][0])
    assert len((directory.path / "iterations.jsonl").read_text().splitlines()) == 20


def test_a_good_run_passes_and_each_piece_of_evidence_can_fail_it(directory: RunDirectory) -> None:
    record, evidence = a_run(directory)
    assert set(verdicts(directory, record, evidence).values()) == {"ok"}

    def worse(**changes: object) -> dict[str, str]:
        return verdicts(directory, record, evidence.model_copy(update=changes))

    assert worse(exit_codes={"node01": 1})["exit_codes"] == "fail"
    assert worse(exit_codes={})["exit_codes"] == "unknown"
    risen = {"node01": {"ethtool/eth0/rx_errors": 1}}
    assert worse(counters_after=risen)["counters"] == "fail"
    assert worse(counters_after={})["counters"] == "unknown"
    assert worse(stopped="node01: stalled")["ran_to_its_end"] == "fail"
    assert worse(left={"node01": []})["nothing_left"] == "ok", "seen, and nothing was there"
    assert worse(left={"node01": ["1 process"]})["nothing_left"] != "ok"
    assert "nothing_left" not in worse(left={})


def test_a_log_that_is_gone_or_names_a_nan_does_not_pass(tmp_path: Path) -> None:
    first = RunDirectory.create("20260101T000000-aaaaaa", tmp_path)
    record, evidence = a_run(first, "nan_loss.log")
    assert verdicts(first, record, evidence)["loss_finite"] == "fail"
    (first.path / "logs/node01/leader.log").unlink()
    assert verdicts(first, record, evidence)["iterations_complete"] == "unknown"


def test_a_run_that_never_started_says_one_thing(directory: RunDirectory) -> None:
    record, evidence = a_run(directory, stopped="node01: another run holds this node")
    record.jobs[0].logs = evidence.logs = {}
    assert verdicts(directory, record, evidence) == {"ran_to_its_end": "fail"}
    nothing = evidence.model_copy(update={"left": {"node01": []}})
    assert verdicts(directory, record, nothing) == {"ran_to_its_end": "fail"}


@pytest.mark.parametrize("text", ["", '{"schema_version": 1, "run_id": "x"', "[]", '{"schema_version": 99}'])
def test_a_record_cut_short_or_of_another_schema_is_refused(directory: RunDirectory, text: str) -> None:
    (directory.path / "run.json").write_text(text)
    with pytest.raises(ValueError, match=r"run\.json.*: (take it from an archive|read it with the version that wrote)"):
        directory.load()


def test_half_a_character_in_a_foreign_record_is_one_that_can_be_written(directory: RunDirectory) -> None:
    record, _ = a_run(directory)
    document = record.model_dump(mode="json") | {"inventory": "r\ud800\U0001f600.py"}
    (directory.path / "run.json").write_text(json.dumps(document))
    assert directory.load().inventory == "r?\U0001f600.py"
    directory.save(directory.load())


def test_a_node_that_was_excluded_leaves_the_run_unknown(directory: RunDirectory) -> None:
    record, _ = a_run(directory)
    document = record.model_dump(mode="json") | {"nodes": [{"name": "n", "verdict": "ok", "part": "excluded"}]}
    directory.write("run.json", json.dumps(document))
    found = directory.load()
    assert [node.part for node in found.nodes] == ["excluded"]
    assert verdict_of(found, found.gates) == "unknown"


def test_a_write_that_fails_leaves_the_old_file_whole(directory: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    directory.write("plan.txt", "old")

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space"):
        directory.write("plan.txt", "new")
    assert (directory.path / "plan.txt").read_text() == "old"
    assert [path.name for path in directory.path.glob(".*")] == []


def test_a_run_nobody_finished_is_not_a_pass() -> None:
    record = RunRecord(run_id="x", started_at=now(), inventory="i.py", desired_digest="0")
    assert (record.verdict, record.finished_at) == (Verdict.UNKNOWN, None)


ITERATION_GATES = {"iterations_complete", "loss_finite", "no_skipped_or_nan", "loss_falling"}
ON_LOGS = ITERATION_GATES | {"logs_complete", "no_failure_signature", "ended_well", "rccl_tuning"}


WHERE_LINES_ARE = {"gradient_norm", "possible_throughput", "steady"}  # not asked where no line is there


def gates_of(directory: RunDirectory, record: RunRecord, evidence: Evidence) -> dict[str, Gate]:
    return {gate.name: gate for gate in judge_run(directory, record, {TOGETHER: evidence})}


def test_a_log_of_which_a_part_was_fetched_leaves_its_gates_unknown(directory: RunDirectory) -> None:
    record, evidence = a_run(directory)
    evidence.logs["node01"][0] = evidence.logs["node01"][0].model_copy(update={"incomplete": "15 of 78 bytes"})
    judged = gates_of(directory, record, evidence)
    assert {name for name, gate in judged.items() if gate.verdict == "unknown"} - WHERE_LINES_ARE == ON_LOGS
    assert all("15 of 78 bytes" in judged[name].evidence for name in ON_LOGS)
    assert all(judged[name].remedy for name in ON_LOGS)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda path: path.write_bytes(path.read_bytes()[:-1]), "it has "),
        (lambda path: path.write_bytes(path.read_bytes() + b"\n"), "it has more bytes"),
        (lambda path: path.write_bytes(path.read_bytes().replace(b"lm loss: 1.2", b"lm loss: 1.1")), "SHA-256"),
        (lambda path: path.unlink(), "No such file"),
        (lambda path: (path.unlink(), path.mkdir()), "it is not a file"),
        (lambda path: (path.unlink(), os.mkfifo(path)), "it is not a file"),
        (lambda path: (path.rename(path.with_name("x")), path.symlink_to("x")), "a link"),
        (lambda path: (path.parent.rename(path.parents[1] / "x"), path.parent.symlink_to("x")), "a link"),
    ],
)
def test_a_log_that_changed_in_the_run_directory_is_named_and_unknown(
    directory: RunDirectory, change: Callable[[Path], object], said: str
) -> None:
    record, evidence = a_run(directory)
    change(directory.path / "logs/node01/leader.log")
    judged = gates_of(directory, record, evidence)
    assert {name for name, gate in judged.items() if gate.verdict == "unknown"} - WHERE_LINES_ARE == ON_LOGS
    assert said in judged["logs_complete"].evidence
    assert "logs/node01/leader.log" in judged["logs_complete"].evidence


def test_a_failure_that_is_seen_in_a_part_stays_one(directory: RunDirectory) -> None:
    record, evidence = a_run(directory, "nan_loss.log")
    path = directory.path / "logs/node01/leader.log"
    path.write_bytes(path.read_bytes() + b"HW Exception by GPU node-1: GPU Hang\n")
    evidence.logs["node01"][0] = evidence.logs["node01"][0].model_copy(update={"kept": path.stat().st_size})
    judged = verdicts(directory, record, evidence)
    assert judged["no_failure_signature"] == judged["loss_finite"] == "fail"
    assert judged["iterations_complete"] == judged["logs_complete"] == "unknown"


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/etc/passwd", "not in the run directory"),
        ("../../../etc/passwd", "not in the run directory"),
        ("logs/../../x", "not in the run directory"),
        ("", "not in the run directory"),
        ("logs", "it is not a file"),
        ("logs/node01", "it is not a file"),
        ("x" * 300, "File name too long"),
    ],
)
def test_a_record_leads_nobody_out_of_its_directory(directory: RunDirectory, path: str, said: str) -> None:
    record, evidence = a_run(directory)
    record.jobs[0].logs["node01"][0] = path
    evidence.logs["node01"][0] = evidence.logs["node01"][0].model_copy(update={"path": path})
    judged = gates_of(directory, record, evidence)
    assert judged["logs_complete"].verdict == judged["no_failure_signature"].verdict == "unknown"
    assert said in judged["logs_complete"].evidence


def test_logs_that_only_one_of_the_two_documents_names_are_unknown(directory: RunDirectory) -> None:
    record, evidence = a_run(directory)
    without = evidence.model_copy(update={"logs": {}})
    one_of_two = gates_of(directory, record, without)["logs_complete"]
    record.jobs[0].logs["node01"] = []
    other_of_two = gates_of(directory, record, evidence)["logs_complete"]
    for gate in (one_of_two, other_of_two):
        assert gate.verdict == "unknown" and "do not name the same logs" in gate.evidence
    assert "no log of node01" in gates_of(directory, record, without)["logs_complete"].evidence


def test_a_further_log_that_changed_is_named_and_no_gate_rests_on_it(directory: RunDirectory) -> None:
    record, evidence = a_run(directory)
    evidence.logs["node01"].append(keep(directory, "node01", b"pip\n", "setup.log"))
    record.jobs[0].logs["node01"].append("logs/node01/setup.log")
    assert set(verdicts(directory, record, evidence).values()) == {"ok"}
    (directory.path / "logs/node01/setup.log").write_text("pap\n")
    judged = gates_of(directory, record, evidence)
    assert {name for name, gate in judged.items() if gate.verdict != "ok"} == {"logs_complete"}
    assert "logs/node01/setup.log was changed" in judged["logs_complete"].evidence


def test_everything_of_a_run_is_its_owner_s_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        directory = RunDirectory.create("20260101T000000-aaaaaa", tmp_path / "runs")
        record, evidence = a_run(directory)
        directory.save(record, {TOGETHER: evidence})
        directory.write("states/a.json", "{}")
    finally:
        os.umask(before)
    for path in [tmp_path / "runs", *(tmp_path / "runs").rglob("*")]:
        wanted = 0o700 if path.is_dir() else 0o600
        assert path.is_symlink() or path.stat().st_mode & 0o777 == wanted, path


def three_runs(root: Path) -> list[str]:
    ids = ["20260101T000000-aaaaaa", "20260101T000001-bbbbbb", "20260102T000000-cccccc"]
    for run in ids:
        RunDirectory.create(run, root).write("run.json", "{}")
    return ids


@pytest.mark.parametrize(
    ("name", "found"),
    [("20260101T000000-aaaaaa", 0), ("20260101T000001", 1), ("20260102", 2), ("latest", 2), ("2026010", None)],
)
def test_a_run_is_found_by_id_by_prefix_and_as_latest(tmp_path: Path, name: str, found: int | None) -> None:
    ids = three_runs(tmp_path)
    if found is not None:
        assert find_run(name, tmp_path) == tmp_path / ids[found]
        return
    with pytest.raises(ValueError, match=r"3 runs .* begin so") as told:
        find_run(name, tmp_path)
    assert all(run in str(told.value) for run in ids)


def test_a_log_is_no_run_and_told_so(tmp_path: Path) -> None:
    run = tmp_path / three_runs(tmp_path)[0]
    (run / "leader.log").write_text("")
    with pytest.raises(ValueError, match="a file and no run"):
        find_run(str(run / "leader.log"), tmp_path)


def test_a_run_is_found_by_its_path(tmp_path: Path) -> None:
    run = tmp_path / three_runs(tmp_path)[0]
    assert find_run(str(run), tmp_path / "other") == run
    assert find_run(str(run / "run.json"), tmp_path / "other") == run


@pytest.mark.parametrize("name", ["2025", "nothing", "", ".", "..", "a/b", "x\0y"])
def test_a_run_that_is_not_there_is_told_with_those_that_are(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="there are none"):
        find_run(name, tmp_path)
    with pytest.raises(ValueError, match="there are none"):
        find_run(name, tmp_path / "missing")
    ids = three_runs(tmp_path)
    with pytest.raises(ValueError, match=ids[0]):
        find_run(name, tmp_path)


def test_latest_never_leads_out_of_the_runs(tmp_path: Path) -> None:
    three_runs(tmp_path / "runs")
    RunDirectory.create("other", tmp_path / "elsewhere").write("run.json", "{}")
    (tmp_path / "runs/latest").unlink()
    assert find_run("latest", tmp_path / "runs").name == "20260102T000000-cccccc"
    (tmp_path / "runs/latest").symlink_to("../elsewhere/other")
    with pytest.raises(ValueError, match="which is not a run"):
        find_run("latest", tmp_path / "runs")


def test_the_digest_of_desired_states_tells_no_secret() -> None:
    def digest(**environment: str) -> str:
        return desired_digest({"a": desired("cpu", None, smoke={"recipe": "gpt-small", "environment": environment})})

    assert digest(WANDB_API_KEY="one") == digest(WANDB_API_KEY="two")
    assert digest(NCCL_DEBUG="INFO") != digest(NCCL_DEBUG="WARN")


@pytest.mark.parametrize("name", ["run.json", "evidence.json"])
@pytest.mark.parametrize("text", ["[" * 100_000, "\0", "\xff"])
def test_a_document_of_nonsense_is_refused_with_its_path(directory: RunDirectory, name: str, text: str) -> None:
    (directory.path / name).write_bytes(text.encode("latin-1"))
    with pytest.raises(ValueError, match=name):
        directory.load() if name == "run.json" else directory.load_evidence()


@pytest.mark.parametrize("length", [0, 1, (1 << 18) - 1, 1 << 18, (1 << 18) + 1, 3 << 18])
def test_a_copy_is_read_to_its_end_and_one_byte_beyond(directory: RunDirectory, length: int) -> None:
    kept = keep(directory, "n", b"x" * length)
    path = directory.path / kept.path

    def read() -> tuple[int, str]:
        fetched = copies.Fetched(directory.path, kept)
        return sum(map(len, fetched.chunks())), fetched.changed()

    assert read() == (length, "")
    path.write_bytes(b"x" * (length + 1))
    assert read() == (length + 1, f"{kept.path} was changed since: it has more bytes, {length} were fetched")
    path.write_bytes(b"x" * (length * 3 + 9))
    assert read()[0] == length + 1, "no more than that"


def test_a_text_is_bounded(directory: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = keep(directory, "n", b"x" * 10)
    monkeypatch.setattr(copies, "TEXT_LIMIT", 10)
    assert copies.text_of(directory.path, kept) == ("x" * 10, "")
    monkeypatch.setattr(copies, "TEXT_LIMIT", 9)
    text, why = copies.text_of(directory.path, kept)
    assert text == "x" * 9
    assert "only the first 9 bytes" in why
    assert copies.text_of(directory.path, None) == (None, "")


DEEP: list[object] = []
for _ in range(700):
    DEEP = [DEEP]
STRANGE: dict[str, dict[str, object]] = {
    "markup and escapes in every text": {
        "run_id": "[/x]\x1b]0;t\x07",
        "started_at": "[/x]\x1b[2J",
        "finished_at": "[/x]\x9b2J",
        "inventory": "[/x]\x1b[2J",
        "nodes": [{"name": "[/x]\x1b[2J", "verdict": "ok", "part": "trained", "notes": ["[/x]\x1b[2J"]}],
    },
    "a key that would move the terminal": {"\x1b]0;t\x07": 1},
    "a version that would": {"schema_version": "\x1b]0;t\x07"},
    "millions of errors": {"nodes": [[]] * 300_000},
    "a deep value": {"findings": [{"name": "a", "node": "n", "verdict": "fail", "wanted": DEEP}]},
    "nodes of the old form, without a name": {"plan": {}, "nodes": [{"logs": [1]}, {"name": [], "logs": [1]}]},
    "nodes of the old form that are no list": {"plan": {}, "nodes": 5},
}


@pytest.mark.parametrize("command", ["report", "judge"])
@pytest.mark.parametrize("what", STRANGE)
def test_a_run_directory_from_a_stranger_ends_in_words(tmp_path: Path, what: str, command: str) -> None:
    known = {"schema_version": 1, "run_id": "r", "started_at": "s", "inventory": "i", "desired_digest": "d"}
    (tmp_path / "run.json").write_text(json.dumps(known | STRANGE[what]))
    (tmp_path / "evidence.json").write_text('{"jobs": {}}')
    done = CliRunner().invoke(main, [command, str(tmp_path)])
    assert isinstance(done.exception, SystemExit) and done.exit_code in (2, 4), done.output
    assert not set("\x1b\x07\x9b") & set(done.output) and len(done.output) < 4000


def test_runs_that_cannot_be_read_are_not_said_to_be_none(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("")
    for name in ("latest", "2026"):
        with pytest.raises(ValueError, match="runs cannot be read: Not a directory"):
            find_run(name, tmp_path / "runs")
    with pytest.raises(ValueError, match="there are none"):
        find_run("latest", tmp_path / "not there")


def test_a_run_is_no_better_than_unknown_while_nobody_finished_or_judged_it(directory: RunDirectory) -> None:
    record, evidence = a_run(directory)
    judged = judge_run(directory, record, {TOGETHER: evidence})
    assert verdict_of(record, judged) is Verdict.UNKNOWN
    record.finished_at = now()
    assert verdict_of(record, judged) is Verdict.OK
    assert verdict_of(record, []) is Verdict.UNKNOWN


@pytest.mark.parametrize(("error", "said"), [("no port is free", "no port is free"), ("", "plan was never made")])
def test_a_job_without_a_plan_says_why(directory: RunDirectory, error: str, said: str) -> None:
    (gate,) = judge_job(directory, JobRecord(error=error), Evidence()).gates
    assert gate.verdict == "fail" and said in gate.evidence


def test_a_document_is_bounded(directory: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    record, _ = a_run(directory)
    directory.save(record)
    assert not (directory.path / "iterations.jsonl").exists(), "there are none"
    whole = (directory.path / "run.json").read_text().rstrip()
    (directory.path / "run.json").write_text(whole)
    size = len(whole)
    monkeypatch.setattr(runs, "_DOCUMENT_LIMIT", size)
    assert directory.load() == record
    monkeypatch.setattr(runs, "_DOCUMENT_LIMIT", size - 1)
    with pytest.raises(ValueError, match=r"run\.json: not a whole JSON document"):
        directory.load()


@pytest.mark.parametrize(("wrong", "end"), [({"inventory": 1}, "string"), ({"inventory": 1, "run_id": 2}, "1 more)")])
def test_the_first_mistake_of_a_document_is_named_and_the_rest_counted(
    directory: RunDirectory, wrong: dict[str, int], end: str
) -> None:
    record, _ = a_run(directory)
    (directory.path / "run.json").write_text(json.dumps(record.model_dump(mode="json") | wrong))
    with pytest.raises(ValueError, match=r"run\.json") as refused:
        directory.load()
    assert str(refused.value).endswith(end)


@pytest.mark.parametrize("name", ["", "run.json", "isolation.json"])
def test_nobody_goes_on_from_what_another_user_could_have_written(tmp_path: Path, name: str) -> None:
    for each in ("run.json", "isolation.json"):
        (tmp_path / each).write_text("{}")
        (tmp_path / each).chmod(0o600)
    tmp_path.chmod(0o700)
    go_on = to_resume if name == "isolation.json" else earlier_of
    with pytest.raises(ValueError, match=r"schema|required|Field"):
        go_on(tmp_path)
    (tmp_path / name).chmod(0o777)
    with pytest.raises(ValueError, match="mode 0777, so others than you could have written it"):
        go_on(tmp_path)


def kept_check(root: Path, number: int, end: str = "abcdef", **more: Any) -> Path:
    fields = {"inventory": "rack.py", "kind": "drift", "finished_at": now(), **more}
    record = RunRecord(run_id=f"20260101T0000{number:02d}-{end}", started_at=now(), desired_digest="0", **fields)
    directory = RunDirectory.create(record.run_id, root, latest=False)
    directory.save(record)
    directory.write("states/node1.json", "{}")
    return directory.path


def test_old_checks_of_an_inventory_go_and_nothing_else_does(tmp_path: Path) -> None:
    """Whatever is not a whole, finished check of this inventory stays, however old it is."""
    stay = [
        kept_check(tmp_path, 1, kind="run"),
        kept_check(tmp_path, 2, inventory="other.py"),
        kept_check(tmp_path, 3, finished_at=None),
        kept_check(tmp_path, 4, jobs=[JobRecord()]),
    ]
    for number, name in enumerate(("notes.txt", "report.html", "logs/mine.log"), start=5):
        stay.append(kept_check(tmp_path, number))
        (stay[-1] / name).write_text("of a person")
    for number, mode in ((8, 0o707), (9, 0o702)):
        stay.append(kept_check(tmp_path, number))
        stay[-1].chmod(mode)
    renamed = kept_check(tmp_path, 10)
    stay.append(renamed.rename(tmp_path / "before-the-upgrade"))
    elsewhere = kept_check(tmp_path / "else", 11)
    (tmp_path / elsewhere.name).symlink_to(elsewhere)
    broken = kept_check(tmp_path, 12)
    text = (broken / "run.json").read_text()
    (broken / "run.json").write_text(text[: len(text) // 2])
    entered, read = kept_check(tmp_path, 13), kept_check(tmp_path, 14)
    old, newest = [kept_check(tmp_path, number) for number in (20, 21)], kept_check(tmp_path, 30)
    current = kept_check(tmp_path, 15)
    stay += [elsewhere, broken, entered, read, current, newest]
    with (read / "states/node1.json").open(), subprocess.Popen(["sleep", "60"], cwd=entered) as stands_there:
        removed = remove_old_checks("rack.py", 1, current.name, tmp_path)
        stands_there.kill()
    assert removed == [path.name for path in reversed(old)]
    assert [path for path in stay if not (path / "run.json").is_file()] == []
    assert not any(path.exists() for path in old) and not list(tmp_path.glob(".removed-*"))
    assert remove_old_checks("rack.py", 1, current.name, tmp_path) == [read.name, entered.name], "no longer in use"
    assert remove_old_checks("rack.py", 50, current.name, tmp_path) == []


def test_of_checks_of_one_second_the_one_at_hand_is_the_newest(tmp_path: Path) -> None:
    """The end of an id is drawn: it tells no order."""
    current, other = kept_check(tmp_path, 1), kept_check(tmp_path, 1, "ffffff")
    assert remove_old_checks("rack.py", 2, current.name, tmp_path) == []
    assert remove_old_checks("rack.py", 1, current.name, tmp_path) == [other.name]


def test_checks_of_another_inventory_of_the_same_name_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`drift inventories/rack.py` in two checkouts that share a folder of runs."""
    sites = [tmp_path / "site-a", tmp_path / "site-b"]
    for site in sites:
        site.mkdir()
        (site / "rack.py").write_text("nodes = []\n")
    runs = tmp_path / "runs"
    theirs = [kept_check(runs, number, inventory_path=str(sites[1] / "rack.py")) for number in (1, 2)]
    before_the_upgrade = kept_check(runs, 3)
    record = json.loads((before_the_upgrade / "run.json").read_text())
    del record["inventory_path"]
    (before_the_upgrade / "run.json").write_text(json.dumps(record, indent=1))
    ours = [kept_check(runs, number, inventory_path=str(sites[0] / "rack.py")) for number in (4, 5, 6)]
    monkeypatch.chdir(sites[0])
    runs.chmod(0o777)  # that several write in: what is their own goes nevertheless
    assert remove_old_checks("rack.py", 1, ours[-1].name, runs) == [ours[1].name, ours[0].name]
    assert all(path.is_dir() for path in (*theirs, before_the_upgrade, ours[2]))
