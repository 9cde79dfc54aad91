"""Nodes in the scheduler: read, drained and resumed. Every change is a step in the ledger."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from shakedown import ledger as memory
from shakedown.common.text import printable
from shakedown.desired.models import DesiredState, Service
from shakedown.ledger import LedgerError
from shakedown.runner.jobs.connection import settings_of
from shakedown.runs.directory import RunRecord
from shakedown.schedulers import registry
from shakedown.schedulers.interface import Node, Scheduler, SchedulerError
from shakedown.service.evidence import incidents, passed_loads
from shakedown.service.marks import PARTNER, PREFIX, Mark, drain_reason, is_managed, names_in
from shakedown.service.model import Incident, Known, PassedLoad, Step

if TYPE_CHECKING:
    from shakedown.checks.examination import Examination
    from shakedown.ledger.claims import Room
    from shakedown.ledger.store import Ledger

AHEAD_S = 60  # that another controller's clock may be ahead of ours


@dataclass(frozen=True)
class Scheduled:
    """All nodes that the scheduler has, by name; or why it did not answer."""

    owner: Scheduler | None = None  # None: the desired state names none
    nodes: Mapping[str, Node] = field(default_factory=dict)
    wrong: str = ""

    @property
    def title(self) -> str:
        """Return what people call it."""
        return self.owner.title if self.owner else "the scheduler"


def services_of(desired: Mapping[str, DesiredState]) -> dict[str, Service]:
    """Return the section `service` of every node; without one nothing may be done."""
    return {node: state.service or Service() for node, state in desired.items()}


def names_of(desired: Mapping[str, DesiredState], scheduled: Scheduled) -> dict[str, str]:
    """Return the hosts' names in the scheduler."""
    kinds = {host: state.service.scheduler if state.service else None for host, state in desired.items()}
    names = {host: settings_of(desired[host], kind).get("node") if kind else None for host, kind in kinds.items()}
    return names_in(scheduled.nodes, names)


def read_scheduler(services: Mapping[str, Service], desired: Mapping[str, DesiredState]) -> Scheduled:
    """Read the scheduler's nodes, where any of these hosts has a scheduler."""
    named = [(service.scheduler, node) for node, service in services.items() if service.scheduler]
    sections = [(name, settings_of(desired[node], name)) for name, node in named]
    kinds = {name: registry.find(name) for name, _ in sections}
    if not sections:
        return Scheduled()
    clusters = {(name, *(section.get(key) for key in kinds[name].of_cluster)) for name, section in sections}
    if len(clusters) > 1:
        keys = ["service.scheduler", *(f"{name}.{key}" for name, kind in kinds.items() for key in kind.of_cluster)]
        return Scheduled(wrong=f"{' and '.join(keys)} must be the same on all nodes that have a scheduler")
    name, settings = sections[0]
    owner = kinds[name](settings)
    try:
        return Scheduled(owner, {node.name: node for node in owner.read()})
    except SchedulerError as error:
        return Scheduled(owner, wrong=str(error))


def carry_out(ledger: Ledger, scheduled: Scheduled, mark: Mark, known: Known, room: Room) -> str:
    """Drain or resume a node, with its step in the ledger, after one more reading of the node. Return why it was not
    done; empty: it was. Raise LedgerError before anything is changed."""
    if (owner := scheduled.owner) is None:
        return f"{mark.node}: not {mark.what}ed: {scheduled.wrong or 'no scheduler is named'}"
    book, who = memory.claims, memory.claims.who()
    try:
        (now,) = owner.read([mark.there])
        if mark.what == "drain":
            if now.drained or now.down or (now.reason and not now.reason.startswith(PREFIX)):
                return f"{mark.node}: not drained: meanwhile {now.why_not() or now.reason}"
            step = Step(node=mark.node, at=after(known), done="drained", name=mark.name, why=mark.reason, who=who)
            if refusal := book.begin(ledger, step, room):  # before the drain: an unknown reason is not managed
                return f"not drained: {refusal}"
            owner.drain(mark.there, mark.reason)
        elif by := book.holders(ledger).get(mark.node):
            return f"{mark.node}: not resumed: {by} is at work there"
        elif not is_managed(now, known.steps):
            return f"{mark.node}: not resumed: meanwhile {now.why_not() or 'it was resumed'}"
        else:
            owner.resume(mark.there, mark.why)
            book.write(ledger, Step(node=mark.node, at=after(known), done="resumed", why=mark.why, who=who))
    except SchedulerError as error:
        return f"{mark.node}: not {mark.what}ed: {error}"
    return ""


def after(known: Known) -> int:
    """Return a time that is now and later than all entries of a node. Raise LedgerError for a future entry."""
    events: list[Incident | PassedLoad | Step] = [*known.incidents, *known.passed_loads, *known.steps]
    now, last = int(time.time()), max(events, key=lambda event: event.at, default=None)
    if last is not None and last.at > now + AHEAD_S:
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(last.at))
        raise LedgerError(f"ledger: {last.node} has an entry of {when} UTC, which is yet to come: is a clock wrong?")
    return max(now, 1 + (last.at if last is not None else 0))


def after_run(record: RunRecord, examination: Examination, names: Sequence[str], say: Callable[[str], None]) -> None:
    """Drain the nodes that a run in the ledger names, and resume those that it has cleared, or propose that, as the
    desired state allows. `names`: all nodes of the inventory. Change no verdict, and never raise."""
    services = services_of(examination.desired)
    allowed = any(service.scheduler and service.drain != "never" for service in services.values())
    if record.kind != "run" or record.not_in_ledger or not allowed:
        return
    from shakedown.runner.repair.service import picture  # 150 ms of a job's plan, that most runs do not need here

    try:
        ledger = memory.store.open_ledger()
        found = picture(ledger, examination, names, kept=True)
        if found.scheduled.wrong:
            say(f"no node was drained or resumed: {found.scheduled.wrong}")
            return
        site = shlex.quote(printable(record.inventory))
        for mark in found.marks():
            if mark.name == PARTNER:
                continue  # whoever holds it is at work, or the next `shakedown service --drain` lets it go
            if mark.what == "leave" or services[mark.node].drain == "propose":
                say(str(mark) if mark.what == "leave" else f"proposed: {mark} (shakedown service {site} --drain)")
            else:
                say(carry_out(ledger, found.scheduled, mark, found.known[mark.node], found.room) or str(mark))
        marked = {node: name for node, name in found.names.items() if services[node].drain == "yes"}
        for problem in verified(found.scheduled.owner, record, marked):
            say(problem)
    except (LedgerError, OSError, ValueError) as error:
        say(f"no node was drained or resumed: {error}")


def verified(owner: Scheduler | None, record: RunRecord, names: Mapping[str, str]) -> Iterator[str]:
    """Show in the scheduler which nodes a run verified or named; the others keep their mark. Yield problems."""
    found = incidents(record)
    reasons = {load.node: (True, f"{load.load} in {record.run_id}") for load in passed_loads(record, found)}
    for incident in found:
        if incident.drains:
            named = incident.model_copy(update={"run_id": record.run_id})
            reasons.setdefault(incident.node, (False, drain_reason(named)))
    for node in names.keys() & reasons.keys():
        try:
            if owner is None or not owner.verify(names[node], *reasons[node]):
                return
        except SchedulerError as error:
            yield f"{node}: not marked as verified: {error}"
