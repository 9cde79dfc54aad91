"""The report of a run, or of the ledger."""

import sys
from datetime import datetime
from pathlib import Path
from typing import NoReturn

import click

from shakedown import ledger as memory
from shakedown.cli.output import format_and_output, show_document
from shakedown.cli.words import Since, unusable, usable
from shakedown.common.text import complaint, printable
from shakedown.report.formats import Remembered, Run, names
from shakedown.runs.archive.read import opened_run
from shakedown.runs.folder import run_ids
from shakedown.runs.watch.notes import remarks
from shakedown.state.findings import Verdict, worst

WEEKS = 2000  # runs of a ledger that are shown together: the newest


@click.command()
@click.argument("run", required=False)
@click.option("--ledger", is_flag=True, help="instead of one run, those of the ledger")
@click.option("--since", type=Since(), metavar="TIME", help="with --ledger: 2026-11-01 (UTC), or 12h, 7d, 4w ago")
@format_and_output(Run)
@click.option("-v", "--all", "show_all", is_flag=True, help="in the table, all evidence, and each node alone")
def report(
    run: str | None, ledger: bool, since: datetime | None, form: str, output: Path | None, show_all: bool
) -> None:
    """Show the result of a run: the verdict, the nodes, the findings that differ, the gates and the figures.

    RUN is its id, a part that only its id begins with, latest, its directory, or the file that `shakedown bundle` made
    of it; without RUN, the newest run or check. Exits as the run did. Of a failed run it shows one screen; -v shows the
    evidence.

    
    shakedown report
    shakedown report runs/20261122T014456-4dc983 --format json
    shakedown report latest --output rack7.html
    shakedown report --ledger --since 4w --output weeks.html
    """
    if (ledger and run is not None) or (since is not None and not ledger):
        unusable("report takes a RUN, or --ledger, which alone takes --since")
    if ledger:
        _report_ledger(since, form, output)
    run = run or next(iter(run_ids()), "latest")
    with usable(), opened_run(run) as opened:
        directory, messages, altered = opened.directory, opened.messages, opened.altered
        record = directory.load()
        if altered:
            record = record.model_copy(update={"verdict": worst([record.verdict, Verdict.UNKNOWN])})
        lines = [*messages, *altered, directory.lacking(record)]
        for line in [*lines, *remarks(directory.path, record, bool(opened.archive))]:
            if line:
                click.echo(complaint(printable(line)), err=True)
        links = "" if messages else f"{directory.path.resolve().as_uri()}/"
        code = show_document(Run(record, show_all, directory.path, links=links), form, output, record.verdict)
    sys.exit(code)


def _report_ledger(since: datetime | None, form: str, output: Path | None) -> NoReturn:
    forms = names(Remembered)
    if form not in forms:
        unusable(f"--format {form}: the ledger has {', '.join(forms)}")
    try:
        ledger, read = memory.store.open_ledger(), memory.history
        answer = read.history(ledger, read.Asked(since=since, limit=WEEKS))
        nodes = read.fleet(ledger, since) if form == "html" else ()
    except memory.LedgerError as error:
        unusable(str(error))
    sys.exit(show_document(Remembered(answer, nodes), form, output, Verdict.OK))
