"""The whole path over a simulated rack."""

import sys
from datetime import UTC, datetime
from pathlib import Path
from textwrap import wrap

import click

from shakedown.cli.output import format_and_output, show_document, with_all
from shakedown.cli.words import EXIT_CODES, in_a_writable_folder, unusable
from shakedown.common.nearest import nearest
from shakedown.common.text import counted
from shakedown.report import screen
from shakedown.report.formats import Findings, Run, write
from shakedown.report.outcomes import END
from shakedown.report.summary import LINES
from shakedown.runner.demo.play import Demo
from shakedown.runner.demo.scenario import DEFAULT, INVENTORY, SIMULATED, Scenario, faults

PREPARE = ("stream",)
SECTION = "Prepare"


def _known(_context: click.Context, _parameter: click.Parameter, names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the faults that --fault names, each once, or the words that stand for all and for none."""
    unknown = [name for name in names if name not in faults()]
    if unknown and "list" not in names and names != ("none",):
        lines = [f"{name}{nearest(name, faults(), ': did you mean ', '?')}" for name in unknown]
        raise click.BadParameter(f"{'; '.join(lines)} (--fault list: all)")
    return tuple(dict.fromkeys(names))


@click.command(epilog=EXIT_CODES)
@click.option("--nodes", "count", type=click.IntRange(2, 4096), default=64, show_default=True, help="in the rack")
@click.option(
    "--fault",
    "names",
    multiple=True,
    callback=_known,
    metavar="NAME",
    help="play this one; repeatable; list: print all; none",
)
@click.option("--seed", type=int, default=1, show_default=True, help="of the noise, and of where the faults are")
@click.option(
    "--folder",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("simulated-runs"),
    callback=in_a_writable_folder,
    show_default=True,
    help="for the simulated run and its own ledger",
)
@format_and_output(Run)
@with_all
def demo(
    count: int, names: tuple[str, ...], seed: int, folder: Path, form: str, output: Path | None, show_all: bool
) -> None:
    """Show a bring-up without hardware: a simulated rack of MI300X nodes with a few faults.

    The nodes, the job's logs and its figures are made up; the checks, the plan, the supervision of the job, the gates,
    the diagnosis, the search, the report and the ledger are the real ones. Everything is marked SIMULATED and stays in
    --folder. The exit code is that of the simulated run.

    \b
    shakedown demo                         64 nodes, seven faults
    shakedown demo --fault list            the faults that can be played
    shakedown demo --nodes 8 --fault slow  a slow node: a search finds it
    shakedown demo --fault none            a rack that passes
    """
    if "list" in names:
        width = max(map(len, faults()))
        for fault in faults().values():
            click.echo(f"{fault.name:{width}}  {fault.what}")
        return
    chosen = () if names == ("none",) else names or DEFAULT
    run = Demo(Scenario.of(count, chosen, seed), folder, seed, lambda event: _say(event.text, event.kind))
    _say(f"{count} simulated nodes; no hardware is used. Faults: {', '.join(chosen) or 'none'}")
    findings, seen = run.examine(), 0
    if form == "table" and output is None:
        click.echo(f"{SIMULATED}: nothing below was measured; {INVENTORY} stands for your own inventory")
        at = datetime.now(UTC).isoformat(timespec="seconds")
        verdict = run.examination.verdict()
        document = Findings(verdict, count, findings, show_all, inventory=INVENTORY, at=at, lines=LINES - 1 - END)
        seen = 1 + len(list(screen.table(document)))
        write(document, form)
    for name, nodes in run.repair().items():
        _say(f"operation {name}: {counted(len(nodes), 'node')} changed")
    try:
        record = run.train()
    except OSError as error:
        unusable(f"{folder}: {error.strerror or error}")
    directory = folder / record.run_id
    code = show_document(Run(record, show_all, directory, seen=seen), form, output, record.verdict)
    _say("the report as a page:")
    _say(f"shakedown report {directory} --output report.html")
    sys.exit(code)


def _say(text: str, kind: str = "phase") -> None:
    if kind != "iteration":
        lines = wrap(text, 89, break_long_words=False, break_on_hyphens=False)
        for line in lines if kind == "phase" else lines[:1]:
            click.echo(f"{SIMULATED}: {line}", err=True)
