"""pyinfra's API mode: load an inventory, connect, run a deploy.

Import this before anything that opens sockets: pyinfra needs gevent's patches.
"""

from shakedown.common.nearest import meant
from shakedown.runner.pyinfra import patched  # noqa: F401 - before all that it patches

# isort: split
import logging
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyinfra
from pyinfra.api import Config, Inventory, State
from pyinfra.api.connect import connect_all, disconnect_all
from pyinfra.api.exceptions import ConnectorDataTypeError, PyinfraError
from pyinfra.api.operations import run_ops
from pyinfra.api.state import StateStage
from pyinfra.context import ctx_config, ctx_inventory, ctx_state
from pyinfra_cli import inventory as pyinfras
from pyinfra_cli.log import setup_logging
from pyinfra_cli.util import load_deploy_file

from shakedown.desired.problems import DesiredStateError
from shakedown.desired.problems import InventoryError as InventoryError  # without gevent, for those that raise it
from shakedown.hosts import named, nodes, select
from shakedown.runner.inventory import resolved_of, unread_group_data
from shakedown.runner.pyinfra import inventory_file
from shakedown.runner.pyinfra.invocation import invocation
from shakedown.runner.pyinfra.site_files import DEPLOYS

pyinfras._get_groups_from_filename = inventory_file.groups_of  # pyinfra's own drops what it does not understand


def load(
    inventory: str,
    limit: Sequence[str] = (),
    data: dict[str, Any] | None = None,
    parallel: int = 0,
    connects: bool = True,
    only: Sequence[str] = (),
) -> State:
    """Return a pyinfra state over an inventory file, a python name or a comma-separated list of hosts, as pyinfra's own
    command line reads it; not yet connected. `limit`: as `hosts.select` reads it; otherwise `only` those hosts that
    have one of these names. `connects` is false where it never will be, which spares the loading of
    the modules that bound a connection and report its end. Raises InventoryError."""
    invocation.inventory = inventory
    state = State()
    state.cwd = str(Path.cwd())
    ctx_state.set(state)
    config = Config()
    if parallel:
        config.PARALLEL = parallel
    ctx_config.set(config)
    if inventory.endswith(".py") and not Path(inventory).is_file():
        raise InventoryError(f"{inventory}: no such file{meant(inventory)}")
    if Path(inventory).is_dir():
        raise InventoryError(f"{inventory}: a folder; expected an inventory file, as inventories/rack.py")
    pyinfra.logger.disabled = True  # what it passes over is refused here, in our words
    try:
        hosts = ",".join(nodes(inventory)) if "[" in inventory and not Path(inventory).exists() else inventory
        made: Inventory = pyinfras.make_inventory(hosts, override_data=data or {}, cwd=state.cwd)
    except DesiredStateError:
        raise
    except (Exception, SystemExit) as error:  # an inventory is a user's program: it can raise anything, and end
        cause = getattr(error, "exception", error)  # pyinfra wraps what the file raised
        reason = f"{_raised_in(error, inventory)}: {type(cause).__name__}: {cause}"
        if not inventory.endswith(".py"):
            command = f"shakedown init --from {inventory}"
            reason = f"{inventory}: expected an inventory of pyinfra, in Python: Ansible's becomes one by: {command}"
            reason += f" ({type(cause).__name__}: {cause})"
        raise InventoryError(reason) from error
    finally:
        pyinfra.logger.disabled = False
    if unread := unread_group_data(inventory, made, state.cwd):
        raise InventoryError(unread)
    ctx_inventory.set(made)
    try:
        names = set(choose(made, limit, "--limit") if limit and len(made) else only)
        state.init(made, config, initial_limit=[host for host in made if host.name in names] if limit or only else None)
    except ConnectorDataTypeError:
        resolved_of(list(made), whole=True)  # says which value, where, and what else is wrong
        raise
    if connects:
        # 150 ms that `shakedown show` does not need.
        from shakedown.runner.ending import watch
        from shakedown.runner.pyinfra.connection import bind

        bind(state)
        watch(state)
    if not any(state.is_host_in_limit(host) for host in made):
        there = f": none of {named(only)} (there are {named(host.name for host in made)})" if len(made) else ""
        if not len(made) and not Path(inventory).exists():
            there = f": it is no file{meant(inventory)}; expected an inventory, as inventories/rack.py, or host names"
        there = there or ': name them in a group of it, as rack = (["node01", "node02"], {"gpu": "mi300x"})'
        raise InventoryError(f"{inventory}: no hosts{there}")
    return state


def _raised_in(error: BaseException, inventory: str) -> str:
    """Return the user's file in which an inventory failed, and the line: itself, or a file of group_data."""
    cause = getattr(error, "exception", error)
    if isinstance(cause, SyntaxError) and cause.filename:
        return cause.filename
    frames = list(traceback.walk_tb(cause.__traceback__))
    run = [str(frame.f_locals["filename"]) for frame, _line in frames if frame.f_code.co_name == "exec_file"]
    lines = [f"{run[-1]}:{line}" for frame, line in frames if run and frame.f_code.co_filename == run[-1]]
    return (lines or run[-1:] or [inventory])[-1]


def choose(inventory: Inventory, words: Sequence[str], where: str) -> list[str]:
    """Return the names of the hosts that the words chose, as `hosts.select` reads them.

    Raises InventoryError, which names the option or the argument `where` the words stand.
    """
    groups = {group: [host.name for host in hosts] for group, hosts in inventory.groups.items() if hosts}
    try:
        return select(words, [host.name for host in inventory], groups)
    except ValueError as error:
        raise InventoryError("\n".join(f"{where} {line}" for line in str(error).splitlines())) from error


@contextmanager
def connected(state: State, connect: Callable[[State], None] = connect_all) -> Iterator[State]:
    """Connect to every host, by `connect`, and disconnect at the end. Lost hosts are left to the findings."""
    state.set_stage(StateStage.Connect)
    try:
        try:
            connect(state)
        except PyinfraError:
            if state.active_hosts:  # "No hosts remaining!": each has its finding
                raise
        state.set_stage(StateStage.Prepare)
        yield state
    finally:
        disconnect_all(state)


def run_deploy(state: State, name: str, dry: bool = False) -> None:
    """Run a deploy on a connected state (dry: only prepare it). Hosts that fail are in state.failed_hosts."""
    # In API mode pyinfra names an operation by its place in each host's own list, so that on nodes of which different
    # things are asked different operations would run as one. Of a deploy file it takes the line, as its command does.
    pyinfra.is_cli = True
    try:
        load_deploy_file(state, str(DEPLOYS / f"{name}.py"))
        if dry:
            return
        state.set_stage(StateStage.Execute)
        run_ops(state)
    except PyinfraError:
        if state.active_hosts:
            raise


def show_pyinfra_log(verbosity: int) -> None:
    """Show pyinfra's own lines on stderr: all of them, or only its errors."""
    setup_logging(logging.INFO if verbosity else logging.CRITICAL)
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
