"""Nodes on which a job runs are left alone: their scheduler is asked before anything is declared, and right before a
change."""

from collections.abc import Iterable, Iterator, Mapping

from pyinfra import logger
from pyinfra.api import Host, State
from pyinfra.context import host as current_host
from pyinfra.operations import python

from shakedown.desired.models import DesiredState
from shakedown.runner.jobs.allocations import names_of, scheduler_of, settings_of
from shakedown.runner.jobs.connection import connected
from shakedown.runner.pyinfra.invocation import invocation
from shakedown.runner.session import Session, session
from shakedown.schedulers import registry
from shakedown.schedulers.interface import SchedulerError
from shakedown.state.findings import Verdict


def leave_alone() -> bool:
    """Fail the current host if a job of another user holds it and this run would change it, or load it over SSH. Ask
    again right before the change. Return whether the host goes on."""
    current = session()
    host: Host = current.host(current_host.name)
    if not _changes(current, host.name):
        return True
    current.once("schedulers: who holds the nodes", lambda: _ask(current, "before", current.examination.desired))
    if reason := _reasons(current, "before").get(host.name):
        current.fail(host, reason)
        return False
    if not invocation.dry:
        python.call(name="Ask the scheduler who holds the nodes", function=_still_free)
    return True


def takes_jobs(some: bool) -> bool:
    """Fail the current host where the scheduler would refuse the jobs of this run. `some`: the run has jobs. The
    scheduler is asked once, before anything is changed. Return whether the host goes on."""
    current = session()
    host: Host = current.host(current_host.name)
    if some:
        current.once("schedulers: whether they take jobs", lambda: _ask_ahead(current))
    reason = _reasons(current, "takes").get(host.name)
    if reason:
        current.fail(host, reason)
    return not reason


def job_on(desired: DesiredState, host: str) -> str:
    """Return which job holds a host that must not be disturbed, or why no scheduler could tell; empty: none does."""
    named = desired.service.scheduler if desired.service else None
    for name in dict.fromkeys([*_guarding(desired), *([named] if named else [])]):
        if getattr(getattr(desired, name, None), "allow_allocated", False):
            continue
        scheduler, (node,) = (
            registry.connect(name, settings_of(desired, name)),
            names_of({host: desired}, name).values(),
        )
        try:
            jobs = scheduler.jobs_on([node]).get(node)
        except SchedulerError as error:
            return f"the jobs of the node could not be read: {error}"
        if jobs:
            return f"{scheduler.title} job {', '.join(jobs[:3])} holds it"
    return ""


def _guarding(desired: DesiredState) -> Iterator[str]:
    """Yield the schedulers whose section lets no node with a job be changed."""
    return (
        name for name in registry.names() if getattr(getattr(desired, name, None), "allow_allocated", None) is False
    )


def _ask_ahead(current: Session) -> None:
    desired = current.examination.desired
    reasons: dict[str, str] = {}
    for name in registry.names():
        hosts = [host for host in current.examination.states if _starts_jobs(desired[host], name)]
        if not hosts or connected(current.state, name).allocation is not None:  # that allocation is here already
            continue
        try:
            scheduler = scheduler_of(desired, name)
            refused = scheduler.refused(names_of({host: desired[host] for host in hosts}, name))
            reasons |= {host: f"{scheduler.title} gives it to no job: {state}" for host, state in refused.items()}
        except (SchedulerError, ValueError) as error:
            title = registry.find(name).title
            reasons |= dict.fromkeys(hosts, f"{title} would not take this run's jobs: {error}")
    current.shared["schedulers: takes"] = reasons


def _starts_jobs(desired: DesiredState, scheduler: str) -> bool:
    sections = [section for section in (desired.smoke, desired.trials) if section is not None]
    return invocation.search.via == scheduler or any(section.via == scheduler for section in sections)


def _changes(current: Session, name: str) -> bool:
    """Tell whether this run could disturb a job. Jobs within an allocation wait for the node; all other work must not
    start on it."""
    desired = current.examination.desired[name]
    if not any(_guarding(desired)):
        return False
    over_ssh = any(section is not None and section.via == "ssh" for section in (desired.smoke, desired.trials))
    work = current.fixable(name) or desired.benchmark or desired.datasets
    return bool(work or over_ssh or invocation.search.via == "ssh")


def _ask(current: Session, when: str, hosts: Iterable[str]) -> None:
    """Ask once for all hosts. A node whose scheduler does not answer is not touched."""
    desired = {host: current.examination.desired[host] for host in hosts if _changes(current, host)}
    reasons: dict[str, str] = {}
    for name in registry.names():
        if guarded := {host: state for host, state in desired.items() if name in _guarding(state)}:
            reasons |= _held(current, name, guarded)
    current.shared[f"schedulers: {when}"] = reasons


def _held(current: Session, name: str, desired: Mapping[str, DesiredState]) -> dict[str, str]:
    nodes = names_of(desired, name)
    scheduler = registry.connect(name, settings_of(next(iter(desired.values())), name))
    try:
        jobs = scheduler.jobs_on(nodes.values(), connected(current.state, name).allocation)
    except SchedulerError as error:
        return dict.fromkeys(nodes, f"the jobs of the node could not be read: {error}")
    remedy = f"nothing is changed there; {name}.allow_allocated allows it"
    return {
        host: f"{scheduler.title} job {', '.join(jobs[node][:3])} holds it: {remedy}"
        for host, node in nodes.items()
        if node in jobs
    }


def _reasons(current: Session, when: str) -> dict[str, str]:
    reasons = current.shared.get(f"schedulers: {when}")
    return reasons if isinstance(reasons, dict) else {}


def _still_free(state: State, host: Host) -> bool:
    current = session()
    active = {other.name for other in state.active_hosts}
    current.once("schedulers: who holds the nodes now", lambda: _ask(current, "now", active))
    reason = _reasons(current, "now").get(host.name)
    if reason:
        host.log_styled(reason, fg="red", log_func=logger.error)
        current.exclude(host.name, reason, Verdict.FAIL)
    return not reason
