"""The way back into service: service."""

import sys
from typing import Any, NoReturn

import click

from shakedown.cli.output import format_of
from shakedown.cli.words import EXIT_CODES, Target, over_inventory, usable
from shakedown.common.text import complaint
from shakedown.hosts import few
from shakedown.ledger import LedgerError
from shakedown.ledger.store import open_ledger
from shakedown.report.formats import InService, write
from shakedown.state.findings import Verdict

PREPARE = ("gevent",)
SECTION = "Operate"


@click.command(epilog=EXIT_CODES)
@over_inventory
@format_of(InService)
@click.option("--all", "show_all", is_flag=True, help="in the table, also what is in service, and each node's steps")
@click.option("--repair", is_flag=True, help="act: each suspect's next repair, a check, then load, while that helps")
@click.option("--mend", is_flag=True, hidden=True)  # the former name of --repair
@click.option("--drain", is_flag=True, help="act: drain suspects in the scheduler, and resume those that are cleared")
@click.option("--take-back", "taken", multiple=True, metavar="HOSTS", help="a person repaired them: load them")
@click.option("--dry", is_flag=True, help="with --repair or --drain: show what would be done, and do nothing")
def service(
    target: Target,
    form: str,
    show_all: bool,
    repair: bool,
    mend: bool,
    drain: bool,
    taken: tuple[str, ...],
    dry: bool,
) -> None:
    """Show which nodes are in service, suspect, under repair or out, and bring suspects back with --repair.

    Reads the nodes, the ledger and the scheduler; changes nothing without --repair or --drain, and then only what the
    desired state allows (section service). A repaired node is in service only when it has passed under load.

    \b
    shakedown service inventories/rack.py --all           with steps and parts
    shakedown service inventories/rack.py --repair --dry  what would be done
    shakedown service inventories/rack.py --repair        repairs, one by one
    shakedown service inventories/rack.py --take-back node03.rack7
    """
    if taken and dry:
        raise click.UsageError("--take-back is written into the ledger at once: give --dry without it")
    from shakedown.cli.nodes import engine, load_state, to_its_end, usable_input  # pyinfra: see there

    repair = repair or mend
    acts = (repair or drain) and not dry
    with usable_input():
        state = load_state(target, target.verbose, keeps=acts or bool(taken))
        taken = tuple(engine.choose(state.inventory, taken, "--take-back")) if taken else ()
    with usable(LedgerError):
        ledger = open_ledger()
    from shakedown.runner.repair.call import Busy, Commands, ServiceCall  # pyinfra

    work = ServiceCall(ledger, Commands(target.inventory, target.data, target.parallel or 0), target.limit)
    try:
        with to_its_end(state) as keep:
            try:
                if not ledger.exists():
                    none = "there is none yet: only what is read now counts"
                    click.echo(complaint(f"ledger {ledger.place.name}: {none}"), err=True)
                found = work.first(state, keep, acts or bool(taken), taken)
                if found.board().verdict is Verdict.FAIL and not acts:  # whatever was read now
                    absent = [node.node for node in found.board().nodes if node.standing != "in service"]
                    keep(f"not in service: {few(absent)}")
            except LedgerError as error:  # in words, and no traceback
                _unread(error)
        if acts:
            found = work.act(found, repair, drain)
    except LedgerError as error:
        _unread(error)
    except Busy as error:
        click.echo(complaint(error), err=True)
        sys.exit(1)
    board: Any = found.board()
    write(InService(board, show_all), form)
    if dry:
        for line in work.preview(found, repair, drain):
            click.echo(line, err=form != "table")
    sys.exit(130 if work.commands.interrupted else board.verdict.exit_code)


def _unread(error: Exception) -> NoReturn:
    """End with 4: without the ledger it is unknown what speaks against a node."""
    click.echo(complaint(error), err=True)
    sys.exit(4)
