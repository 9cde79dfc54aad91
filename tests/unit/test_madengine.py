"""madengine: its command, its exit codes, its results, and the containers that it leaves."""

from __future__ import annotations

import json
import os
import subprocess
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from shakedown.gates.judgement import judge
from shakedown.gates.observed import JobEnd, LogCopies, NodeLog
from shakedown.jobs.launch import LaunchPlan
from shakedown.jobs.plan import PlanError
from shakedown.logs.mad import read
from shakedown.state.findings import Verdict
from tests.plans import rack

TAGS = "primus_train/megatron_MI300X_llama3.1_8B-BF16-pretrain"
# Columns of madengine at ef87d05, PERF_CSV_HEADER in reporting/update_perf_csv.py, and two of MAD's own behind them.
HEAD = (
    "model,n_gpus,nnodes,gpus_per_node,training_precision,pipeline,args,tags,docker_file,base_docker,docker_sha,"
    "docker_image,git_commit,machine_name,deployment_type,launcher,gpu_architecture,performance,metric,relative_change,"
    "status,build_duration,test_duration,dataname,data_provider_type,data_size,data_download_duration,build_number,"
    "additional_docker_run_options,precision,global_batch_size"
)


def perf(*rows: tuple[str, str, str, str]) -> str:
    """perf.csv with these rows: model, performance, metric, status."""
    names = HEAD.split(",")
    lines = []
    for model, performance, metric, status in rows:
        values = {"model": model, "performance": performance, "metric": metric, "status": status, "n_gpus": "8"}
        lines.append(",".join(values.get(name, "") for name in names))
    return "\n".join([HEAD, *lines]) + "\n"


GOOD = perf(
    (f"{TAGS}_Llama-3.1-8B", "11342.7", "tok_per_s_per_gpu", "SUCCESS"),
    (f"{TAGS}_Llama-3.1-8B", "601.3", "TFLOPS_per_gpu", "SUCCESS"),
)


def plan(**smoke: Any) -> LaunchPlan:
    return rack("madengine", nic=None, options={"tags": TAGS, **smoke.pop("options", {})}, **smoke)


def verdicts(report: str | None, code: int = 0, **expect: float) -> dict[str, Verdict]:
    logs = LogCopies({"node01": NodeLog(lines=1, reported=read("", report))})
    gates = judge(plan(expect=expect), logs, JobEnd(exit_codes={"node01": code})).gates
    return {gate.name: gate.verdict for gate in gates}


def test_the_command_is_the_page_s_in_the_checkout_on_the_node() -> None:
    made = plan(timeout_s=9000)
    (node,) = made.nodes
    script = "{run_dir}/madengine/madengine.sh"
    assert node.command == ["env", "--chdir=/opt/mad", "bash", script, ".venv/bin/madengine", TAGS, "7200"]
    assert node.cleanup == [["bash", "madengine/madengine.sh", "--remove"]]
    assert (node.upload, node.logs) == (["shakedown.jobs.madengine"], ["{run_dir}/logs/perf.csv"])
    assert (made.start_timeout_s, made.stall_timeout_s) == (9000.0, 9000.0), "the image alone may take an hour"
    own = {"checkout": "/srv/MAD", "program": "/opt/venv/bin/madengine", "timeout": 60}
    assert plan(options=own).nodes[0].command[1:] == [
        "--chdir=/srv/MAD",
        "bash",
        script,
        "/opt/venv/bin/madengine",
        TAGS,
        "60",
    ]


def test_what_madengine_cannot_do_is_refused() -> None:
    with pytest.raises(PlanError, match="tags = nothing"):
        rack("madengine", nic=None)
    with pytest.raises(PlanError, match="each node trains alone"):
        rack("madengine", 2, options={"tags": TAGS})
    with pytest.raises(PlanError, match="chooses their number"):
        plan(iterations=20)


