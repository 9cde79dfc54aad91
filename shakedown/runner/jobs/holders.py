"""Runs beside a scheduler: nodes on which a job runs are left alone, and a run's own jobs start over connections or in
an allocation. The scheduler is asked before anything is declared, and right before a change."""

import atexit
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import cast

from pyinfra import logger
from pyinfra.api import Host
from pyinfra.api.exceptions import PyinfraError
from pyinfra.context import host as current_host

from shakedown.desired.models import DesiredState
from shakedown.runner.jobs.connection import allocation_of, connected, names_of, same, scheduler_of, settings_of
from shakedown.runner.pyinfra.invocation import invocation
from shakedown.runner.session import Session, call_once, session
from shakedown.schedulers import registry
from shakedown.schedulers.interface import Allocation, Interrupted, Remote, SchedulerError
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
        again = "Ask the scheduler who holds the nodes"
        call_once(again, lambda now: _ask(now, "now", {active.name for active in now.state.active_hosts}), _still_free)
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
        allowed = getattr(getattr(desired, name, None), "allow_allocated", False)
        if not allowed and (reason := _held(name, {host: desired}).get(host)):
            return reason
    return ""


def _guarding(desired: DesiredState) -> Iterator[str]:
    """Yield the schedulers whose section lets no node with a job be changed."""
    sections = ((name, getattr(desired, name, None)) for name in registry.names())
    return (name for name, section in sections if getattr(section, "allow_allocated", None) is False)


def _ask_ahead(current: Session) -> None:
    desired = current.examination.desired
    reasons: dict[str, str] = {}
    for name in registry.names():
        searches = invocation.search.via == name
        hosts = [host for host in current.examination.states if searches or _via(desired[host], name)]
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


def _via(desired: DesiredState, way: str) -> bool:
    """Tell whether training or trials start their jobs so."""
    return any(section is not None and section.via == way for section in (desired.smoke, desired.trials))


def _changes(current: Session, name: str) -> bool:
    """Tell whether this run could disturb a job. Jobs within an allocation wait for the node instead."""
    desired = current.examination.desired[name]
    if not any(_guarding(desired)):
        return False
    work = current.fixable(name) or desired.benchmark or desired.datasets
    return bool(work or _via(desired, "ssh") or invocation.search.via == "ssh")


def _ask(current: Session, when: str, hosts: Iterable[str]) -> None:
    """Ask once for all hosts. A node whose scheduler does not answer is not touched."""
    desired = {host: current.examination.desired[host] for host in hosts if _changes(current, host)}
    reasons: dict[str, str] = {}
    for name in registry.names():
        if guarded := {host: state for host, state in desired.items() if name in _guarding(state)}:
            remedy = f": nothing is changed there; {name}.allow_allocated allows it"
            reasons |= _held(name, guarded, connected(current.state, name).allocation, remedy)
    current.shared[f"schedulers: {when}"] = reasons


def _held(
    name: str, desired: Mapping[str, DesiredState], beside: Allocation | None = None, remedy: str = ""
) -> dict[str, str]:
    """Return the hosts that jobs hold in a scheduler, or whose jobs could not be read, each with the reason."""
    nodes = names_of(desired, name)
    scheduler = registry.find(name)(settings_of(next(iter(desired.values())), name))
    try:
        jobs = scheduler.jobs_on(nodes.values(), beside)
    except SchedulerError as error:
        return dict.fromkeys(nodes, f"the jobs of the node could not be read: {error}")
    held = {host: ", ".join(jobs[node][:3]) for host, node in nodes.items() if node in jobs}
    return {host: f"{scheduler.title} job {shown} holds it{remedy}" for host, shown in held.items()}


def _reasons(current: Session, when: str) -> dict[str, str]:
    reasons = current.shared.get(f"schedulers: {when}")
    return reasons if isinstance(reasons, dict) else {}


def _still_free(current: Session, host: Host) -> bool:
    reason = _reasons(current, "now").get(host.name)
    if reason:
        host.log_styled(reason, fg="red", log_func=logger.error)
        current.exclude(host.name, reason, Verdict.FAIL)
    return not reason


def via_of(current: Session) -> str:
    """Return how the smoke run's jobs are started. Raise PyinfraError where hosts of one job differ in that."""
    vias = {name: state.smoke.via for name, state in current.examination.desired.items() if state.smoke}
    try:
        return same("smoke.via", vias)
    except ValueError as error:
        raise PyinfraError(str(error)) from None


def where_of(current: Session, via: str) -> Allocation | None:
    """Return the way of all jobs of a run to their nodes; None: pyinfra's own connections. Raise PyinfraError."""
    if via == "ssh":
        return None
    title = f"shakedown-{current.record.run_id}" if current.record else "shakedown"
    try:
        if (held := connected(current.state, via).allocation) is not None:
            return _Held(held)
        with current.lock:
            if via not in current.shared:
                made = allocation_of(current.examination.desired, via, title)
                current.shared[via] = _UntilTheEnd(made)
                current.closing.append(made.end)
                atexit.register(made.end, cancel=True)  # of a run that is never closed
            return cast(Allocation, current.shared[via])
    except (ValueError, SchedulerError) as error:
        raise PyinfraError(str(error)) from None


class _Held(Allocation):
    """The allocation through which the hosts are connected: it ends when the last host is disconnected."""

    def __init__(self, allocation: Allocation) -> None:
        self._allocation = allocation

    def start(self, title: str, among: Sequence[str]) -> AbstractContextManager[Remote]:
        """Open a step for one job."""
        return self._allocation.start(title, among)

    def lost(self) -> str | None:
        """Return what the scheduler says."""
        return self._allocation.lost()


class _UntilTheEnd(_Held):
    """One allocation for all stages of a run, made by the first: giving it back between them would queue anew."""

    def allocate(self, among: Sequence[str], say: Callable[[str], None], interrupted: Interrupted) -> None:
        """Allocate the first time, or for nodes that are missing."""
        self._allocation.allocate(among, say, interrupted)

    def end(self, cancel: bool = False) -> None:
        """End it when a person has stopped the run; otherwise the end of the run does."""
        if cancel:
            self._allocation.end(cancel=True)
