"""The way back."""

import click

from shakedown.cli.words import EXIT_CODES, Target, over_inventory

PREPARE = ("signals", "gevent")
SECTION = "Operate"


@click.command(epilog=EXIT_CODES)
@over_inventory
@click.option("--dry", is_flag=True, help="show what would be restored, on which nodes; change nothing")
@click.option("-y", "--yes", is_flag=True, help="do not ask on a terminal whether to go on")
def rollback(target: Target, dry: bool, yes: bool) -> None:
    """Restore what stood on the nodes before the first change to each setting, and remove what Shakedown wrote: the
    same as `pyinfra INVENTORY deploy/rollback.py -y`. On a terminal it asks once before it connects. It needs root on
    the nodes, and no desired state.

    \b
    shakedown rollback inventories/rack.py --dry  what would be restored
    shakedown rollback inventories/rack.py --limit node03.rack7
    shakedown rollback inventories/rack.py -y     without a question

    A node that has no record of a change is left alone. Downloaded images and data stay.
    """
    from shakedown.cli.nodes import load_state, run_deploy  # pyinfra: see there

    state = load_state(target, 1 + target.verbose, unasked=True)
    run_deploy(state, "rollback", dry, ask=not (yes or dry))