@pytest.mark.parametrize("newer", [False, True])
def test_results_are_figures_of_the_job(newer: bool) -> None:
    text = GOOD
    if newer:
        text = text.replace("tok_per_s_per_gpu", "tokens_per_second").replace("TFLOPS_per_gpu", "tflops")
    figures = {
        figure.metric: figure.value for figure in read("", text.replace("model,n_gpus", "model, n_gpus")).figures
    }
    assert figures == {"tokens_per_gpu": 11342.7, "throughput_per_gpu": 601.3}
    assert set(verdicts(text, tokens_per_gpu=11000, throughput_per_gpu=600).values()) == {Verdict.OK}
    assert verdicts(text, tokens_per_gpu=12000)["tokens_per_gpu"] == Verdict.FAIL


@pytest.mark.parametrize("mfu", ["36.72", ""])
def test_the_third_row_of_mad_s_newest_script_is_no_figure(mfu: str) -> None:
    """extract_primus_perf.py at d7803de1 estimates it, and leaves it blank for a GPU whose peak it does not know."""
    rows = [("11342.7", "tokens_per_second"), ("601.3", "tflops"), (mfu, "model_flops_utilization")]
    text = perf(*((TAGS, value, metric, "SUCCESS") for value, metric in rows))
    assert read("", text).problems == [] and len(read("", text).figures) == 2
    assert set(verdicts(text, tokens_per_gpu=11000).values()) == {Verdict.OK}
    assert verdicts(text.replace("SUCCESS", "FAILURE"))["report"] == Verdict.FAIL
    assert verdicts(perf((TAGS, "1", "mfu_of_tomorrow", "SUCCESS")))["report"] == Verdict.FAIL


@pytest.mark.parametrize(
    ("report", "text"),
    [
        (GOOD.replace("601.3", ""), "has no value, which is how MAD leaves what it does not support"),
        (perf((TAGS, "", "", "FAILURE")), f"{TAGS} FAILURE"),
        (perf((TAGS, "", "", "SKIPPED")), f"{TAGS} SKIPPED"),
        (perf((TAGS, "12", "tok_per_s_per_gpu", "FAILURE")), f"{TAGS} FAILURE"),
        (HEAD + "\n", "the report has no rows"),
        ("", "the report has no rows"),
    ],
)
def test_an_empty_figure_is_never_ok(report: str, text: str) -> None:
    results = read("", report)
    assert any(text in problem for problem in results.problems), results.problems
    assert verdicts(report)["report"] == Verdict.FAIL
    assert verdicts(None)["report"] == Verdict.FAIL


@pytest.mark.parametrize("code", [1, 2, 3, 4])
def test_another_exit_code_fails_whatever_the_results_are(code: int) -> None:
    assert verdicts(GOOD, code)["exit_codes"] == Verdict.FAIL
    assert verdicts(GOOD)["exit_codes"] == Verdict.OK


# -- the script -------------------------------------------------------------------------------------------------------

MADENGINE = """#!/bin/bash
printf '%s\\n' "$@" >"$TOLD"
while (($#)); do [[ $1 != --output ]] || printf 'model,performance\\nx,1\\n' >"$2"; shift; done
exit ${CODE:-0}
"""
DOCKER = """#!/bin/bash
case $1 in
ps) ls "$HELD" ;;
inspect) cat "$HELD/${!#}" ;;
rm) echo "$3" >>"$HELD.removed"; [[ -n ${STUCK-} ]] || rm "$HELD/$3" ;;
esac
"""


@pytest.fixture
def node(tmp_path: Path) -> Path:
    """A run's folder, a checkout, and stand-ins for both programs."""
    for folder in ("run/madengine", "bin", "mad", "held"):
        (tmp_path / folder).mkdir(parents=True)
    source = files("shakedown.jobs.madengine") / "madengine.sh"
    (tmp_path / "run/madengine/madengine.sh").write_text(source.read_text("utf-8"))
    for name, text in (("madengine", MADENGINE), ("docker", DOCKER)):
        (tmp_path / "bin" / name).write_text(text)
        (tmp_path / "bin" / name).chmod(0o755)
    (tmp_path / "mad/perf.csv").write_text(GOOD)
    return tmp_path


