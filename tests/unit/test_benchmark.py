"""PyTorch training: what the document allows, what its programs print, and what does not pass."""

from __future__ import annotations

import itertools
import re
import shutil
import subprocess
from importlib.resources import files
from pathlib import Path
from typing import Any, get_args

import pytest
from sqlalchemy import select

from shakedown.catalogue import advice
from shakedown.desired.models import Benchmark
from shakedown.desired.problems import DesiredStateError
from shakedown.gates import Gate, NodeLog, offline
from shakedown.gates.benchmark import figures_finite, steps_complete
from shakedown.gates.judge import PARSERS
from shakedown.gates.judgement import judge
from shakedown.gates.observed import JobEnd, LogCopies
from shakedown.jobs.launch import LaunchPlan, run_folders
from shakedown.jobs.plan import make_plan
from shakedown.ledger import schema
from shakedown.ledger.compared import keep
from shakedown.ledger.store import open_ledger
from shakedown.logs.kept_logs import LogFile, LogQuota
from shakedown.logs.mad import MOST_ROWS, MOST_TEXT, Figure, Results, Step, read, read_report
from shakedown.logs.mad import REPORT as PERF
from shakedown.logs.metrics import METRICS_OF
from shakedown.logs.source import LogSource
from shakedown.recipes.recipe import Family
from shakedown.runs.directory import Evidence, JobRecord, RunDirectory, RunRecord
from shakedown.runs.judging import judge_job
from shakedown.state.findings import Verdict
from tests.documents import commands
from tests.gates import judged
from tests.plans import DIGEST
from tests.states import desired, healthy, image, resolved, with_

IMAGE = "rocm/pytorch-training:v25.3"
COMMIT = "1" * 40
REPORT = """model,performance,metric,mode
Llama-3.1-70B,943.21,tok_per_s_per_gpu,pretrain
Llama-3.1-70B,431.5,TFLOPS_per_gpu,pretrain
"""


def wanted(**values: Any) -> Benchmark:
    given = {"mode": "pretrain", "model": "Llama-3.1-70B", "precision": "BF16", "image": "pt", "commit": COMMIT}
    return Benchmark(**(given | values))


def plan(**values: Any) -> LaunchPlan:
    """The plan of the section's smoke run on one node."""
    own = desired("mi300x", None, images={"pt": IMAGE})
    own = own.model_copy(update={"smoke": wanted(**values).smoke()})
    state = with_(healthy(), {"containers.images": [image(IMAGE, DIGEST)]})
    return make_plan({"node1": own}, {"node1": state}, "run-1", alone="node1")


def options(made: LaunchPlan) -> list[str]:
    """The options of pytorch_benchmark_report.sh."""
    words = made.nodes[0].command
    return words[words.index("/shakedown/benchmark/benchmark.sh") + 2 :]


def refused(section: dict[str, Any]) -> list[tuple[str, str]]:
    """What is wrong with a section: path, and what was expected."""
    try:
        resolved(images={"pt": IMAGE}, benchmark=section)
    except DesiredStateError as error:
        return [(problem.path, problem.expected) for problem in error.problems]
    return []


def log(steps: int = 50, total: int = 50, nan_at: int | None = None, tps: str = "1,043") -> str:
    """torchtitan's lines, in its colours."""
    lines = [
        f"[rank0]:[titan] - root - INFO - Training starts at step 1, with local batch size 4, total steps {total} "
    ]
    for step in range(1, steps + 1):
        loss = "    nan" if step == nan_at else f"{12 - step / 10:7.4f}"
        lines.append(
            f"[rank0]:[titan] - root - INFO - \x1b[31mstep: {step:2}  \x1b[32mloss: {loss}  \x1b[33mmemory: 150.05GiB"
            f"(78.16%)  \x1b[34mtps: {tps}  \x1b[36mtflops: 1,431.20  \x1b[35mmfu: 33.06%\x1b[39m"
        )
    return "\n".join(lines) + "\n"


def gates_of(
    results: Results, code: int | None = 0, steps: bool = True, incomplete: str = "", **expect: float
) -> list[Gate]:
    made = plan(expect=expect, mode="pretrain" if steps else "finetune_fw")
    logs = LogCopies({"node1": NodeLog(lines=1, reported=results, incomplete=incomplete)})
    return judge(made, logs, JobEnd(exit_codes={"node1": code})).gates


