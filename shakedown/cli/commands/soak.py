"""A burn-in over an inventory."""

from pathlib import Path

import click

from shakedown.cli.words import EXIT_CODES, Target, names_by, over_inventory, read_by, unusable
from shakedown.runner.pyinfra.invocation import Burn
from shakedown.runs.folder import find_run
from shakedown.trials.soak import chosen_stages, seconds_of

PREPARE = ("signals", "gevent")
SECTION = "Run"


def _soak(name: str) -> Path:
    """Return the directory of a soak. Raises ValueError."""
    run = find_run(name)
    if not (run / "soak.json").is_file():
        raise ValueError(f"{run} is no soak: `shakedown history` lists the runs")
    return run


def _time(text: str) -> str:
    seconds_of(text)
    return text


@click.command(epilog=EXIT_CODES)
@over_inventory
@click.option(
    "--for",
    "time",
    metavar="TIME",
    callback=read_by(_time),
    help="under load: 90s, 30m, 24h, 2d; else as soak.time says",
)
@click.option(
    "--only",
    metavar="STAGES",
    callback=read_by(names_by(chosen_stages), ()),
    help="these stages alone, with commas between them: cpu,memory,disk",
)
@click.option("--resume", metavar="RUN", callback=read_by(_soak), help="go on with that soak, not with the last one")
@click.option("--fresh", is_flag=True, help="begin a new soak, though an ended one could go on")
@click.option("--dry", "--plan", "dry", is_flag=True, help="show the stages with their times; load nothing")
def soak(target: Target, time: str | None, only: tuple[str, ...], resume: Path | None, fresh: bool, dry: bool) -> None:
    """Burn nodes in: checks, trials, then load on CPUs, memory, disks, GPUs and fabric, at last all at once and the
    smoke run again and again. Error counters are read every 10 s. The first uncorrectable error ends the soak on all
    nodes. The same as `pyinfra INVENTORY deploy/soak.py -y`.

    The field's tools make the load: stress-ng, fio, rvs, perftest. The nodes must have them. A stage without its tool
    is not run there, and the verdict is unknown; so it is where the kernel has no EDAC counters of memory errors, as in
    most virtual machines. A soak that was ended is unknown, and goes on with the same command.

    \b
    shakedown soak inventories/rack.py --for 24h         the burn-in
    shakedown soak inventories/rack.py --for 24h --plan  its stages
    shakedown soak inventories/rack.py --for 30m --only cpu,memory
    """
    if fresh and resume:
        unusable("--fresh begins a new soak, and --resume goes on with one: leave one of them out")
    from shakedown.cli.nodes import invocation, load_state, run_deploy  # pyinfra: see there

    state = load_state(target, target.verbose, keeps=not dry)
    invocation.only = only
    invocation.soak = Burn(time=time or "", resume=resume, fresh=fresh)
    run_deploy(state, "soak", dry)
