"""What commands over an inventory have in common once they run: loading, connecting, and the end in words.

A command imports this module when it is called, not when its file is loaded: `--help` needs no pyinfra (300 ms), and
gevent's patches would change the process of everybody who only reads the options.
"""

from shakedown.runner import engine as engine  # first: it has gevent patch the process. "as": for commands

# isort: split
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

import click
from pyinfra.api import State
from pyinfra.api.exceptions import PyinfraError
from pyinfra_cli.util import parse_cli_arg

from shakedown.cli.words import Target, unusable
from shakedown.common.text import complaint, counted
from shakedown.desired.problems import DesiredStateError, as_lines
from shakedown.runner.inventory import desired_states as desired_states
from shakedown.runner.inventory import hosts_in_limit
from shakedown.runner.progress import progress as progress
from shakedown.runner.pyinfra.invocation import INTERRUPTED, install_signal_handlers
from shakedown.runner.pyinfra.invocation import invocation as invocation


@contextmanager
def usable_input() -> Iterator[None]:
    """Exit with 2 for unusable input, with every error and no traceback."""
    try:
        yield
    except DesiredStateError as error:
        unusable(f"{invocation.inventory}: {error}" if invocation.inventory else error)
    except engine.InventoryError as error:
        unusable(error)


@usable_input()
def load_state(
    target: Target,
    verbose: int | None = None,
    *,
    to_train: bool = False,
    connects: bool = True,
    keeps: bool = False,
    unasked: bool = False,
    only: Sequence[str] = (),
) -> State:
    """Load and validate: no node is connected to before the whole desired state is known to be right, with the job of
    these hosts where it is `to_train`. `connects`, `only`: as `engine.load` has them. `keeps`: the command writes a run
    directory, so one must be possible. `unasked`: a host for which the site has no desired state is no error.
    `verbose`: how much pyinfra shows; None leaves that alone. Exit with 2 for unusable input."""
    if verbose is not None:
        engine.show_pyinfra_log(verbose)
        invocation.verbose = verbose > 1
    pairs = [item.partition("=") for item in target.data]
    for key, equals, _ in pairs:
        if not equals or not key:
            raise engine.InventoryError(f"--data {key}: expected KEY=VALUE, as --data gpu=mi300x")
    values = {key: parse_cli_arg(value) for key, _, value in pairs}
    state = engine.load(target.inventory, target.limit, values, target.parallel or 0, connects, only)
    invocation.trains = to_train
    of_job = desired_states(state, to_train, unasked).of_job
    for line in as_lines(of_job if connects else ()):
        click.echo(complaint(f"a job over these hosts would be refused: {line}"), err=True)
    if keeps:
        from shakedown.runs.folder import why_none_can_be_kept  # 200 ms that a drift check does not need

        if reason := why_none_can_be_kept():
            raise engine.InventoryError(reason)
    return state


def _ask_to_change(state: State) -> None:
    """Ask on a terminal whether so many nodes are to be changed. End with 130 where the answer is no."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return
    hosts = f"{len(hosts_in_limit(state))} of {counted(len(state.inventory), 'node')}"
    try:
        click.confirm(f"{hosts} will be changed. Continue?", abort=True, err=True)
    except click.Abort:
        click.echo(complaint("nothing was changed"), err=True)
        sys.exit(INTERRUPTED)


@contextmanager
def to_its_end(
    state: State, connect: Callable[[State], None] | None = None, ask: bool = False
) -> Iterator[Callable[..., None]]:
    """Connect, and report on stderr how the run ended, however it ends, also by Ctrl-C or an exception. The yielded
    function keeps an examination and what is `lacking` besides, for commands that have no session. `connect`: as
    `engine.connected` has it. `ask`: on a terminal, whether to go on."""
    if ask:
        _ask_to_change(state)
    from shakedown.runner.ending import finish  # 100 ms that `shakedown show` does not need

    kept: list[Any] = []
    install_signal_handlers()
    try:
        invocation.connecting = True
        with engine.connected(state, connect) if connect else engine.connected(state):
            yield lambda *evidence: kept.extend(evidence)
    except Exception as error:
        if not isinstance(error, PyinfraError):  # that one is in words
            traceback.print_exc()
        invocation.ended_by(error)
    finally:
        verdict = finish(state, *kept)
    if invocation.interrupted or invocation.error:
        sys.exit(INTERRUPTED if invocation.interrupted else verdict.exit_code)


def run_deploy(state: State, name: str, dry: bool, ask: bool = False) -> NoReturn:
    """Run one of this project's deploys, and exit as its verdict says. `ask`: on a terminal, whether to go on."""
    from shakedown.runner import ending, session  # 500 ms that a drift check does not need

    invocation.dry = dry
    with to_its_end(state, ask=ask):
        engine.run_deploy(state, name, dry=dry)
        if name != "rollback":  # which examines no node
            session.session()
    sys.exit(ending.finish(state).exit_code)
