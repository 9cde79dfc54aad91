"""Trials over an inventory."""

import click

from shakedown.cli.words import EXIT_CODES, Target, names_by, over_inventory, read_by
from shakedown.common.nearest import refuse_unknown
from shakedown.trials.workload.registry import trials as known

PREPARE = ("signals", "gevent")
SECTION = "Run"


def _known(names: tuple[str, ...]) -> None:
    refuse_unknown(names, known(), "trial")


@click.command(epilog=EXIT_CODES)
@over_inventory
@click.option(
    "--only",
    metavar="TRIALS",
    callback=read_by(names_by(_known), ()),
    help="these trials alone, with commas between them: gemm,memory,pairs",
)
@click.option("--dry", is_flag=True, help="show rounds, seconds and each node's command; start nothing")
def trials(target: Target, only: tuple[str, ...], dry: bool) -> None:
    """Measure each node alone and nodes in pairs, and judge every figure against the fleet: the same as
    `pyinfra INVENTORY deploy/trials.py -y`. It changes no setting.

    \b
    shakedown trials inventories/rack.py                    all trials
    shakedown trials inventories/rack.py --only gemm,pairs  two of them
    shakedown trials inventories/rack.py --dry              rounds and seconds
    """
    from shakedown.cli.nodes import invocation, load_state, run_deploy  # pyinfra: see there

    state = load_state(target, target.verbose, keeps=not dry)
    invocation.only = only
    run_deploy(state, "trials", dry)
