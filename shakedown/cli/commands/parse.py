"""The iteration lines of a training log as JSON, offline."""

import sys
from collections.abc import Iterable

import click

from shakedown.cli.words import reason, unusable
from shakedown.common.text import complaint, printable
from shakedown.logs.iterations import Iteration, LogReader
from shakedown.logs.source import LogSource
from shakedown.state.findings import Verdict

PREPARE = ("stream",)


@click.command()
@click.argument("log")
def parse(log: str) -> None:
    """Print one JSON object per iteration line of a training LOG (- for standard input).

    A value that the line does not have is null.

    Reads every dialect: upstream Megatron-LM, the ROCm fork, Primus and the forks that print tokens per second; plain,
    gzip, bzip2 or UTF-16. A log that is not whole is reported, and exits with 4.

    \b
    shakedown parse train.log
    zcat train.log.gz | shakedown parse - | jq .lm_loss
    """
    reader, source, found = LogReader(), LogSource(log, digest=False), False
    try:
        for chunk in source:
            found |= _show(reader.feed(chunk))
        found |= _show(reader.close())
    except BrokenPipeError:
        raise  # of standard output, whose reader has seen enough: not the log's
    except (OSError, ValueError) as error:
        unusable(reason(log, error))
    if source.incomplete:
        click.echo(complaint(printable(source.incomplete)), err=True)
        sys.exit(Verdict.UNKNOWN.exit_code)
    if not found:
        click.echo(complaint(f"{source.name}: no iteration line in it"), err=True)


def _show(iterations: Iterable[Iteration]) -> bool:
    text = "".join(f"{iteration.json()}\n" for iteration in iterations)
    if text:
        click.echo(text, nl=False)
    return bool(text)
