"""What plain pyinfra gets wrong by itself, caught before it connects and when it exits.

pyinfra has no hook between "the inventory is there" and "connect". It does load every connector that is registered
under the entry point `pyinfra.connectors` when it builds an inventory, so this module is imported in every pyinfra
process; unless the command line names a deploy of this project it does nothing at all. For those it sees to it that

* every error of the desired state is shown before the first connection (exit 2);
* no hosts, and hosts that were never examined, do not exit with 0;
* an unreachable host does not end a run without a terminal with EOFError (pyinfra asks whether to go on);
* options under which one distributed job cannot run (--serial, --no-wait) are refused;
* output that is piped into what ends early, such as head, does not end a run in its middle;
* the exit code follows the verdict, dry or not; Ctrl-C and a run whose record could not be written never exit with 0.
"""

from __future__ import annotations

import atexit
import os
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from shakedown.common.broken_pipe import go_on_without_a_reader
from shakedown.runner.pyinfra.deploys import own_deploys
from shakedown.runner.pyinfra.invocation import INTERRUPTED, USAGE, install_signal_handlers, invocation


class Guard:
    """Registered as a connector, and connects to nothing."""

    handles_execution = False

    @staticmethod
    def make_names_data(name: str) -> list[Any]:
        raise ValueError(f"@shakedown/{name}: shakedown is not a connector; use ssh, @local or @docker")


def _arm() -> None:
    """Look at pyinfra's command line; if it runs a deploy of this project, install the hooks."""
    import click

    context = click.get_current_context(silent=True)
    if context is None or invocation.inventory or not {"inventory", "operations", "dry"} <= context.params.keys():
        return
    params = context.params
    deploys = own_deploys(params["operations"])
    if not deploys:
        return
    invocation.inventory = params["inventory"]
    invocation.dry = params["dry"]
    invocation.json = params["json_output"]
    invocation.trains = any(deploy.trains for deploy in deploys)
    invocation.deploys = deploys
    for option in ("serial", "no_wait"):
        if params[option] and any(deploy.compares for deploy in deploys):
            _refuse(
                f"--{option.replace('_', '-')}: the nodes are compared and train together, so each stage needs all of "
                "them. Leave the option out; --parallel bounds how many are worked on at once."
            )
    install_signal_handlers()
    go_on_without_a_reader()
    context.with_resource(_told())
    atexit.register(_leave)

    # The state is initialised after the inventory and before the first connection, without a switch of greenlets in
    # between: a greenlet that is spawned now runs before those that connect.
    import gevent

    gevent.spawn(_before_connecting, params["group_data"] or ())


def _before_connecting(group_data: Sequence[str]) -> None:
    try:
        _prepare(group_data)
    except BaseException as error:  # unguarded, the deploy would go on
        traceback.print_exc()
        _end(f"the deploy could not be prepared: {type(error).__name__}: {error}", 1)


def _prepare(group_data: Sequence[str]) -> None:
    import gevent
    from pyinfra.context import ctx_state

    state = ctx_state.get()
    while not state.initialised:
        gevent.sleep(0)
    if not sys.stdin.isatty():
        state.should_raise_failed_hosts = lambda _state: False
    from shakedown.desired import DesiredStateError
    from shakedown.runner.ending import finish, watch
    from shakedown.runner.inventory import desired_states, unread_group_data
    from shakedown.runner.pyinfra.connection import bind
    from shakedown.runner.pyinfra.documented import problems
    from shakedown.runs.directory import why_none_can_be_kept

    bind(state)
    watch(state)
    try:
        compares = any(deploy.compares for deploy in invocation.deploys)
        if compares and (unread := unread_group_data(invocation.inventory, state.inventory, state.cwd, group_data)):
            _end(unread, USAGE)
        states = desired_states(state, invocation.trains, unasked=not compares).states
        wrong = [problem for deploy in invocation.deploys for problem in problems(deploy.name, states)]
        if wrong:
            raise DesiredStateError(wrong)
    except DesiredStateError as error:
        _end(str(error), USAGE)
    for section in (deploy.section for deploy in invocation.deploys if deploy.section):
        if not any(getattr(desired, section) for desired in states.values()):
            _end(f"no host of this run has a section {section}, so there is nothing to do", USAGE)
    if invocation.trains and not invocation.dry and (why := why_none_can_be_kept()):
        _end(why, USAGE)
    invocation.finish = lambda: finish(state)
    invocation.connecting = True


def _end(message: str, code: int) -> None:
    """SystemExit would reach the main greenlet only after those that connect have had their turn."""
    sys.stderr.write(f"shakedown: {message}\n")
    sys.stderr.flush()
    os._exit(code)


def _refuse(message: str) -> None:
    sys.stderr.write(f"shakedown: {message}\n")
    invocation.examined = True  # nothing else to complain about
    raise SystemExit(USAGE)


@contextmanager
def _told() -> Iterator[None]:
    """click shows an error and exits: from outside, only the exit code would be left of it."""
    import click
    from pyinfra.api.exceptions import ConnectorDataTypeError

    try:
        yield
    except click.exceptions.Exit:
        raise
    except Exception as error:
        if isinstance(getattr(error, "exception", error), ConnectorDataTypeError):  # pyinfra wraps what it shows
            _refuse(_wrong_data() or str(error))
        invocation.ended_by(error)
        raise


def _wrong_data() -> str:
    """What is wrong with an inventory on which pyinfra has ended before there was a state."""
    from pyinfra.context import ctx_inventory

    from shakedown.desired import DesiredStateError
    from shakedown.runner.inventory import resolved_of

    try:
        resolved_of(list(ctx_inventory.get()), whole=True)
    except DesiredStateError as error:
        return str(error)
    return ""


def _leave() -> None:
    """End the process with the verdict's exit code: pyinfra knows of failed hosts alone, and of none in a dry run. An
    exit code can only be changed from here."""
    try:
        code = invocation.finish().exit_code if invocation.finish else 0
    except Exception:  # the interpreter would print the error and exit with pyinfra's code
        traceback.print_exc()
        code = 1
    code = INTERRUPTED if invocation.interrupted else code
    if not invocation.interrupted and not invocation.examined:
        sys.stderr.write(
            f"shakedown: no host was examined: {invocation.inventory} and --limit leave none, or none could be "
            "reached. This is not a pass.\n"
        )
        code = code or 1
    if code:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


_arm()
