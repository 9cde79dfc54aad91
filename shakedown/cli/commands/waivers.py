"""The waivers of an inventory."""

from collections.abc import Collection
from datetime import UTC, date, datetime
from typing import Any

import click

from shakedown.cli.output import format_of
from shakedown.cli.words import Target, over_inventory
from shakedown.common.lists import grouped
from shakedown.common.runs_folder import runs_folder
from shakedown.common.text import counted
from shakedown.hosts import few, folded
from shakedown.report.formats import Waivers, write
from shakedown.runs.directory import RunDirectory
from shakedown.runs.folder import run_ids

PREPARE = ("gevent",)
SECTION = "Find out"
SOON_DAYS = 14  # before the end of a waiver its owner is reminded


@click.command()
@over_inventory
@format_of(Waivers)
def waivers(target: Target, form: str) -> None:
    """List the known exceptions that the inventory declares (section waivers), until when each holds, and which nodes
    of the newest run or check rest on it. Connects to nothing.

    A waived finding is a warning. When its last day is over, or the part with the serial number has left the node, the
    finding fails or drifts again.

    \b
    shakedown waivers inventories/rack.py
    shakedown waivers inventories/rack.py --format json
    """
    from shakedown.cli.nodes import desired_states, load_state  # pyinfra: see there

    resolved = desired_states(load_state(target, connects=False))
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    rests = _newest(resolved.states)
    for state in resolved.states.values():
        for name, waiver in state.waivers.items():
            left = (date.fromisoformat(waiver.until) - datetime.now(UTC).date()).days
            ended = f"ended on {waiver.until}: what it names fails again; renew it or remove it"
            soon = "; renew it or remove it by then" if left <= SOON_DAYS else ""
            places = [*([folded(waiver.hosts)] if waiver.hosts else []), *(f"part {part}" for part in waiver.parts)]
            rows[name, waiver.model_dump_json()] = {
                "name": name,
                "what": waiver.finding or f"catalogue entry {waiver.entry}",
                "where": ", ".join(places),
                "status": ended if left < 0 else f"until {waiver.until}, {counted(left, 'day')} left{soon}",
                "reason": waiver.reason,
                "owner": waiver.owner,
                "until": waiver.until,
                "rests": rests.get(name, ""),
            }
    write(Waivers(list(rows.values())), form)


def _newest(hosts: Collection[str]) -> dict[str, str]:
    """Return the nodes that rest on each waiver in the newest run or check of these hosts, in a sentence."""
    for run in run_ids():
        try:
            record = RunDirectory(runs_folder() / run).load()
        except (OSError, ValueError):
            continue
        if any(finding.node in hosts for finding in record.findings):
            resting = (finding for finding in record.findings if finding.waiver and finding.node in hosts)
            nodes = grouped((str(finding.waiver), finding.node) for finding in resting)
            return {name: f"{few(dict.fromkeys(held))} in {record.run_id}" for name, held in nodes.items()}
    return {}