def verdicts(*given: Any, **more: Any) -> dict[str, Verdict]:
    return {gate.name: gate.verdict for gate in gates_of(*given, **more)}


@pytest.mark.parametrize("words", commands("002_commands.txt")["Benchmarking examples"])
def test_the_documents_examples_are_run_as_they_stand(words: list[str]) -> None:
    """But for the second, FP8 with Llama-3.1-70B, which the document's own table excludes."""
    given = dict(zip(words[1::2], words[2::2], strict=True))
    names = {"-t": "mode", "-p": "precision", "-m": "model", "-s": "seq_length"}
    values: dict[str, Any] = {names[option]: value for option, value in given.items()}
    if "seq_length" in values:
        values["seq_length"] = int(values["seq_length"])
    section = {"image": "pt", "commit": COMMIT, **values}
    excluded = [path for path, _ in refused(section)]
    assert excluded == (["benchmark.precision"] if values["precision"] == "FP8" else [])
    if not excluded:
        asked = options(plan(**values))
        assert dict(zip(asked[::2], asked[1::2], strict=True)) == given
    eight = {"model": "Llama-3.1-8B", "precision": "FP8", "mode": "pretrain"}
    assert not refused(section | eight), "what the second example says that it is"


@pytest.mark.parametrize(
    ("values", "path"),
    [
        ({"precision": "FP8"}, "benchmark.precision"),  # the document's example 2
        ({"model": "Flux", "precision": "FP8"}, "benchmark.precision"),
        ({"mode": "finetune_fw", "precision": "FP8"}, "benchmark.precision"),
        ({"mode": "finetune_fw", "model": "Llama-3.1-8B"}, "benchmark.mode"),
        ({"mode": "finetune_lora", "model": "Flux"}, "benchmark.mode"),
        ({"image": "absent"}, "benchmark.image"),
        ({"expect": {"tokens": 1.0}}, "benchmark.expect.tokens"),
    ],
)
def test_what_the_document_excludes_is_refused_before_anything_is_run(values: dict[str, Any], path: str) -> None:
    assert path in [found for found, _ in refused(wanted(**values).model_dump(exclude_unset=True))]


def test_the_containers_options_are_the_documents() -> None:
    (node,) = plan(hf_token_file="/t").nodes
    command = " ".join(node.command)
    (documented,) = commands("002_commands.txt")["Run the Docker container"]
    for option, value in itertools.pairwise(documented):
        if option.startswith("-") and option not in ("-it", "--privileged", "--name", "-v"):
            assert f"{option} {value}" in command
    # The document's volumes are the home and ~/.ssh, which nothing in the container needs.
    assert re.findall(r"--volume (\S+)", command) == [
        "/opt/mad:/mad:ro",
        *(f"{host}:{inside}" for host, inside in run_folders().items()),
    ]
    variables = node.files["environment"].splitlines()
    assert "--privileged" not in command and "HF_TOKEN" in variables
    assert node.secrets == ["HF_TOKEN"] and "HF_TOKEN=" not in command
    assert [name for name in variables if "=" in name] == [], "what is measured is the program's own"


def test_torchtitans_lines_are_read_with_their_thousands() -> None:
    results = read(log(), None)
    assert len(results.steps) == 50 and results.total_steps == 50
    first = results.steps[0]
    assert (first.step, first.loss, first.tokens_per_gpu, first.throughput_per_gpu) == (1, 11.9, 1043.0, 1431.2)
    assert (first.memory_gib, first.memory_fraction, first.mfu) == (150.05, 0.7816, 0.3306)
    assert {figure.metric: figure.value for figure in results.figures} == {
        "tokens_per_gpu": 1043.0,
        "throughput_per_gpu": pytest.approx(1431.2),
    }
    newer = "step:  1  loss: 12.24420  grad_norm:  3.8871  memory: 42.1GiB(22.0%)  tps: 43  tflops: 2.5  mfu: 0.2%\n"
    assert read(newer, None).steps[0].grad_norm == 3.8871
    assert read(newer[:-1], None).steps == [], "a line that was cut says nothing"


