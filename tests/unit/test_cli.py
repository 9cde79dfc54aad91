"""The commands over logs and run directories: what they print and how they exit."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from shakedown.cli import main

LOGS = Path(__file__).parents[1] / "data/logs"


def call(*argv: object, stdin: bytes | None = None) -> Result:
    return CliRunner().invoke(main, [str(word) for word in argv], input=stdin)


def test_parse_prints_one_object_per_iteration_with_exactly_the_documented_fields() -> None:
    lines = [json.loads(line) for line in call("parse", LOGS / "rocm.log").stdout.splitlines()]
    assert len(lines) == 20
    fields = "iteration total_iterations consumed_samples elapsed_ms tflops_per_gpu tokens_per_gpu_per_s "
    fields += "memory_fraction learning_rate global_batch_size lm_loss loss_scale grad_norm skipped_iterations"
    assert list(lines[0]) == [*fields.split(), "nan_iterations"]


def test_parse_reads_standard_input() -> None:
    result = call("parse", "-", stdin=(LOGS / "primus.log").read_bytes())
    assert result.exit_code == 0
    assert len(result.stdout.splitlines()) == 20


@pytest.mark.parametrize(
    ("log", "options", "code"),
    [
        ("rocm.log", [], 0),
        ("rocm.log", ["--iterations", "20"], 0),
        ("rocm.log", ["--iterations", "50"], 1),
        ("rocm.log", ["--expect", "throughput_per_gpu=1"], 0),
        ("rocm.log", ["--expect", "throughput_per_gpu=1e6"], 1),
        ("rocm.log", ["--expect", "elapsed_time_per_iteration=1"], 1),
        ("rocm.log", ["--expect", "elapsed_time_per_iteration=1e9"], 0),
        ("nan_loss.log", [], 1),
        ("out_of_memory.log", [], 1),
        ("rccl_untuned.log", [], 1),
        ("rocm.log", ["--expect", "speed=3"], 2),
        ("rocm.log", ["--expect", "throughput_per_gpu"], 2),
        ("rocm.log", ["--recipe", "no-such"], 2),
        ("rocm.log", ["--recipe", "llama3.1-8b-fp8"], 2),
        ("rocm.log", ["--recipe", "llama3.1-8b-fp8", "--gpu", "mi300x"], 1),
    ],
)
def test_judge_exits_as_the_gates_say(log: str, options: list[str], code: int) -> None:
    result = call("judge", LOGS / log, *options)
    assert result.exit_code == code, result.output
    assert result.exception is None or isinstance(result.exception, SystemExit)


def test_judge_as_json_names_every_gate() -> None:
    document = json.loads(call("judge", LOGS / "nan_loss.log", "--format", "json").stdout)
    assert document["verdict"] == "fail"
    assert {gate["name"] for gate in document["gates"]} >= {"iterations_complete", "loss_finite", "loss_falling"}
    assert all(gate["evidence"] for gate in document["gates"])


def test_judge_and_report_refuse_a_folder_that_is_no_run(tmp_path: Path) -> None:
    for command in ("judge", "report"):
        result = call(command, tmp_path)
        assert result.exit_code == 2
        assert "run.json" in result.output


def test_an_unreadable_log_is_told_with_its_name(tmp_path: Path) -> None:
    assert call("judge", tmp_path / "missing.log").exit_code == 2
    assert call("parse", tmp_path / "missing.log").exit_code == 2


@pytest.mark.parametrize(
    ("text", "words"),
    [(None, "no such file"), ("1 / 0", "ZeroDivisionError: division by zero"), ("rack = []", "no hosts")],
)
def test_an_inventory_that_is_not_there_or_raises_is_unusable_input(
    tmp_path: Path, text: str | None, words: str
) -> None:
    inventory = tmp_path / "site.py"
    if text is not None:
        inventory.write_text(text + "\n")
    shakedown = Path(sys.executable).with_name("shakedown")  # a process of its own: gevent patches this one otherwise
    ran = subprocess.run([shakedown, "drift", inventory], capture_output=True, text=True, check=False)
    assert ran.returncode == 2, ran.stderr
    assert words in ran.stderr
    assert "Traceback" not in ran.stderr


def test_help_teaches_the_exit_codes() -> None:
    text = call("--help").output
    assert "3  drift" in text
    for command in ("show", "plan", "drift", "run", "parse", "judge", "report"):
        assert command in text
