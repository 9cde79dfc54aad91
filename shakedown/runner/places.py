"""Where the jobs of a run are started, as the desired state or the command line says."""

from __future__ import annotations

from pyinfra.api.exceptions import PyinfraError

from shakedown.desired.models import Slurm
from shakedown.hosts import named
from shakedown.runner.session import Session
from shakedown.schedulers.slurm.job import Allocation, Wanted
from shakedown.smoke.where import Where


def via_of(current: Session) -> str:
    """How the smoke run's jobs are started. Raises PyinfraError where hosts are to train together and differ in it."""
    return _same(current, "smoke.via", {n: d.smoke.via for n, d in current.examination.desired.items() if d.smoke})


def where_of(current: Session, via: str) -> Where | None:
    """What brings jobs to the nodes, one for the whole run; None: pyinfra's own connections. Raises PyinfraError."""
    if via == "ssh":
        return None
    with current.lock:
        if "slurm" not in current.shared:
            current.shared["slurm"] = _allocation(current)
    made = current.shared["slurm"]
    assert isinstance(made, Allocation)
    return made


def _allocation(current: Session) -> Allocation:
    desired = current.examination.desired
    sections = {name: each.slurm or Slurm() for name, each in desired.items()}
    for key in Slurm.model_fields:
        if key not in ("node", "allow_allocated"):
            _same(current, f"slurm.{key}", {name: repr(getattr(each, key)) for name, each in sections.items()})
    section = next(iter(sections.values()))
    names = {name: each.node or name for name, each in sections.items()}
    wanted = Wanted(
        partition=section.partition,
        reservation=section.reservation,
        account=section.account,
        time_min=section.time_min,
        queue_s=section.queue_s,
        gres=section.gres,
        options=section.options,
    )
    return Allocation(names, wanted, f"shakedown-{current.record.run_id}" if current.record else "shakedown")


def _same(current: Session, key: str, values: dict[str, str]) -> str:
    """The one value of all hosts: they share one job."""
    found: dict[str, list[str]] = {}
    for name, value in values.items():
        found.setdefault(value, []).append(name)
    if len(found) > 1:
        told = "; ".join(f"{value} on {named(names)}" for value, names in found.items())
        raise PyinfraError(f"{key} has to be the same on all hosts of a run: {told}")
    return next(iter(found), "ssh")