def test_a_good_run_passes() -> None:
    found = verdicts(read(log(), REPORT), tokens_per_gpu=900.0, throughput_per_gpu=431.5)
    assert set(found.values()) == {Verdict.OK} and len(found) == 8


@pytest.mark.parametrize(
    ("text", "report", "gate", "verdict"),
    [
        (log(nan_at=37), REPORT, "loss_finite", Verdict.FAIL),
        (log(steps=49), REPORT, "steps_complete", Verdict.FAIL),
        (log(steps=0), REPORT, "loss_finite", Verdict.UNKNOWN),
        ("", REPORT, "steps_complete", Verdict.UNKNOWN),
        (log(), REPORT.replace("943.21", "nan"), "figures_finite", Verdict.FAIL),
        (log(), REPORT.replace("943.21", ""), "figures_finite", Verdict.FAIL),
        (log(), REPORT.replace("943.21", "0.0"), "figures_finite", Verdict.FAIL),
        (log(), REPORT.replace("943.21", "899"), "tokens_per_gpu", Verdict.FAIL),
        (log(), REPORT.replace("tok_per_s_per_gpu", "tokens"), "tokens_per_gpu", Verdict.UNKNOWN),
        (log(), REPORT.replace("tok_per_s_per_gpu", "tokens"), "report", Verdict.FAIL),
        (log(), "model,mode\nx,pretrain\n", "report", Verdict.FAIL),
        (log(), "", "report", Verdict.FAIL),
        (log(steps=20, total=20), None, "report", Verdict.FAIL),
    ],
)
def test_what_does_not_pass(text: str, report: str | None, gate: str, verdict: Verdict) -> None:
    assert verdicts(read(text, report), tokens_per_gpu=900.0)[gate] == verdict


def test_an_exit_code_that_nobody_knows_is_no_zero() -> None:
    results = read(log(), REPORT)
    assert verdicts(results, code=None)["exit_codes"] == Verdict.UNKNOWN
    assert verdicts(results, code=137)["exit_codes"] == Verdict.FAIL


def test_the_programs_own_summaries_are_figures() -> None:
    accelerate = "Avg token per second: 13,240.15\nAvg iter time: 1.8543\nAvg TFLOP/s: 702.31\n"
    results = read(accelerate, None)
    assert {figure.metric: figure.value for figure in results.figures} == {
        "tokens_per_gpu": 13240.15,
        "throughput_per_gpu": 702.31,
    }
    assert set(verdicts(results, steps=False, tokens_per_gpu=13000).values()) == {Verdict.OK}
    torchtune = "Max memory alloc (last half): 181.2\nAverage tokens/s/gpu (last half): 1873.4\n"
    found = verdicts(read(torchtune, None), steps=False, memory_alloc=180.0, tokens_per_gpu=1873.4)
    assert found["memory_alloc"] == Verdict.FAIL and found["tokens_per_gpu"] == Verdict.OK


STAND_IN = """#!/bin/bash
echo "options: $*"
printf 'model,performance,metric,mode\\nLlama-3.1-70B,1,tok_per_s_per_gpu,pretrain\\n' >> ../perf_Llama-3.1-70B.csv
"""


@pytest.fixture
def mad(tmp_path: Path) -> Path:
    """A checkout with stand-in scripts, in which an earlier run has left its report."""
    scripts = tmp_path / "mad/scripts/pytorch_train"
    scripts.mkdir(parents=True)
    (scripts / "pytorch_benchmark_setup.sh").write_text("echo setup; exit ${FAILS:-0}\n")
    (scripts / "pytorch_benchmark_report.sh").write_text(STAND_IN)
    (scripts / "../perf_Llama-3.1-70B.csv").write_text(REPORT)
    return tmp_path


