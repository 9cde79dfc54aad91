"""The iteration lines of a training log as JSON, offline."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from shakedown.cli import unusable

if TYPE_CHECKING:
    from shakedown.logs.log import Iteration


@click.command()
@click.argument("log")
def parse(log: str) -> None:
    """One JSON object per iteration line of a training LOG (- for standard input); null where the line has no value.

    Reads every dialect: upstream Megatron-LM, the ROCm fork, Primus and the forks that print tokens per second; plain,
    gzip, bzip2 or UTF-16. A log that is not whole is reported, and exits with 4.

    \b
    shakedown parse train.log
    zcat train.log.gz | shakedown parse - | jq .lm_loss
    """
    from shakedown.logs.log import LogReader
    from shakedown.logs.log_source import LogSource

    reader, source, found = LogReader(), LogSource(log, digest=False), False
    try:
        for chunk in source:
            found |= _show(reader.feed(chunk))
        found |= _show(reader.close())
    except BrokenPipeError:
        raise  # of standard output, whose reader has seen enough: not the log's
    except (OSError, ValueError) as error:
        unusable(f"{log}: {error.strerror}" if isinstance(error, OSError) else error)
    if source.incomplete:
        from shakedown.common.text import printable
        from shakedown.state.findings import Verdict

        click.echo(f"shakedown: {printable(source.incomplete)}", err=True)
        sys.exit(Verdict.UNKNOWN.exit_code)
    if not found:
        click.echo(f"shakedown: {source.name}: no iteration line in it", err=True)


def _show(iterations: Iterable[Iteration]) -> bool:
    text = "".join(f"{iteration.json()}\n" for iteration in iterations)
    if text:
        click.echo(text, nl=False)
    return bool(text)
