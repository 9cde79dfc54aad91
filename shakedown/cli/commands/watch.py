"""The command that follows a run from another terminal: watch."""

import sys
from dataclasses import replace

import click

from shakedown.cli.words import EXIT_CODES, unusable
from shakedown.common.text import printable
from shakedown.report import terminal
from shakedown.report.failure import of_run
from shakedown.report.summary import fitted, summary_lines
from shakedown.runs.folder import find_run
from shakedown.runs.watch.screen import Gone, follow, verdict_of

PREPARE = ("stream",)


@click.command(epilog=EXIT_CODES)
@click.argument("run", default="latest")
def watch(run: str) -> None:
    """Follow a run that goes on in another terminal, to its end: a cell for each node, the stage and what it waits
    for, the jobs with loss and TFLOP/s, the time left, the gates, the first failure and the last events. On a
    terminal one screen, elsewhere lines of what changes.

    RUN is its id, a part that only its id begins with, latest, or its directory. Ctrl-C ends the watching and leaves
    the run alone. Exits as the run does; with 4 where its controller was killed.

    \b
    shakedown watch
    shakedown watch 20261122T0144 | tee watched.log
    """
    out = terminal.console()
    try:
        folder = find_run(run)
        record, picture = follow(folder, out)
    except Gone as gone:
        click.echo(f"verdict: unknown\n  {printable(str(gone))}")
        sys.exit(4)
    except (OSError, ValueError) as error:
        unusable(error)
    except KeyboardInterrupt:
        click.echo("the watching ends here; the run goes on", err=True)
        sys.exit(130)
    verdict = verdict_of(record, picture)
    if verdict.passes:
        out.print(f"verdict: {terminal.verdict_text(verdict)}\nevidence: {terminal.safe(str(folder))}")
    else:
        for line in fitted(summary_lines(replace(of_run(record, folder), verdict=verdict))):
            out.print(line, markup=False, soft_wrap=True)
    sys.exit(verdict.exit_code)
