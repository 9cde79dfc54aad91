"""Commands over an inventory: show, plan, drift, run."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from shakedown.cli import EXIT_CODES, format_and_output, format_of, unusable, with_all
from shakedown.cli import show as show_document
from shakedown.desired import DesiredStateError
from shakedown.report.formats import Desired, Findings, Plans, Run, write
from shakedown.state.findings import Verdict

if TYPE_CHECKING:
    from pyinfra.api import State


Command = TypeVar("Command", bound=Callable[..., Any])


def _an_inventory(_context: click.Context, _parameter: click.Parameter, given: str) -> str:
    """Return what stands for INVENTORY. Raises BadParameter for what pyinfra would wait for: pipes, devices, /proc."""
    path = Path(given)
    if path.exists() and not path.is_dir() and not (path.is_file() and path.stat().st_size):
        what = "an inventory is a Python file, or names such as @local"
        raise click.BadParameter(f"{given} is no file, or an empty one: {what}")
    return given


def over_inventory(function: Command) -> Command:
    """The argument and options that every command over an inventory takes."""
    for decorate in (
        click.option("-v", "--verbose", count=True, help="show pyinfra's own lines: connections, operations, warnings"),
        click.option("--parallel", type=click.IntRange(min=1), help="how many nodes are worked on at once"),
        click.option(
            "--data",
            multiple=True,
            metavar="KEY=VALUE",
            help="override host data: gpu=mi300x, ssh_port=2222; repeatable",
        ),
        click.option("--limit", multiple=True, metavar="HOSTS", help="only a group or a pattern (node0*); repeatable"),
        click.argument("inventory", callback=_an_inventory),
    ):
        function = decorate(function)
    return function


@contextmanager
def usable_input() -> Iterator[None]:
    """Unusable input is exit code 2, with every error and no traceback."""
    from shakedown.runner.engine import InventoryError

    try:
        yield
    except (DesiredStateError, InventoryError) as error:
        unusable(error)


@contextmanager
def to_its_end(state: State, connect: Callable[[State], None] | None = None) -> Iterator[Callable[..., None]]:
    """A connected run. However it ends, also by Ctrl-C or an exception, it is said on stderr how it ended. What is
    yielded keeps an examination and what is `lacking` besides, for commands that have no session. `connect`: as
    `engine.connected` has it."""
    import traceback

    from pyinfra.api.exceptions import PyinfraError

    from shakedown.runner import engine
    from shakedown.runner.ending import finish
    from shakedown.runner.pyinfra.invocation import INTERRUPTED, install_signal_handlers, invocation

    kept: list[Any] = []
    install_signal_handlers()
    try:
        invocation.connecting = True
        with engine.connected(state, connect) if connect else engine.connected(state):
            yield lambda *known: kept.extend(known)
    except Exception as error:
        if not isinstance(error, PyinfraError):  # that one is in words
            traceback.print_exc()
        invocation.ended_by(error)
    finally:
        verdict = finish(state, *kept)
    if invocation.interrupted or invocation.error:
        sys.exit(INTERRUPTED if invocation.interrupted else verdict.exit_code)


@contextmanager
def report_of_it(state: State, form: str | None, output: Path | None) -> Iterator[None]:
    """The report of a run that `--format` and `--output` ask for, however it ends."""
    try:
        yield
    finally:
        if form is not None:
            from shakedown.runner.ending import finish
            from shakedown.runner.progress import progress

            current = progress(state).session
            if current is None:
                click.echo("shakedown: no report: no node was examined", err=True)
            elif show_document(current.document(), form, output, finish(state)) == 2:
                sys.exit(2)  # but an interrupted run exits as one


def load_state(
    inventory: str,
    limit: tuple[str, ...],
    data: tuple[str, ...],
    parallel: int | None,
    to_train: bool = False,
    connects: bool = True,
) -> State:
    """Load and validate; nothing is connected to before the whole desired state is known to be right, with the job of
    these hosts where it is `to_train`. `connects`: as `engine.load` has it."""
    from pyinfra_cli.util import parse_cli_arg

    from shakedown.runner import engine
    from shakedown.runner.inventory import desired_states
    from shakedown.runner.pyinfra.invocation import invocation

    pairs = [item.partition("=") for item in data]
    for key, equals, _ in pairs:
        if not equals or not key:
            raise engine.InventoryError(f"--data {key}: expected KEY=VALUE, as --data gpu=mi300x")
    given = {key: parse_cli_arg(value) for key, _, value in pairs}
    state = engine.load(inventory, limit, given, parallel or 0, connects)
    invocation.trains = to_train
    desired_states(state, to_train)
    return state


@click.command()
@over_inventory
@click.argument("host")
@format_of(Desired)
def show(
    inventory: str, host: str, limit: tuple[str, ...], data: tuple[str, ...], parallel: int, verbose: int, form: str
) -> None:
    """The desired state of one HOST: every value with the layer it came from. Connects to nothing.

    \b
    shakedown show inventories/rack.py node01.rack7
    """
    from shakedown.common.secrets import masked
    from shakedown.desired.layers import leaves

    with usable_input():
        from shakedown.runner.inventory import desired_states

        resolved = desired_states(load_state(inventory, limit, data, parallel, connects=False))
        if host not in resolved.merged:
            unusable(f"{inventory}: no host {host!r} (there are {', '.join(resolved.merged)})")
    merged = resolved.merged[host]
    smoke = resolved.states[host].smoke
    values = masked(merged.values, smoke.not_secret if smoke else ())
    write(Desired(host, {path: (value, merged.origin_of(path)) for path, value in leaves(values)}), form)


@click.command(epilog=EXIT_CODES)
@over_inventory
@format_and_output(Findings)
@with_all
@click.option("--nodes", "expected", type=click.IntRange(min=1), help="fewer nodes than this is a failure")
@click.option("--ledger", is_flag=True, help="keep the check: a run directory, and the ledger")
@click.option("--from-agents", is_flag=True, help="read what the agents on the nodes have told last; examine nothing")
def drift(
    inventory: str,
    limit: tuple[str, ...],
    data: tuple[str, ...],
    parallel: int,
    verbose: int,
    form: str,
    output: Path | None,
    show_all: bool,
    expected: int | None,
    ledger: bool,
    from_agents: bool,
) -> None:
    """Compare every node with its desired state. Never changes a node.

    One reading per node; one line per finding that differs, with what was wanted, what is, and the remedy. In the table
    a finding that is the same on several nodes is one line, over their range.

    \b
    shakedown drift inventories/rack.py --nodes 32           fewer than 32 answers are a failure
    shakedown drift inventories/rack.py --format jsonl       one finding per line, for other programs
    shakedown drift inventories/rack.py --output rack.html
    shakedown drift inventories/rack.py --from-agents        the last verdict of each node's agent (docs/agent.md)
    """
    if from_agents and ledger:
        raise click.UsageError("--ledger keeps the nodes' states, which --from-agents does not read")
    with usable_input():
        from shakedown.runner import engine

        engine.show_pyinfra_log(verbose)
        state = load_state(inventory, limit, data, parallel)
    if from_agents:
        from shakedown.runner.agents import collect as look
    else:
        from shakedown.runner.examine import examine as look

    with to_its_end(state) as keep:
        examination = look(state)
        answered = examination.answered
        few = expected is not None and answered < expected
        keep(examination, *([f"{answered} of {expected} expected nodes answered"] if few else []))
        verdict = Verdict.FAIL if few else examination.verdict()
        at = datetime.now(UTC).isoformat(timespec="seconds")
        document = Findings(verdict, len(examination.desired), examination.all_findings(), show_all, inventory, at)
        if from_agents:
            click.echo("shakedown: told by the nodes' agents: nodes are not compared with each other", err=True)
        code = show_document(document, form, output, verdict)
        if ledger:
            from shakedown.runner.pyinfra.invocation import invocation
            from shakedown.runner.session import keep_check

            keep_check(state, examination, verdict)
            code = Verdict.FAIL.exit_code if invocation.unrecorded else code
    sys.exit(code)


@click.command()
@over_inventory
@format_of(Plans)
def plan(inventory: str, limit: tuple[str, ...], data: tuple[str, ...], parallel: int, verbose: int, form: str) -> None:
    """The smoke run as it would be started now: ranks, addresses, devices, and each node's exact command, job by job.

    With --format json it is one plan, or an object of plans by the jobs' names where smoke.scope asks for several.
    Reads the nodes and starts nothing. What cannot be derived or does not fit is listed, all of it, with exit code 1.

    \b
    shakedown plan inventories/rack.py
    shakedown plan inventories/rack.py --limit 'node0[1-4]*' --format json
    """
    with usable_input():
        from shakedown.runner import engine

        engine.show_pyinfra_log(verbose)
        state = load_state(inventory, limit, data, parallel, to_train=True)
    from shakedown.runner.examine import examine
    from shakedown.runner.training import plans_of

    with to_its_end(state) as keep:
        examination = examine(state)
        plans, errors = plans_of(examination)
        for error, names in errors.items():
            click.echo(f"shakedown: {', '.join(names)}: {error}", err=True)
        keep(examination, *(f"no launch plan for {', '.join(names)}: see above" for names in errors.values()))
    write(Plans(plans), form)
    sys.exit(1 if errors else 0)


@click.command(epilog=EXIT_CODES)
@over_inventory
@click.option("--dry", is_flag=True, help="show every finding and every change; change nothing")
@click.option("--no-smoke", is_flag=True, help="everything but the training, as deploy/bringup.py does")
@click.option("--batch", metavar="NODES", help="so many nodes at a time: 4, or 10%; the smoke run is one, at the end")
@click.option("--max-failed", metavar="NODES", help="more failed nodes than this (2, or 5%) end a run in batches")
@click.option("--resume", metavar="RUN", help="go on where that run in batches ended; done nodes are not touched again")
@format_and_output(Run, none="at the end, on standard output, in this format; nothing without it")
def run(
    inventory: str,
    limit: tuple[str, ...],
    data: tuple[str, ...],
    parallel: int,
    verbose: int,
    dry: bool,
    no_smoke: bool,
    batch: str | None,
    max_failed: str | None,
    resume: str | None,
    form: str | None,
    output: Path | None,
) -> None:
    """Bring every node into its desired state and run the smoke test: the same as
    `pyinfra INVENTORY deploy/megatron.py -y`, with the exit codes below. It changes the nodes without asking.

    \b
    shakedown run inventories/rack.py --dry         what would be changed, and the smoke run's plan
    shakedown run inventories/rack.py --no-smoke    everything but the training
    shakedown run inventories/rack.py --limit 'node0[1-4]*'
    shakedown run inventories/rack.py --batch 10% --max-failed 2
    shakedown run inventories/rack.py --resume latest
    shakedown run inventories/rack.py --output junit.xml

    However it ends, the last lines on stderr say what became of each node and why, what was changed, and where the
    evidence is.
    """
    with usable_input():
        from shakedown.runner import engine
        from shakedown.runner.engine import InventoryError
        from shakedown.runs.directory import why_none_can_be_kept

        engine.show_pyinfra_log(verbosity=1)
        state = load_state(inventory, limit, data, parallel, to_train=not no_smoke)
        if not dry and (why := why_none_can_be_kept()):
            raise InventoryError(why)
        from shakedown.runner import rolling

        asked = rolling.asked(state, batch, max_failed, resume)
    from shakedown.runner.ending import finish
    from shakedown.runner.pyinfra.invocation import invocation
    from shakedown.runner.session import session

    invocation.dry = dry
    invocation.shows = dry and (form is None or output is not None)  # or standard output is the report's
    callers = rolling.Callers(state, asked.tries) if asked and not dry else None
    with report_of_it(state, form, output), to_its_end(state, callers.connect if callers else None):
        if asked and callers:
            rolling.run(state, asked, callers, smoke=not no_smoke)
        else:
            engine.run_deploy(state, "bringup" if no_smoke else "megatron", dry=dry)
        if asked and dry:
            rolling.tell_batches(session(), asked)
        session()
    sys.exit(finish(state).exit_code)
