"""Nodes' service in the scheduler: read, drained, resumed, each change a step in the ledger."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from shakedown.desired.models import DesiredState, Service
from shakedown.ledger import claims
from shakedown.ledger import service as book
from shakedown.ledger.claims import Room
from shakedown.ledger.place import LedgerError
from shakedown.ledger.store import Ledger, open_ledger
from shakedown.runs.directory import RunRecord
from shakedown.schedulers.owner import Node, Owner, SchedulerError, owner_of
from shakedown.service import limits
from shakedown.service.marks import OURS, WITNESS, Bounds, Mark, is_ours, marks, names_in
from shakedown.service.model import Accusation, Known, Proof, Step
from shakedown.service.standing import History, history

AHEAD_S = 60  # that another controller's clock may be ahead of ours


@dataclass(frozen=True)
class Scheduled:
    """All nodes that the scheduler has, by name; or why it could not be asked."""

    owner: Owner | None = None  # None: the desired state names none
    nodes: Mapping[str, Node] = field(default_factory=dict)
    wrong: str = ""

    @property
    def asked(self) -> bool:
        """Whether the desired state names a scheduler."""
        return self.owner is not None or bool(self.wrong)

    @property
    def title(self) -> str:
        """What people call it."""
        return self.owner.title if self.owner else "the scheduler"


def services_of(desired: Mapping[str, DesiredState]) -> dict[str, Service]:
    """What the desired state says of each node's service; where it says nothing, that nothing may be done."""
    return {node: state.service or Service() for node, state in desired.items()}


def names_of(desired: Mapping[str, DesiredState], found: Scheduled) -> dict[str, str]:
    """The hosts' names in the scheduler."""
    given = {
        host: each.slurm.node if each.slurm and each.service and each.service.scheduler == "slurm" else None
        for host, each in desired.items()
    }
    return names_in(found.nodes, given)


def scheduled(services: Mapping[str, Service], desired: Mapping[str, DesiredState]) -> Scheduled:
    """The scheduler's nodes, where any of these has one."""
    owners = {
        (each.scheduler, state.kubernetes.context if (state := desired[node]).kubernetes else None)
        for node, each in services.items()
        if each.scheduler
    }
    if not owners:
        return Scheduled()
    if len(owners) > 1:
        return Scheduled(
            wrong="service.scheduler and kubernetes.context have to be the same on all nodes that have one"
        )
    owner = owner_of(*owners.pop())
    try:
        return Scheduled(owner, {node.name: node for node in owner.read()})
    except SchedulerError as error:
        return Scheduled(owner, wrong=str(error))


def proposed(
    services: Mapping[str, Service],
    known: Mapping[str, Known],
    histories: Mapping[str, History],
    found: Scheduled,
    names: Mapping[str, str],
    fleet: int,
) -> list[Mark]:
    """What is to be changed in the scheduler, as far as the desired state speaks of it at all."""
    wanted = {node for node, each in services.items() if each.scheduler and each.drain != "never"}
    if not found.asked or found.wrong or not wanted:
        return []
    named = [node for node, its in histories.items() if any(each.drains for each in its.accusations)]
    stopped = limits.too_many_named(named, limits.stop_at(services.values(), fleet))
    bounds = Bounds(limits.at_once([services[node] for node in wanted], fleet), stopped)
    mine = {node: its for node, its in histories.items() if node in wanted}
    return marks(mine, known, found.nodes, names, bounds)


def carry_out(ledger: Ledger, found: Scheduled, mark: Mark, known: Known, room: Room) -> str:
    """Drain or resume a node, with its step in the ledger; the node is read once more before. Returns why it was not
    done; empty: it was. Raises LedgerError, and has then changed nothing."""
    owner = found.owner
    if owner is None:
        return f"{mark.node}: not {mark.what}ed: {found.wrong or 'no scheduler is named'}"
    try:
        (now,) = owner.read([mark.there])
        if mark.what == "drain":
            if now.drained or now.down or (now.reason and not now.reason.startswith(OURS)):
                return f"{mark.node}: not drained: meanwhile {now.why_not() or now.reason}"
            step = Step(
                node=mark.node, at=after(known), done="drained", name=mark.name, why=mark.reason, who=book.who()
            )
            if why := claims.begin(ledger, step, room):  # before the drain: an unknown reason is not managed
                return f"not drained: {why}"
            owner.drain(mark.there, mark.reason)
        elif by := claims.holders(ledger).get(mark.node):
            return f"{mark.node}: not resumed: {by} is at work there"
        elif not is_ours(now, known.steps):
            return f"{mark.node}: not resumed: meanwhile {now.why_not() or 'it was resumed'}"
        else:
            owner.resume(mark.there, mark.why)
            book.write(ledger, Step(node=mark.node, at=after(known), done="resumed", why=mark.why, who=book.who()))
    except SchedulerError as error:
        return f"{mark.node}: not {mark.what}ed: {error}"
    return ""


def after(known: Known) -> int:
    """Now, and later than all that is known of a node: seconds since 1970 UTC. Raises LedgerError for what is yet to
    come: nothing could follow it."""
    events: list[Accusation | Proof | Step] = [*known.accusations, *known.proofs, *known.steps]
    now, last = int(time.time()), max(events, key=lambda each: each.at, default=None)
    if last is not None and last.at > now + AHEAD_S:
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(last.at))
        raise LedgerError(f"ledger: {last.node} has an entry of {when} UTC, which is yet to come: is a clock wrong?")
    return max(now, 1 + (last.at if last is not None else 0))


def after_run(record: RunRecord, desired: Mapping[str, DesiredState], fleet: int, say: Callable[[str], None]) -> None:
    """Once a run is in the ledger: the nodes that it names are drained, those that it has cleared are resumed, where
    the desired state allows it; or that is proposed. It changes no verdict, and never raises."""
    services = services_of(desired)
    if (
        record.kind != "run"
        or record.not_in_ledger
        or not any(each.scheduler and each.drain != "never" for each in services.values())
    ):
        return
    found = scheduled(services, desired)
    if found.wrong:
        say(f"no node was drained or resumed: {found.wrong}")
        return
    try:
        ledger = open_ledger()
        seen = claims.newest_step(ledger)
        known = book.known_of(ledger, services)
        histories = {node: history(its, fleet == 1) for node, its in known.items()}
        names = names_of(desired, found)
        room = Room(frozenset(out_by_us(found, names)), limits.at_once(services.values(), fleet), seen)
        for mark in proposed(services, known, histories, found, names, fleet):
            if mark.name == WITNESS:
                continue  # whoever holds it is at work, or the next `shakedown service --drain` lets it go
            if mark.what == "leave" or services[mark.node].drain == "propose":
                say(str(mark) if mark.what == "leave" else f"proposed: {mark} (shakedown service INVENTORY --drain)")
            else:
                say(carry_out(ledger, found, mark, known[mark.node], room) or str(mark))
    except (LedgerError, OSError, ValueError) as error:
        say(f"no node was drained or resumed: {error}")


def out_by_us(found: Scheduled, names: Mapping[str, str]) -> set[str]:
    """The nodes that are drained by us, as the inventory names them, or the scheduler where it does not."""
    hosts = {name: host for host, name in names.items()}
    return {
        hosts.get(name, name) for name, node in found.nodes.items() if node.drained and node.reason.startswith(OURS)
    }