def run(node: Path, *words: str, cwd: str = "mad", **more: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": f"{node}/bin:{os.environ['PATH']}", "HELD": f"{node}/held", "TOLD": f"{node}/words", **more}
    script = ["bash", f"{node}/run/madengine/madengine.sh", *words]
    return subprocess.run(script, env=environment, cwd=node / cwd, capture_output=True, text=True, check=False)


def test_the_script_runs_madengine_with_results_of_its_own(node: Path) -> None:
    done = run(node, "madengine", TAGS, "60")
    assert (done.returncode, done.stderr) == (0, "")
    words = (node / "words").read_text().splitlines()
    assert words[:5] == ["run", "--tags", TAGS, "--live-output", "--timeout"]
    context = json.loads(words[words.index("--additional-context") + 1])
    assert context == {"docker_env_vars": {"SHAKEDOWN_FOLDER": f"{node}/run"}}
    assert (node / "run/logs/perf.csv").read_text() == "model,performance\nx,1\n"
    assert (node / "mad/perf.csv").read_text() == GOOD, "the checkout's own stays"


@pytest.mark.parametrize(("code", "text"), [(2, "could not be built"), (3, "run failed"), (4, "arguments"), (9, "9")])
def test_the_script_ends_as_madengine_does_and_names_the_reason(node: Path, code: int, text: str) -> None:
    done = run(node, "madengine", TAGS, "60", CODE=str(code))
    assert done.returncode == code
    assert text in done.stderr


def test_containers_of_this_run_alone_are_removed(node: Path) -> None:
    (node / "held/mine").write_text(f"PATH=/bin\nSHAKEDOWN_FOLDER={node}/run\n")
    (node / "held/other").write_text(f"SHAKEDOWN_FOLDER={node}/run2\nX=1\n")
    assert run(node, "--remove", cwd="run").returncode == 0
    assert (node / "held.removed").read_text() == "mine\n"
    (node / "held/mine").write_text(f"SHAKEDOWN_FOLDER={node}/run\n")
    done = run(node, "--remove", STUCK="yes")
    assert done.returncode == 1
    assert "still there" in done.stderr


RUNS_DOCKER = """#!/bin/bash
env >"$TOLD.environment"
docker run -t -d --env MAD_MODEL_NAME=x rocm/primus:v26.5 cat
docker ps >/dev/null
"""
SEES = """#!/bin/bash
printf '%s\\n' "$*" >>"$TOLD.argv"
[[ $1 != run ]] || printf '%s' "${MAD_SECRETS_HFTOKEN-}" >"$TOLD.token"
"""


def test_the_token_is_on_no_command_line_and_reaches_the_container(node: Path) -> None:
    (node / "bin/madengine").write_text(RUNS_DOCKER)
    (node / "bin/docker").write_text(SEES)
    done = run(node, "madengine", TAGS, "60", MAD_SECRETS_HFTOKEN="hf_secret4711")
    assert (done.returncode, done.stderr) == (0, "")
    argv = (node / "words.argv").read_text().splitlines()
    assert argv == ["run --env MAD_SECRETS_HFTOKEN -t -d --env MAD_MODEL_NAME=x rocm/primus:v26.5 cat", "ps"]
    assert (node / "words.token").read_text() == "hf_secret4711"
    assert "MAD_SECRETS" not in (node / "words.environment").read_text(), "which madengine would write into argv"
    assert "hf_secret4711" not in "".join(path.read_text() for path in (node / "run").rglob("*") if path.is_file())
    assert (node / "run/bin").stat().st_mode & 0o777 == 0o700
    run(node, "madengine", TAGS, "60")
    assert (node / "words.argv").read_text().splitlines()[2].startswith("run -t -d"), "without a token as it was"
