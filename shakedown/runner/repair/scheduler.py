"""Nodes in the scheduler: read, drained and resumed. Every change is a step in the ledger."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from shakedown import ledger as memory
from shakedown.desired.models import DesiredState, Service
from shakedown.ledger import LedgerError
from shakedown.runner.jobs.connection import settings_of
from shakedown.runs.directory import RunRecord
from shakedown.schedulers import registry
from shakedown.schedulers.interface import Node, Scheduler, SchedulerError
from shakedown.service import decide
from shakedown.service.evidence import incidents, passed_loads
from shakedown.service.marks import PARTNER, PREFIX, Mark, drain_reason, is_managed, marks, names_in
from shakedown.service.model import History, Incident, Known, PassedLoad, Step, history

if TYPE_CHECKING:
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
    names = {
        host: settings_of(state, state.service.scheduler).get("node")
        if state.service and state.service.scheduler
        else None
        for host, state in desired.items()
    }
    return names_in(scheduled.nodes, names)


def read_scheduler(services: Mapping[str, Service], desired: Mapping[str, DesiredState]) -> Scheduled:
    """Read the scheduler's nodes, where any of these hosts has a scheduler."""
    sections = [
        (service.scheduler, settings_of(desired[node], service.scheduler))
        for node, service in services.items()
        if service.scheduler
    ]
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


def proposed(
    services: Mapping[str, Service],
    known: Mapping[str, Known],
    histories: Mapping[str, History],
    scheduled: Scheduled,
    names: Mapping[str, str],
    fleet: int,
) -> list[Mark]:
    """Return what is to be changed in the scheduler, for the nodes whose desired state allows it."""
    wanted = {node for node, service in services.items() if service.scheduler and service.drain != "never"}
    if scheduled.owner is None or scheduled.wrong or not wanted:
        return []
    named = [node for node, history in histories.items() if any(entry.drains for entry in history.incidents)]
    stopped = decide.too_many_named(named, decide.stop_at(services.values(), fleet))
    limits = decide.Limits(decide.at_once([services[node] for node in wanted], fleet), stopped)
    chosen = {node: history for node, history in histories.items() if node in wanted}
    return marks(chosen, known, scheduled.nodes, names, limits)


def carry_out(ledger: Ledger, scheduled: Scheduled, mark: Mark, known: Known, room: Room) -> str:
    """Drain or resume a node, with its step in the ledger, after one more reading of the node. Return why it was not
    done; empty: it was. Raise LedgerError before anything is changed."""
    owner = scheduled.owner
    if owner is None:
        return f"{mark.node}: not {mark.what}ed: {scheduled.wrong or 'no scheduler is named'}"
    book = memory.claims
    try:
        (now,) = owner.read([mark.there])
        if mark.what == "drain":
            if now.drained or now.down or (now.reason and not now.reason.startswith(PREFIX)):
                return f"{mark.node}: not drained: meanwhile {now.why_not() or now.reason}"
            step = Step(
                node=mark.node, at=after(known), done="drained", name=mark.name, why=mark.reason, who=book.who()
            )
            if refusal := book.begin(ledger, step, room):  # before the drain: an unknown reason is not managed
                return f"not drained: {refusal}"
            owner.drain(mark.there, mark.reason)
        elif by := book.holders(ledger).get(mark.node):
            return f"{mark.node}: not resumed: {by} is at work there"
        elif not is_managed(now, known.steps):
            return f"{mark.node}: not resumed: meanwhile {now.why_not() or 'it was resumed'}"
        else:
            owner.resume(mark.there, mark.why)
            book.write(ledger, Step(node=mark.node, at=after(known), done="resumed", why=mark.why, who=book.who()))
    except SchedulerError as error:
        return f"{mark.node}: not {mark.what}ed: {error}"
    return ""


def after(known: Known) -> int:
    """Return a time that is now and later than all entries of a node: seconds since 1970 UTC. Raise LedgerError for an
    entry of the future: nothing could follow it."""
    events: list[Incident | PassedLoad | Step] = [*known.incidents, *known.passed_loads, *known.steps]
    now, last = int(time.time()), max(events, key=lambda event: event.at, default=None)
    if last is not None and last.at > now + AHEAD_S:
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(last.at))
        raise LedgerError(f"ledger: {last.node} has an entry of {when} UTC, which is yet to come: is a clock wrong?")
    return max(now, 1 + (last.at if last is not None else 0))


def after_run(record: RunRecord, desired: Mapping[str, DesiredState], fleet: int, say: Callable[[str], None]) -> None:
    """Drain the nodes that a run in the ledger names, and resume those that it has cleared, or propose that, as the
    desired state allows. Change no verdict, and never raise."""
    services = services_of(desired)
    allowed = any(service.scheduler and service.drain != "never" for service in services.values())
    if record.kind != "run" or record.not_in_ledger or not allowed:
        return
    scheduled = read_scheduler(services, desired)
    if scheduled.wrong:
        say(f"no node was drained or resumed: {scheduled.wrong}")
        return
    try:
        ledger = memory.store.open_ledger()
        seen = memory.claims.newest_step(ledger)
        known = memory.claims.known_of(ledger, services)
        histories = {node: history(entries, fleet == 1) for node, entries in known.items()}
        names = names_of(desired, scheduled)
        at_once = decide.at_once(services.values(), fleet)
        room = memory.claims.Room(frozenset(out_by_us(scheduled, names)), at_once, seen)
        for mark in proposed(services, known, histories, scheduled, names, fleet):
            if mark.name == PARTNER:
                continue  # whoever holds it is at work, or the next `shakedown service --drain` lets it go
            if mark.what == "leave" or services[mark.node].drain == "propose":
                say(str(mark) if mark.what == "leave" else f"proposed: {mark} (shakedown service INVENTORY --drain)")
            else:
                say(carry_out(ledger, scheduled, mark, known[mark.node], room) or str(mark))
        marked = {node: names[node] for node, service in services.items() if service.drain == "yes" and node in names}
        for problem in verified(scheduled.owner, record, marked):
            say(problem)
    except (LedgerError, OSError, ValueError) as error:
        say(f"no node was drained or resumed: {error}")


def verified(owner: Scheduler | None, record: RunRecord, names: Mapping[str, str]) -> Iterator[str]:
    """Show in the scheduler which nodes a run verified, and which it named. A node that passed nothing and is not
    named keeps its mark. Yield why a node has none."""
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


def out_by_us(scheduled: Scheduled, names: Mapping[str, str]) -> set[str]:
    """Return the nodes that we have drained, as the inventory names them, or the scheduler where it does not."""
    hosts = {name: host for host, name in names.items()}
    drained = [name for name, node in scheduled.nodes.items() if node.drained and node.reason.startswith(PREFIX)]
    return {hosts.get(name, name) for name in drained}
