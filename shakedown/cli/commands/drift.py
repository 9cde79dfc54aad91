"""The comparison of nodes with their desired states."""

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from shakedown.checks.waivers import first_to_end
from shakedown.cli.output import format_and_output, show_document, with_view
from shakedown.cli.words import EXIT_CODES, Target, over_inventory
from shakedown.common.text import complaint
from shakedown.report.formats import Findings
from shakedown.runs import CAPTURE
from shakedown.state.findings import Verdict

PREPARE = ("signals", "gevent")


@click.command(epilog=EXIT_CODES)
@over_inventory
@format_and_output(Findings)
@with_view
@click.option("--nodes", "expected", type=click.IntRange(min=1), help="fewer nodes than this is a failure")
@click.option("--ledger", is_flag=True, help="keep the check in the ledger too")
@click.option("--from-agents", is_flag=True, help="read the last reports of the agents on the nodes; examine nothing")
@click.option("--prometheus", metavar="URL", help="connect only to nodes whose agents' reports there give a reason")
def drift(
    target: Target,
    form: str,
    output: Path | None,
    expected: int | None,
    ledger: bool,
    from_agents: bool,
    prometheus: str | None,
    **view: Any,
) -> None:
    """Compare every node with its desired state. Never changes a node.

    One reading per node. One line per cause, over its nodes, with what is and what was wanted; findings that follow
    from it are counted behind it. -v adds the evidence. The check is kept: `shakedown report` shows it again. Of an
    inventory the newest 50 checks stay (`kept_checks`).

    \b
    shakedown drift inventories/rack.py --nodes 32      fewer answers fail
    shakedown drift inventories/rack.py --format jsonl  a finding a line
    shakedown drift inventories/rack.py --output rack.html
    shakedown drift inventories/rack.py --from-agents   the agents' verdicts
    shakedown drift capture-5f1c9a02.json.gz            a recorded node
    shakedown drift inventories/rack.py --prometheus http://prometheus:9090
    """
    if target.inventory.endswith(CAPTURE):
        from shakedown.cli.captures import show  # 200 ms that the usual way loads later

        sys.exit(show(Path(target.inventory), form, output, evidence=bool(target.verbose), **view))
    if from_agents and ledger:
        raise click.UsageError("--ledger keeps the nodes' states, which --from-agents does not read")
    if from_agents and prometheus:
        raise click.UsageError("--from-agents reads every node's report over SSH, --prometheus none: choose one")
    from shakedown.cli.nodes import invocation, load_state, progress, to_its_end, usable_input  # pyinfra: see there

    state = load_state(target, target.verbose)
    chosen = None
    if from_agents:
        from shakedown.runner.agents import collect as look  # 500 ms that a usual check does not need
    else:
        from shakedown.runner import examine, run_nodes, selection  # pyinfra

        look = examine.examine
        with usable_input():
            chosen = selection.choose(state, prometheus) if prometheus else None
    left_out = chosen.left_out if chosen else []
    if chosen:
        click.echo(complaint(chosen), err=True)

    with to_its_end(state) as keep:
        examination = look(state)
        answered = examination.answered + len(left_out)
        few = expected is not None and answered < expected
        keep(examination, *([f"{answered} of {expected} expected nodes answered"] if few else []))
        progress(state).shown = form == "table" and output is None
        verdict = Verdict.FAIL if few else examination.verdict()
        at = datetime.now(UTC).isoformat(timespec="seconds")
        findings = [*examination.all_findings(), *left_out]
        kept = None if from_agents else run_nodes.keep_check(state, examination, verdict, ledger=ledger)
        nodes, waivers = len(examination.desired) + len(left_out), first_to_end(examination.desired.values())
        view |= {"source": "agents" if from_agents else "drift", "waivers": waivers, "directory": kept}
        view |= {"evidence": bool(target.verbose), "groups": examination.groups}
        document = Findings(verdict, nodes, findings, inventory=target.inventory, at=at, **view)
        if from_agents:
            click.echo(complaint("as the nodes' agents reported: nodes are not compared with each other"), err=True)
        if chosen and (why := chosen.keep(examination)):
            click.echo(complaint(why), err=True)
        code = show_document(document, form, output, verdict)
        code = Verdict.FAIL.exit_code if invocation.unrecorded else code
    sys.exit(code)
