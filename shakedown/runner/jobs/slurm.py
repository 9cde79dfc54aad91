"""Nodes on which a job runs are left alone: Slurm is asked before anything is declared, and right before it is done."""

from __future__ import annotations

from collections.abc import Iterable

from pyinfra import logger
from pyinfra.api import Host, State
from pyinfra.context import host as current_host
from pyinfra.operations import python

from shakedown.desired.models import DesiredState
from shakedown.runner.jobs.slurm_connection import allocation_of, connected
from shakedown.runner.pyinfra.invocation import invocation
from shakedown.runner.session import Session, session
from shakedown.schedulers.slurm.commands import SlurmError
from shakedown.schedulers.slurm.nodes import jobs_on
from shakedown.state.findings import Verdict


def leave_alone() -> bool:
    """Fail the current host if somebody's job holds it and this run would change it, or load it over SSH; ask again
    right before that is done. Whether it goes on."""
    current = session()
    host: Host = current.host(current_host.name)
    if not _asked_for(current, host.name):
        return True
    current.once("slurm: who holds the nodes", lambda: _ask(current, "before", current.examination.desired))
    why = _found(current, "before").get(host.name)
    if why:
        current.fail(host, why)
        return False
    if not invocation.dry:
        python.call(name="Ask Slurm who holds the nodes", function=_still_free)
    return True


def takes_jobs(some: bool) -> bool:
    """Fail the current host where jobs of this run are to go to Slurm and Slurm would not take them. `some`: whether
    there are to be any; asked once, before anything is changed. Whether the host goes on."""
    current = session()
    host: Host = current.host(current_host.name)
    if some:
        current.once("slurm: whether it takes jobs", lambda: _ask_ahead(current))
    why = _found(current, "takes").get(host.name)
    if why:
        current.fail(host, why)
    return not why


def _ask_ahead(current: Session) -> None:
    desired = current.examination.desired
    there = [name for name in current.examination.states if _goes_to_slurm(desired[name])]
    if not there or connected(current.state).allocation is not None:  # that one has been given
        return
    try:
        out = allocation_of(desired, "shakedown").ask(there)
        why = {name: f"Slurm gives it to no job: {state}" for name, state in out.items()}
    except (SlurmError, ValueError) as error:
        why = dict.fromkeys(there, f"Slurm would not take this run's jobs: {error}")
    current.shared["slurm: takes"] = why


def _goes_to_slurm(desired: DesiredState) -> bool:
    sections = [each for each in (desired.smoke, desired.trials) if each is not None]
    return invocation.search.via == "slurm" or any(each.via == "slurm" for each in sections)


def _asked_for(current: Session, name: str) -> bool:
    """Jobs within an allocation wait for the node by themselves; what else there is to do must not disturb anybody."""
    desired = current.examination.desired[name]
    if desired.slurm is None or desired.slurm.allow_allocated:
        return False
    over_ssh = [each for each in (desired.smoke, desired.trials) if each is not None and each.via == "ssh"]
    asked = invocation.search.via
    return bool(current.fixable(name) or over_ssh or asked == "ssh" or desired.benchmark or desired.datasets)


def _ask(current: Session, when: str, names: Iterable[str]) -> None:
    """Once for all hosts. Where Slurm does not answer, nobody knows, and nothing is touched."""
    asked = {name: current.examination.desired[name].slurm for name in names if _asked_for(current, name)}
    ours = connected(current.state).allocation
    of_slurm = {name: each.node or name for name, each in asked.items() if each is not None}
    try:
        held = jobs_on(of_slurm.values(), but=ours.job if ours else None)
        remedy = "nothing is changed there; slurm.allow_allocated allows it"
        why = {
            name: f"Slurm job {', '.join(held[node][:3])} holds it: {remedy}"
            for name, node in of_slurm.items()
            if node in held
        }
    except SlurmError as error:
        why = dict.fromkeys(of_slurm, f"whether somebody's job holds it is not known: {error}")
    current.shared[f"slurm: {when}"] = why


def _found(current: Session, when: str) -> dict[str, str]:
    found = current.shared.get(f"slurm: {when}")
    return found if isinstance(found, dict) else {}


def _still_free(state: State, host: Host) -> bool:
    current = session()
    active = {each.name for each in state.active_hosts}
    current.once("slurm: who holds the nodes now", lambda: _ask(current, "now", active))
    why = _found(current, "now").get(host.name)
    if why:
        host.log_styled(why, fg="red", log_func=logger.error)
        current.exclude(host.name, why, Verdict.FAIL)
    return not why
