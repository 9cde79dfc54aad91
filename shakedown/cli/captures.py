"""Recording a node, and showing the findings of what was recorded: a command imports this when it does either."""

from shakedown.cli import nodes  # first: it has gevent patch the process

# isort: split
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from shakedown.cli.output import show_document
from shakedown.cli.words import Target, reason, unusable
from shakedown.common.text import complaint, printable
from shakedown.report.formats import Findings
from shakedown.runner.examine import examine
from shakedown.runner.progress import progress
from shakedown.runs.capture import load, replay, write


def record(target: Target, host: str, output: Path | None) -> None:
    """Read one host, and write its capture."""
    state = nodes.load_state(replace(target, limit=(host,)), target.verbose)
    answers: dict[str, dict[str, Any]] = {}
    with nodes.to_its_end(state) as keep:
        examination = examine(state, answers)
        keep(examination)
        progress(state).announced = True  # nothing is written as long as this holds, and nothing gets a verdict
        name, *others = examination.desired
        if others or not answers[name]:
            why = f"{len(others) + 1} hosts, where capture takes one" if others else examination.readings[name].why
            unusable(f"{printable(host)}: nothing was written: {printable(why)}")
        try:
            path, names = write(examination, name, answers[name], output)
        except (ValueError, OSError) as error:
            unusable(f"nothing was written: {printable(str(error))}")
        progress(state).announced = False
        click.echo(f"{printable(str(path))}: {path.stat().st_size} bytes, {len(answers[name])} answers")
        click.echo(f"names: what the pseudonyms stand for: {printable(str(names))} (keep it)")


def show(path: Path, form: str, output: Path | None, **view: Any) -> int:
    """Show the findings of a capture. Return the exit code; connect to nothing, and keep nothing."""
    try:
        capture = load(path)
        examination = replay(capture)
    except FileNotFoundError:
        unusable(f"{path}: there is no such capture: record one with shakedown capture INVENTORY HOST")
    except (ValueError, OSError) as error:
        unusable(reason(str(path), error))
    click.echo(complaint(f"{printable(capture.node)} as captured at {printable(capture.at)}"), err=True)
    verdict = examination.verdict()
    document = Findings(verdict, 1, examination.all_findings(), inventory=str(path), at=capture.at, **view)
    return show_document(document, form, output, verdict)
