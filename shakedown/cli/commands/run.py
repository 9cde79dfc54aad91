"""Bring-up and smoke run."""

import sys
from pathlib import Path

import click

from shakedown.cli.output import format_and_output, show_document
from shakedown.cli.words import EXIT_CODES, Target, over_inventory
from shakedown.common.text import complaint
from shakedown.report.formats import Run

PREPARE = ("signals", "gevent")
SECTION = "Run"


@click.command(epilog=EXIT_CODES)
@over_inventory
@click.option("--dry", is_flag=True, help="show every finding and every change; change nothing")
@click.option("-y", "--yes", is_flag=True, help="do not ask on a terminal whether to go on")
@click.option("--no-smoke", is_flag=True, help="everything but the training, as deploy/bringup.py does")
@click.option("--batch", metavar="NODES", help="so many nodes at a time: 4, or 10%; the smoke run is one, at the end")
@click.option("--max-failed", metavar="NODES", help="more failed nodes than this (2, or 5%) end a run in batches")
@click.option("--resume", metavar="RUN", help="go on where that run in batches ended; done nodes are not touched again")
@format_and_output(Run, none="at the end, on standard output, in this format; nothing without it")
def run(
    target: Target,
    dry: bool,
    yes: bool,
    no_smoke: bool,
    batch: str | None,
    max_failed: str | None,
    resume: str | None,
    form: str | None,
    output: Path | None,
) -> None:
    """Bring every node into its desired state and run the smoke test: the same as
    `pyinfra INVENTORY deploy/megatron.py -y`, with the exit codes below. On a terminal it asks once before it connects.

    \b
    shakedown run inventories/rack.py --dry       changes, time and job
    shakedown run inventories/rack.py --no-smoke  everything but the training
    shakedown run inventories/rack.py --limit 'node[01-04]'
    shakedown run inventories/rack.py --batch 10% --max-failed 2
    shakedown run inventories/rack.py --resume latest
    shakedown run inventories/rack.py --output junit.xml

    However it ends, the last lines on stderr say what became of each node and why, what was changed, and where the
    evidence is.
    """
    from shakedown.cli.nodes import invocation, load_state, to_its_end, usable_input  # pyinfra: see there

    with usable_input():
        state = load_state(target, 1 + target.verbose, to_train=not no_smoke, keeps=not dry)
        from shakedown.runner import ending, engine, rolling, session  # 500 ms that a wrong inventory does not need

        batches = rolling.requested(state, batch, max_failed, resume)
    invocation.dry, invocation.changes = dry, True
    invocation.shows = dry and (form is None or output is not None)  # or standard output is the report's
    callers = rolling.Callers(state, batches.tries) if batches and not dry else None
    try:
        with to_its_end(state, callers.connect if callers else None, ask=not (yes or dry)):
            if batches and callers:
                rolling.run(state, batches, callers, smoke=not no_smoke)
            else:
                engine.run_deploy(state, "bringup" if no_smoke else "megatron", dry=dry)
            if batches and dry:
                rolling.show_batches(session.session(), batches)
            session.session()
    finally:  # the report is written however the run ends
        if form is not None:
            if (current := session.opened(state)) is None:
                click.echo(complaint("no report: no node was examined"), err=True)
            elif show_document(current.document(), form, output, ending.finish(state)) == 2:
                sys.exit(2)  # but an interrupted run exits as one
    sys.exit(ending.finish(state).exit_code)
