"""Commands over logs and run directories, offline: parse, judge, report."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, NoReturn

import click

from shakedown.findings import Verdict, worst
from shakedown.smoke import gates
from shakedown.smoke.gates import Gate


def _unusable(message: str) -> NoReturn:
    click.echo(f"shakedown: {message}", err=True)
    sys.exit(2)


@click.command()
@click.argument("log", type=click.Path(exists=True, allow_dash=True))
def parse(log: str) -> None:
    """One JSON object per iteration line of a training LOG (- for standard input); null where the line has no value.

    Reads every dialect: upstream Megatron-LM, the ROCm fork, Primus and the forks that print tokens per second.
    """
    from shakedown.smoke.log import parse as parse_lines

    try:
        with click.open_file(log, encoding="utf-8", errors="replace") as lines:
            for iteration in parse_lines(lines):
                click.echo(iteration.model_dump_json())
    except OSError as error:
        _unusable(f"{log}: {error.strerror}")


class Expectation(click.ParamType[tuple[str, float]]):
    """metric=number."""

    name = "metric=number"

    def convert(self, value: Any, param: Any, ctx: Any) -> tuple[str, float]:
        metric, _, number = str(value).partition("=")
        try:
            return metric, float(number)
        except ValueError:
            self.fail(f"{value!r} is not metric=number, as throughput_per_gpu=380", param, ctx)


@click.command()
@click.argument("logs", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@click.option("--recipe", help="a recipe whose figures are expected (with --gpu)")
@click.option("--gpu", help="the GPU profile the recipe's figures are for: mi300x, mi325x, ...")
@click.option("--iterations", type=click.IntRange(min=1), help="how many there must be; otherwise as the lines say")
@click.option("--expect", multiple=True, type=Expectation(), help="throughput_per_gpu=380; repeatable")
@click.option("--format", "form", type=click.Choice(["table", "json"]), default="table")
def judge(
    logs: tuple[Path, ...],
    recipe: str | None,
    gpu: str | None,
    iterations: int | None,
    expect: tuple[tuple[str, float], ...],
    form: str,
) -> None:
    """Apply the gates to training LOGs from anywhere (one per node), or judge a run directory again, offline.

    Metrics: throughput_per_gpu (TFLOP/s/GPU) and tokens_per_gpu (tokens/s/GPU) at least,
    elapsed_time_per_iteration (ms) and mem_usage (fraction) at most.
    """
    if len(logs) == 1 and (logs[0].is_dir() or logs[0].name == "run.json"):
        if recipe or gpu or iterations or expect:
            _unusable("a run directory is judged by its own plan: leave --recipe, --gpu, --iterations and --expect out")
        _judge_run(logs[0] if logs[0].is_dir() else logs[0].parent, form)
    try:
        expected = _expected_of(recipe, gpu) | dict(expect)
        nodes = {_name(path, logs): gates.read_log(path) for path in logs}
        judged = gates.judge_log(nodes, expected, iterations)
    except (ValueError, KeyError) as error:
        _unusable(str(error.args[0]))
    except OSError as error:
        _unusable(f"{error.filename}: {error.strerror}")
    _finish(judged, gates.verdict(judged), form)


def _name(path: Path, logs: tuple[Path, ...]) -> str:
    """A log's own name; its whole path where two have the same."""
    return path.name if sum(other.name == path.name for other in logs) == 1 else str(path)


def _expected_of(recipe: str | None, gpu: str | None) -> dict[str, float]:
    if recipe is None:
        return {}
    from shakedown.smoke.recipe import recipes

    if recipe not in recipes():
        raise ValueError(f"--recipe {recipe}: there are {', '.join(recipes())}")
    entries = recipes()[recipe].entry.expect
    if gpu is None:
        raise ValueError(f"--recipe {recipe}: figures are per GPU model, so --gpu is needed with it")
    for entry in entries:
        if gpu in entry.gpus:
            return dict(entry.figures)
    known = sorted({name for entry in entries for name in entry.gpus})
    raise ValueError(f"--recipe {recipe}: no figures for {gpu!r} (there are for {', '.join(known) or 'none'})")


def _judge_run(path: Path, form: str) -> None:
    from shakedown.runs import RunDirectory, judge_run

    directory = RunDirectory(path)
    try:
        record = directory.load()
        judged = judge_run(directory, record, directory.load_evidence())
    except (OSError, ValueError) as error:
        _unusable(str(error))
    _finish(judged, worst([*(finding.verdict for finding in record.findings), gates.verdict(judged)]), form)


def _finish(judged: list[Gate], verdict: Verdict, form: str) -> None:
    if form == "json":
        rows = [gate.model_dump(mode="json") for gate in judged]
        click.echo(json.dumps({"verdict": verdict, "gates": rows}, indent=1))
    else:
        from shakedown.report import terminal

        console = terminal.console()
        console.print(terminal.gates_table(judged))
        console.print(f"\n{terminal.verdict_text(verdict)}")
    sys.exit(verdict.exit_code)


@click.command()
@click.argument("run", type=click.Path(exists=True, path_type=Path))
@click.option("--format", "form", type=click.Choice(["table", "json"]), default="table")
def report(run: Path, form: str) -> None:
    """What a run came to: the verdict, the nodes, the findings that differ, the gates and the figures.

    RUN is a run directory (runs/latest is the newest). Exits as the run did.
    """
    from shakedown.report import terminal
    from shakedown.runs import RunDirectory

    try:
        record = RunDirectory(run).load()
    except (OSError, ValueError) as error:
        _unusable(str(error))
    if form == "json":
        click.echo(record.model_dump_json(indent=1))
    else:
        console = terminal.console()
        for part in terminal.report(record):
            console.print(part)
    sys.exit(record.verdict.exit_code)
