"""A burn-in over an inventory."""

import click

from shakedown.cli.words import EXIT_CODES, Target, over_inventory, usable
from shakedown.runner.pyinfra.invocation import Burn
from shakedown.runs.folder import find_run
from shakedown.trials.soak import chosen_stages, seconds_of

PREPARE = ("signals", "gevent")
SECTION = "Run"


@click.command(epilog=EXIT_CODES)
@over_inventory
@click.option("--for", "time", metavar="TIME", help="under load: 90s, 30m, 24h, 2d; else as soak.time says")
@click.option("--only", metavar="STAGES", help="these stages alone, with commas between them: cpu,memory,disk")
@click.option("--resume", metavar="RUN", help="go on with that soak; the same command finds the last one")
@click.option("--fresh", is_flag=True, help="begin a new soak, though an ended one could go on")
@click.option("--dry", "--plan", "dry", is_flag=True, help="show the stages with their times; load nothing")
def soak(target: Target, time: str | None, only: str | None, resume: str | None, fresh: bool, dry: bool) -> None:
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
    from shakedown.cli.nodes import invocation, load_state, run_deploy  # pyinfra: see there

    state = load_state(target, target.verbose, keeps=not dry)
    names = tuple(name.strip() for name in only.split(",") if name.strip()) if only else ()
    with usable(ValueError):
        chosen_stages(names)
        if time:
            seconds_of(time)
        run = find_run(resume) if resume else None
        if run and not (run / "soak.json").is_file():
            raise ValueError(f"--resume {resume}: {run} is no soak: `shakedown history` lists the runs")
    invocation.only = names
    invocation.soak = Burn(time=time or "", resume=run, fresh=fresh)
    run_deploy(state, "soak", dry)
