"""The smoke run's plan."""

import sys

import click

from shakedown.cli.output import format_of
from shakedown.cli.words import Target, over_inventory
from shakedown.common.text import complaint
from shakedown.report.formats import Plans, write

PREPARE = ("signals", "gevent")
SECTION = "Prepare"


@click.command()
@over_inventory
@format_of(Plans)
def plan(target: Target, form: str) -> None:
    """Show the smoke run as it would start now: ranks, addresses, devices, and the command of the first node and how
    the others differ (-v: of each), job by job.

    With --format json it is one plan, or an object of plans by the jobs' names where smoke.scope asks for several.
    Reads the nodes and starts nothing. What cannot be derived or does not fit is listed, all of it, with exit code 1;
    in JSON such a job has an object with the key problems, a list of lines, and no plan.

    \b
    shakedown plan inventories/rack.py
    shakedown plan inventories/rack.py --limit 'node[01-04]' --format json
    """
    from shakedown.cli.nodes import load_state, progress, to_its_end  # pyinfra: see there

    state = load_state(target, target.verbose, to_train=True)
    from shakedown.runner import examine, training  # pyinfra, and 500 ms that a wrong inventory does not need

    with to_its_end(state) as keep:
        examination = examine.examine(state)
        plans, errors = training.plans_of(examination)
        for error, names in errors.items():
            click.echo(complaint(f"{', '.join(names)}: {error}"), err=True)
        if not examination.verdict().passes:
            examine.show_screen(examination)
            progress(state).shown = True
        keep(examination, *(f"no launch plan for {', '.join(names)}: see above" for names in errors.values()))
    problems = {name: error for error, names in errors.items() for name in names}
    write(Plans(plans, problems, whole=bool(target.verbose)), form)
    sys.exit(1 if errors else 0)
