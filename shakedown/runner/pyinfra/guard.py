"""What plain pyinfra gets wrong, caught before it connects and when it exits.

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

import atexit
import gc
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import click
import gevent
from pyinfra.api.exceptions import ConnectorDataTypeError

from shakedown.common.log import go_on_without_a_reader
from shakedown.runner.pyinfra.deploys import own_deploys
from shakedown.runner.pyinfra.invocation import INTERRUPTED, USAGE, install_signal_handlers, invocation

_SIGNS = frozenset("[],!")  # of our own language for hosts (shakedown/hosts.py), that a glob has not or reads otherwise


class Guard:
    """Registered as a connector, and connects to nothing."""

    handles_execution = False

    @staticmethod
    def make_names_data(name: str) -> list[Any]:
        raise ValueError(f"@shakedown/{name}: shakedown is not a connector; use ssh, @local or @docker")


def _arm() -> None:
    """Look at pyinfra's command line; if it runs a deploy of this project, install the hooks."""
    context = click.get_current_context(silent=True)
    if context is None or invocation.inventory or not {"inventory", "operations", "dry"} <= context.params.keys():
        return
    params = context.params
    if not (deploys := own_deploys(params["operations"])):
        return
    invocation.inventory = params["inventory"]
    invocation.group_data = tuple(params["group_data"] or ())
    invocation.dry = params["dry"]
    invocation.json = params["json_output"]
    invocation.verbose = bool(params["verbosity"] or params["debug"])
    invocation.trains = any(deploy.trains for deploy in deploys)
    invocation.changes = any(deploy.changes for deploy in deploys)
    invocation.deploys = deploys
    for option in ("serial", "no_wait"):
        if params[option] and any(deploy.compares for deploy in deploys):
            _refuse(
                f"--{option.replace('_', '-')}: the nodes are compared and train together, so each stage needs all of "
                "them. Leave the option out; --parallel bounds how many are worked on at once."
            )
    gc.set_threshold(50_000, 10, 10)  # as our own command has it: most of what is loaded now stays
    atexit.register(gc.freeze)
    install_signal_handlers()
    go_on_without_a_reader()
    from shakedown.runner.pyinfra import prepare  # 700 ms that pyinfra's runs of other deploys do not need

    for option in ("limit", "exclude"):
        for word in params[option] or ():
            if not _SIGNS.isdisjoint(word):
                right = prepare.spelt(option, word)
                _refuse(f"--{option} {word}: pyinfra reads a glob: no range, no comma, no '!'. {right}")
    context.with_resource(_errors_kept(prepare.wrong_data))
    atexit.register(_leave)

    # The state is initialised after the inventory and before the first connection, without a switch of greenlets in
    # between: a greenlet that is spawned now runs before those that connect.
    gevent.spawn(prepare.before_connecting)


def _refuse(message: str) -> None:
    sys.stderr.write(f"shakedown: {message}\n")
    invocation.examined = True  # nothing else to complain about
    raise SystemExit(USAGE)


@contextmanager
def _errors_kept(wrong_data: Callable[[], str]) -> Iterator[None]:
    """Keep what ends the run: click shows an error and exits, and only the exit code would be left."""
    try:
        yield
    except click.exceptions.Exit:
        raise
    except Exception as error:
        wrong_type = isinstance(getattr(error, "exception", error), ConnectorDataTypeError)  # pyinfra wraps it
        words = "" if invocation.connecting else wrong_data()
        if words or wrong_type:
            _refuse(words or str(error))
        invocation.ended_by(error)
        raise


def _leave() -> None:
    """End the process with the verdict's exit code, which can only be set here: pyinfra knows failed hosts alone."""
    invocation.ending = True
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
