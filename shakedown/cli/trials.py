"""Trials over an inventory."""

from __future__ import annotations

import sys

import click

from shakedown.cli import EXIT_CODES
from shakedown.cli.nodes import load_state, over_inventory, to_its_end, usable_input


@click.command(epilog=EXIT_CODES)
@over_inventory
@click.option("--only", metavar="TRIALS", help="these trials alone, with commas between them: gemm,memory,pairs")
@click.option("--dry", is_flag=True, help="show rounds, seconds and each node's command; start nothing")
def trials(
    inventory: str,
    limit: tuple[str, ...],
    data: tuple[str, ...],
    parallel: int,
    verbose: int,
    only: str | None,
    dry: bool,
) -> None:
    """Measure each node by itself and nodes in pairs, and judge every figure against the fleet: the same as
    `pyinfra INVENTORY deploy/trials.py -y`. It changes no setting.

    \b
    shakedown trials inventories/rack.py                       all trials
    shakedown trials inventories/rack.py --only gemm,pairs     two of them
    shakedown trials inventories/rack.py --dry                 how many rounds, and about how many seconds
    """
    with usable_input():
        from shakedown.desired.models import Trials
        from shakedown.runner import engine
        from shakedown.runner.engine import InventoryError
        from shakedown.runs.directory import why_none_can_be_kept
        from shakedown.trials.plan import chosen_trials

        engine.show_pyinfra_log(verbose)
        names = tuple(name.strip() for name in only.split(",") if name.strip()) if only else ()
        state = load_state(inventory, limit, data, parallel)
        try:
            chosen_trials(Trials(), names)
        except ValueError as error:
            raise InventoryError(str(error)) from None
        if not dry and (why := why_none_can_be_kept()):
            raise InventoryError(why)
    from shakedown.runner.ending import finish
    from shakedown.runner.pyinfra.invocation import invocation
    from shakedown.runner.session import session

    invocation.dry, invocation.only = dry, names
    with to_its_end(state):
        engine.run_deploy(state, "trials", dry=dry)
        session()
    sys.exit(finish(state).exit_code)
