"""The desired state of one host, or its last state."""

import click

from shakedown.cli.output import format_of
from shakedown.cli.words import Target, over_inventory, unusable
from shakedown.common.secrets import masked
from shakedown.desired.layers import leaves
from shakedown.desired.problems import DesiredStateError
from shakedown.hosts import named
from shakedown.report.formats import Desired, write

PREPARE = ("gevent",)
SECTION = "Prepare"


@click.command()
@over_inventory
@click.argument("host")
@click.option("--state", "last_state", is_flag=True, help="what the node was when it was last read, and what differs")
@format_of(Desired)
def show(target: Target, host: str, last_state: bool, form: str) -> None:
    """Show the desired state of one HOST: every value with the layer it came from. Connects to nothing.

    \b
    shakedown show inventories/rack.py node01.rack7
    shakedown show inventories/rack.py node01.rack7 --state  as last read
    """
    from shakedown.cli.nodes import desired_states, engine, load_state, usable_input  # pyinfra: see there

    with usable_input():
        state = load_state(target, connects=False)
        resolved = desired_states(state)
        if resolved.of_job:
            raise DesiredStateError(resolved.of_job)
        host, *others = engine.choose(state.inventory, [host], "HOST")
    if others:
        unusable(f"{target.inventory}: show takes one host, and these are {named([host, *others])}")
    if host not in resolved.merged:
        unusable(f"{target.inventory}: --limit leaves {host} out")
    if last_state:
        from shakedown.cli.last_state import show_state  # 200 ms that the desired state does not need

        show_state(host, form, target.inventory)
        return
    merged = resolved.merged[host]
    smoke = resolved.states[host].smoke
    values = masked(merged.values, smoke.not_secret if smoke else ())
    write(Desired(host, {path: (value, merged.origin_of(path)) for path, value in leaves(values)}), form)
