"""The search for bad nodes: isolate."""

from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import click

from shakedown.cli.words import EXIT_CODES, Target, over_inventory, unusable, usable
from shakedown.isolation import NEEDS_NUMPY
from shakedown.isolation.tree import to_resume
from shakedown.runner.pyinfra.invocation import Search
from shakedown.runs.archive.read import is_packed
from shakedown.runs.directory import RunDirectory
from shakedown.runs.folder import find_run, own
from shakedown.schedulers.registry import names

PREPARE = ("signals", "gevent")


@click.command(epilog=EXIT_CODES)
@over_inventory
@click.option("--dry", is_flag=True, help="show rounds and time, and what speaks against which node; train nothing")
@click.option("--budget", type=click.FloatRange(min=0, min_open=True), metavar="MINUTES", help="at most so long")
@click.option("--rounds", type=click.IntRange(min=1), help="at most so many rounds")
@click.option("--via", type=click.Choice(("ssh", *names())), help="how the groups are started; else as smoke.via says")
@click.option("--resume", is_flag=True, help="go on with the search of the RUN that is given")
def isolate(target: Target, dry: bool, budget: float | None, rounds: int | None, via: str | None, resume: bool) -> None:
    """Find the node, link, rack uplink or trunk between racks that makes a training fail.

    INVENTORY is an inventory, or a run that failed: its id, a part that only its id begins with, latest, or its
    directory; what that run has shown has nodes tried sooner. Groups of nodes train at the same time, those that fail
    are halved, suspects fail with different good nodes before they are named, and all without them must pass.
    1: suspects. 4: a node is undecided. 0: neither.

    \b
    shakedown isolate inventories/rack.py --dry         rounds and time
    shakedown isolate latest --budget 30                for half an hour
    shakedown isolate latest --resume                   go on with a search
    shakedown isolate inventories/slurm.py --via slurm  with steps of Slurm
    """
    from shakedown.cli.nodes import invocation, load_state, run_deploy  # pyinfra: see there

    if find_spec("numpy") is None:
        unusable(NEEDS_NUMPY)
    try:
        run = _run(target.inventory)
    except ValueError as error:
        unusable(f"{error}. An inventory is a file, as inventories/rack.py")
    if resume and run is None:
        unusable(f"{target.inventory}: --resume takes the run whose search is to go on")
    trained: tuple[str, ...] = ()
    if run is not None:
        with usable():
            own(run, "run.json")  # it names the inventory, which is a program
            record = RunDirectory(run).load()
            if resume:
                to_resume(run)
        target, trained = replace(target, inventory=record.inventory), tuple(node.name for node in record.nodes)
    state = load_state(target, target.verbose, to_train=True, keeps=not dry, only=trained)
    seconds = None if budget is None else budget * 60
    invocation.search = Search(None if resume else run, run if resume else None, seconds, rounds, via)
    run_deploy(state, "isolate", dry)


def _run(name: str) -> Path | None:
    """Return the directory of a run of that name; None: it is an inventory. Raises ValueError for neither."""
    if is_packed(name):
        raise ValueError(f"{name}: an archive of a run: give the run's directory")
    if Path(name).is_file() and Path(name).name != "run.json":
        return None
    try:
        return find_run(name)
    except ValueError:
        if Path(name).suffix == ".py" or any(sign in name for sign in ",@:"):
            return None  # pyinfra says what is wrong with it as an inventory
        raise
