"""Runtime `process`: torchrun in a virtual environment that is on the node."""

from __future__ import annotations

import sys
from importlib.resources import files

from shakedown.smoke.launch import NodePlan
from shakedown.smoke.runtimes.job import Job, Seat, environment, program, secrets

_INSTALLED = (files("shakedown.smoke.runtimes") / "installed.py").read_text("utf-8")


def default_venv() -> str:
    """This controller's own environment, which a node on the same machine or with the same layout has too."""
    return sys.prefix


def node_plan(job: Job, seat: Seat) -> NodePlan:
    """One node's ranks as processes of the connecting user."""
    family = job.chosen.recipe.family
    venv = seat.smoke.venv or default_venv()
    variables = environment(job, seat, "{run_dir}")
    # Without it every rank starts one thread for each core, and they fight for them.
    variables.setdefault("OMP_NUM_THREADS", str(max(1, seat.state.cpu.count // job.ranks)))
    command = program(job, seat, "{run_dir}", torchrun=f"{venv}/bin/torchrun", log_dir="{run_dir}/torchrun")
    if family.workdir:
        command = ["env", f"--chdir={job.chosen.place(family.workdir, '{run_dir}')}", *command]
    return NodePlan(
        name=seat.name,
        node_rank=seat.node_rank,
        ranks=job.ranks,
        address=seat.address,
        interface=seat.interface,
        hca=seat.hca,
        gid_index=seat.gid_index,
        command=command,
        environment=variables,
        secrets=secrets(job),
        upload=family.upload,
        files={"installed.py": _INSTALLED} if family.modules else {},
        setup=[[f"{venv}/bin/python", "{run_dir}/installed.py", *family.modules]] if family.modules else [],
    )