def run(mad: Path, setup: str, environment: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """benchmark.sh with the checkout and the workspace where the container would have them."""
    text = (files("shakedown.jobs.benchmark") / "benchmark.sh").read_text("utf-8")
    text = text.replace("/mad/.", f"{mad}/mad/.").replace("/workspace", f"{mad}/workspace")
    (mad / "benchmark.sh").write_text(text)
    shutil.copytree(str(files("shakedown.jobs.benchmark") / "setup"), mad / "setup", dirs_exist_ok=True)
    (mad / "logs").mkdir(exist_ok=True)
    known = {"PATH": "/usr/bin:/bin", "HOME": str(mad), "SHAKEDOWN_FOLDER": str(mad), **(environment or {})}
    return subprocess.run(
        ["bash", mad / "benchmark.sh", setup, "-t", "pretrain", "-m", "Llama-3.1-70B"], env=known,
        capture_output=True, text=True,
    )  # fmt: skip


def test_the_scripts_run_in_a_copy_and_their_report_is_kept(mad: Path) -> None:
    for _ in range(2):
        done = run(mad, setup="1")
        assert done.returncode == 0 and done.stdout == "setup\noptions: -t pretrain -m Llama-3.1-70B\n"
        assert len((mad / "logs/perf.csv").read_text().splitlines()) == 2, (
            "a report of an earlier run is not this one's"
        )
    assert "setup" not in run(mad, setup="0").stdout


def test_a_setup_that_fails_ends_the_benchmark(mad: Path) -> None:
    done = run(mad, setup="1", environment={"FAILS": "1"})
    assert done.returncode == 1 and "options" not in done.stdout
    assert "pytorch_benchmark_setup.sh failed" in done.stderr


SETUP = """while [ $# -gt 0 ]; do case $1 in
    -m) echo "for $2"; shift ;;
esac; shift; done
true || pip install tomli-that-nobody-has tabulate  # named, so it has to be there
true || hf download meta-llama/Llama-3.1-70B-Instruct
"""


def test_what_the_setup_names_has_to_be_there_before_anything_is_measured(mad: Path) -> None:
    script = mad / "mad/scripts/pytorch_train/pytorch_benchmark_setup.sh"
    script.write_text(SETUP)
    (mad / "lib/tabulate-0.9.0.dist-info").mkdir(parents=True)
    (mad / "lib/tabulate-0.9.0.dist-info/METADATA").write_text("Name: tabulate\nVersion: 0.9.0\n")
    known = {"PYTHONPATH": str(mad / "lib")}
    done = run(mad, setup="1", environment=known)
    assert done.returncode == 1 and "options" not in done.stdout
    assert done.stdout == "for Llama-3.1-70B\n", "newer scripts set up all models where none is named"
    assert [line.split("left no ")[1] for line in done.stderr.splitlines()] == [
        "library tomli",
        "model meta-llama/Llama-3.1-70B-Instruct",
    ]
    (mad / "lib/tomli-2.0.1.dist-info").mkdir()
    (mad / "lib/tomli-2.0.1.dist-info/METADATA").write_text("Name: tomli\nVersion: 2.0.1\n")
    weights = mad / "workspace/torchtune/models/Llama-3.1-70B-Instruct"
    weights.mkdir(parents=True)
    assert run(mad, setup="1", environment=known).returncode == 1, "an empty folder is no model"
    (weights / "model.safetensors").write_text("weights")
    assert "options" in run(mad, setup="1", environment=known).stdout


def test_the_default_commit_trains_what_its_scripts_were_seen_to_train() -> None:
    given = {"mode": "pretrain", "model": "Llama-3.1-8B", "image": "pt"}
    assert refused({**given, "precision": "BF16", "seq_length": 8192}) == []
    other = {**given, "precision": "FP8", "seq_length": 4096}
    found = refused(other)
    assert [(path, "151b30f" in why) for path, why in found] == [
        ("benchmark.precision", True),
        ("benchmark.seq_length", True),
    ]
    assert refused({**other, "commit": COMMIT}) == []


def test_the_documented_fp8_run_names_its_commit() -> None:
    given = {"mode": "pretrain", "model": "Llama-3.1-8B", "image": "pt", "precision": "FP8"}
    ((path, why),) = refused(given)
    assert path == "benchmark.precision"
    commit = why.rpartition(" ")[2]
    assert commit == "d6f8546b0835f12a5e64c0cbe5e6180345c90e6b"
    assert refused({**given, "commit": commit, "seq_length": 8192}) == []
    (wrong,) = refused({**given, "commit": commit, "precision": "BF16"})
    assert wrong[0] == "benchmark.precision"


def test_a_checkout_without_the_scripts_is_told(mad: Path) -> None:
    (mad / "mad/scripts/pytorch_train/pytorch_benchmark_report.sh").unlink()
    done = run(mad, setup="0")
    assert done.returncode == 1 and "no pytorch_benchmark_report.sh" in done.stderr


def test_of_a_log_that_is_not_whole_only_a_failure_that_was_seen_stands() -> None:
    def of_a_part(text: str, report: str | None, **expect: float) -> dict[str, Verdict]:
        return verdicts(read(text, report), incomplete="15 of 78 bytes", **expect)

    good = of_a_part(log(), REPORT, tokens_per_gpu=1.0)
    assert good.pop("exit_codes") is Verdict.OK
    assert set(good.values()) == {Verdict.UNKNOWN}
    assert len(good) == 6
    assert of_a_part(log(steps=20), None)["report"] is Verdict.UNKNOWN
    assert of_a_part(log(steps=20), None)["steps_complete"] is Verdict.UNKNOWN
    assert of_a_part(log(nan_at=3), REPORT)["loss_finite"] is Verdict.FAIL
    assert of_a_part(log(), REPORT, tokens_per_gpu=1e9)["tokens_per_gpu"] is Verdict.FAIL
    assert of_a_part(log(), REPORT.replace("943.21", "nan"))["figures_finite"] is Verdict.FAIL


def test_nobody_is_sent_to_the_end_of_a_log_that_is_not_whole() -> None:
    def remedy(incomplete: str) -> str | None:
        gates = gates_of(read(log(steps=20), None), incomplete=incomplete)
        return next(gate.remedy for gate in gates if gate.name == "report")

    assert "from its end" in (remedy("") or "")
    assert remedy("15 of 78 bytes") == advice("incomplete")


def test_a_benchmark_is_judged_again_from_its_run_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = RunDirectory.create("20260101T000000-aaaaaa", tmp_path)
    kept = []
    for name, file, text in (("leader.log", "leader.log", log()), (PERF, "perf.csv", REPORT)):
        copy = LogFile(name, directory.logs / "n" / file, LogQuota())
        copy.write(text.encode())
        copy.size = copy.kept
        kept.append(copy.close().model_copy(update={"path": f"logs/n/{file}"}))
    logs = {"n": [log.path for log in kept]}
    made = plan(expect={"tokens_per_gpu": 1.0})
    made = made.model_copy(update={"nodes": [made.nodes[0].model_copy(update={"name": "n"})]})
    job = JobRecord(node="n", plan=made, logs=logs)
    evidence = Evidence(exit_codes={"n": 0}, logs={"n": kept})

    def judged(**changes: object) -> dict[str, Verdict]:
        gates = judge_job(directory, job, evidence.model_copy(update=changes)).gates
        assert {(gate.job, gate.node) for gate in gates} == {("each/n", "n")}
        return {gate.name: gate.verdict for gate in gates}

    assert set(judged().values()) == {Verdict.OK}
    times = {"started_at": "2026-01-01T00:00:00+00:00", "finished_at": "2026-01-01T01:00:00+00:00"}
    record = RunRecord(run_id=directory.path.name, inventory="r.py", desired_digest="0" * 64, jobs=[job], **times)
    monkeypatch.setenv("SHAKEDOWN_LEDGER", str(tmp_path / "ledger.sqlite"))
    assert keep(directory, record, {}, {job.name: evidence}) == ""
    with open_ledger().reading() as connection:
        measured = {row.metric: row.unit for row in connection.execute(select(schema.figures)).all()}
    assert "tokens_per_gpu" in measured and all(measured.values())
    assert judged(stopped="n: killed")["ran_to_its_end"] is Verdict.FAIL
    assert judged(exit_codes={})["exit_codes"] is Verdict.UNKNOWN
    assert judged(logs={})["report"] is Verdict.UNKNOWN
    (directory.logs / "n/perf.csv").write_text(REPORT.replace("943", "999"))
    assert judged()["report"] is Verdict.UNKNOWN
    failed = JobRecord(node="n", error="no image")
    never = judge_job(directory, failed, Evidence()).gates
    assert [(gate.name, gate.verdict) for gate in never] == [("ran_to_its_end", Verdict.FAIL)]


def test_every_parser_that_a_family_may_name_is_there() -> None:
    assert set(PARSERS) == set(METRICS_OF) == set(get_args(Family.model_fields["parser"].annotation))


def test_what_is_not_known_of_a_benchmark_is_said() -> None:
    steps = [Step(step=1, loss=2.0), Step(step=2, loss=1.5)]
    assert judged(steps_complete(Results(steps=steps, total_steps=2))).evidence == "2 step lines"
    assert judged(steps_complete(Results(steps=steps, total_steps=2))).actual == f"step {steps[-1].step}"
    assert judged(steps_complete(Results(prints_steps=True, total_steps=2))).actual == "no step"
    unknown = judged(steps_complete(Results(steps=steps)))
    assert (unknown.verdict, unknown.evidence) == (
        Verdict.UNKNOWN,
        "2 step lines; the log does not state the total",
    )
    assert judged(steps_complete(Results(steps=steps, total_steps=3))).verdict == Verdict.FAIL
    nothing = figures_finite(Results())
    assert (nothing.verdict, nothing.evidence) == (Verdict.UNKNOWN, "there is no figure")
    one, other = (Figure(metric="mfu", value=value, source=source) for value, source in ((0.4, "a"), (0.0, "b")))
    assert figures_finite(Results(figures=[one])).evidence == "a"
    assert figures_finite(Results(figures=[one, other])).evidence == "mfu = 0.0 (b)"


def test_a_benchmark_that_failed_says_what_to_do_and_one_that_passed_does_not() -> None:
    assert [gate.name for gate in gates_of(read(log(), REPORT)) if gate.remedy] == []
    failed = gates_of(read(log(), REPORT.replace("943.21", "nan")))
    assert [gate.name for gate in failed if gate.remedy and gate.verdict is Verdict.FAIL] == ["figures_finite"]


@pytest.mark.parametrize(
    "report",
    ['performance,metric\n"' + "x" * 200_000 + '",tflops\n', "performance,metric\n1\r2,tflops\n", "a,b\n" * 300_000],
)
def test_a_report_that_is_no_table_is_one_problem(report: str) -> None:
    figures, problems = read_report(report)
    assert figures == [] and len(problems) == 1


def test_a_report_that_is_longer_than_any_run_s_is_refused_whichever_way() -> None:
    head, row = "model,performance,metric\n", "m,1,tflops\n"
    for report in (head + row * (MOST_ROWS + 1), (head + row).ljust(MOST_TEXT + 1, "\n")):
        assert read_report(report) == ([], [f"the report has more than {MOST_ROWS} rows or {MOST_TEXT} characters"])
    for report in (head + row * MOST_ROWS, (head + row).ljust(MOST_TEXT, "\n")):
        assert not any("more than" in problem for problem in read_report(report)[1])


def test_a_column_without_a_name_is_no_figure() -> None:
    figures, problems = read_report(REPORT.replace("mode", "", 1))
    assert (len(figures), problems) == (2, []) and figures == read_report(REPORT)[0]


@pytest.mark.parametrize(("size", "cut"), [(1, ""), (200_000, "a.log is too long")])
def test_an_output_that_is_read_in_part_is_judged_as_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int, cut: str
) -> None:
    monkeypatch.setattr(offline, "_BLOCKS", 1)
    (tmp_path / "a.log").write_text(log() + " \n" * size)
    judgement, _ = offline.judge_report({"a.log": LogSource(tmp_path / "a.log")}, offline.Request("pytorch-training"))
    assert any("a.log is too long" in gate.evidence for gate in judgement.gates) == bool(cut)
    assert any(gate.name == "figures_finite" and gate.verdict.passes for gate in judgement.gates) != bool(cut)


def test_many_bad_rows_are_few_words() -> None:
    rows = "".join(f"model{n},,tok_per_s_per_gpu\n" for n in range(900))
    gates = {gate.name: gate for gate in gates_of(read(log(), "model,performance,metric\n" + rows))}
    assert len(gates["report"].evidence) < 2000 and "more" in gates["report"].evidence
