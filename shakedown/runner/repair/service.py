"""The service of an inventory's nodes: what the ledger, the scheduler and the nodes themselves say, put together;
and the loads that show whether a node is healthy, with the partner nodes for them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from shakedown import ledger as memory
from shakedown.checks.examination import Examination
from shakedown.common.text import name, printable
from shakedown.desired.models import DesiredState, Service, Smoke
from shakedown.jobs.plan.participants import ranks_of
from shakedown.recipes.fitting import recipe_for
from shakedown.recipes.options import share
from shakedown.runner.repair.child import Commands
from shakedown.runner.repair.scheduler import Scheduled, names_of, read_scheduler, services_of
from shakedown.schedulers.interface import Node
from shakedown.service import decide
from shakedown.service.decide import Facts, Limits, Proposal, proposals
from shakedown.service.evidence import SMOKE, from_findings
from shakedown.service.marks import PREFIX, Board, Mark, is_managed, marks, shown, unmanaged_reason
from shakedown.service.model import LOAD, History, Known, history
from shakedown.state.findings import FixedBy, Verdict
from shakedown.state.node import NodeState, is_unreadable
from shakedown.trials.models import PAIRS

if TYPE_CHECKING:
    from shakedown.ledger.claims import Room
    from shakedown.ledger.store import Ledger


@dataclass
class Picture:
    """The state of all nodes at one moment."""

    examination: Examination
    services: dict[str, Service]
    known: dict[str, Known]
    histories: dict[str, History]
    scheduled: Scheduled
    names: dict[str, str]  # host -> its name in the scheduler
    fleet: int  # nodes of the whole inventory
    stopped: str = ""
    elsewhere: set[str] = field(default_factory=set)  # nodes that are none of these, and are being mended
    parts: dict[str, list[str]] = field(default_factory=dict)
    claims: dict[str, str] = field(default_factory=dict)  # node -> the process of another controller at work there
    seen: int = 0  # the last step that was read

    def node(self, host: str) -> Node | None:
        """Return the host as the scheduler has it."""
        return self.scheduled.nodes.get(self.names.get(host, ""))

    def proposals(self, now: int) -> list[Proposal]:
        """Return what is next for each suspect."""
        facts = {host: self.facts(host) for host in self.histories}
        limits = Limits(self.at_once, self.stopped, self.out)
        return proposals(self.histories, self.known, facts, self.services, limits, now)

    @property
    def at_once(self) -> int:
        return decide.at_once(self.services.values(), self.fleet)

    @property
    def out(self) -> set[str]:
        """The nodes that we hold out of service: drained, or in the middle of a step."""
        hosts = {name: host for host, name in self.names.items()}  # the scheduler may have more nodes
        nodes = self.scheduled.nodes.items()
        drained = {hosts.get(name, name) for name, node in nodes if node.drained and node.reason.startswith(PREFIX)}
        last = {host: past.taken("begun", "handed over", "taken back") for host, past in self.histories.items()}
        return drained | self.elsewhere | {host for host, step in last.items() if step and step.done == "begun"}

    @property
    def room(self) -> Room:
        """What a step that is begun now is decided by."""
        return memory.claims.Room(frozenset(self.out), self.at_once, self.seen)

    def marks(self) -> list[Mark]:
        """Return what is to be changed in the scheduler, for the nodes whose desired state allows it."""
        services, scheduled = self.services, self.scheduled
        wanted = {node for node, service in services.items() if service.scheduler and service.drain != "never"}
        if scheduled.owner is None or scheduled.wrong or not wanted:
            return []
        named = [node for node, past in self.histories.items() if any(entry.drains for entry in past.incidents)]
        stopped = decide.too_many_named(named, decide.stop_at(services.values(), self.fleet))
        limits = Limits(decide.at_once([services[node] for node in wanted], self.fleet), stopped)
        chosen = {node: past for node, past in self.histories.items() if node in wanted}
        return marks(chosen, self.known, scheduled.nodes, self.names, limits)

    def facts(self, host: str) -> Facts:
        """Return the facts of a host now."""
        service, node = self.services[host], self.node(host)
        state = self.examination.state_of(host)
        steps = self.known[host].steps
        managed = node is not None and is_managed(node, steps)
        findings = self.examination.findings.get(host, [])
        incidents = from_findings(findings, 0)
        drifted = [finding for finding in findings if finding.verdict == Verdict.DRIFT]
        return Facts(
            reached=state is not None,
            job=self._job(host, state, node),
            unmanaged=unmanaged_reason(node, steps) if node is not None else "",
            managed=managed,
            waits=node is not None and node.allocated and not managed and service.drain == "yes",
            drainable=not service.scheduler or managed or service.drain == "yes",
            found=None if state is None else frozenset((incident.source, incident.name) for incident in incidents),
            claimed=self.claims.get(name(host), ""),
            pending=bool(drifted) and all(finding.fixed_by in (FixedBy.LOGIN, FixedBy.REBOOT) for finding in drifted),
        )

    def _job(self, host: str, state: NodeState | None, node: Node | None) -> str:
        """Return why a host has a job, or why that is unknown; empty: it has none."""
        service = self.services[host]
        if service.scheduler:
            if untold := self._untold(host):
                return untold
            if node is not None and node.allocated:
                return f"{self.scheduled.title}: {'+'.join(node.states).lower()}"
        if state is None:
            unasked = service.scheduler or (service.bmc is not None and service.bmc.unasked)
            return "" if unasked else "it does not answer, and no scheduler is asked (service.bmc.unasked)"
        return on_its_gpus(state, self.examination.desired[host])

    def _untold(self, host: str) -> str:
        if not self.services[host].scheduler:
            return ""
        if self.scheduled.wrong:
            return f"{self.scheduled.title} could not be asked: {self.scheduled.wrong}"
        return "" if self.node(host) is not None else f"{self.scheduled.title} has no node of that name"

    def board(self) -> Board:
        """Return the picture as it is shown."""
        now = int(time.time())
        nexts = {proposal.node: proposal for proposal in self.proposals(now)}
        known, parts = self.known, self.parts
        nodes = [
            shown(host, known[host], past, nexts.get(host), self.node(host), parts.get(host, ()), self._untold(host))
            for host, past in self.histories.items()
        ]
        title, why = self.scheduled.title, self.scheduled.wrong
        wrong = f"{title} could not be asked, so it is unknown which nodes are drained or have a job: {why}"
        return Board(nodes, [*([wrong] if why else []), *([self.stopped] if self.stopped else [])], self.marks())


def on_its_gpus(state: NodeState, desired: DesiredState) -> str:
    """Return who uses a node's GPUs, or that this is unknown; empty: no process."""
    if is_unreadable(state.gpu_processes):
        return "" if desired.gpu.count == 0 else "the processes on its GPUs could not be read"
    users = [printable(f"{user.name} ({user.pid})", 60) for user in state.gpu_processes[:3]]
    return f"on its GPUs: {', '.join(users)}" if users else ""


def picture(ledger: Ledger, examination: Examination, names: Sequence[str], kept: bool) -> Picture:
    """Read everything as it is. `names`: of the inventory; `kept`: it is in the ledger. Raise LedgerError."""
    fleet = len(names)
    services = services_of(examination.desired)
    hosts = list(services)
    now = int(time.time())
    seen = memory.claims.newest_step(ledger)  # first: what comes later is news
    every = memory.claims.known_of(ledger, {*names, *hosts})
    known = {host: every[host] for host in hosts}
    if not kept:
        for host, entry in known.items():
            found = from_findings(examination.findings.get(host, []), now)
            known[host] = entry.model_copy(update={"incidents": (*entry.incidents, *found)})
    scheduled = read_scheduler(services, examination.desired)
    stopped = decide.too_many_failed(every, now, decide.stop_at(services.values(), fleet))
    return Picture(
        examination=examination,
        services=services,
        known=known,
        histories={host: history(known[host], fleet == 1) for host in hosts},
        scheduled=scheduled,
        names=names_of(examination.desired, scheduled),
        fleet=fleet,
        stopped=stopped,
        elsewhere=memory.claims.under_way(ledger, now - decide.MENDING_S) - set(hosts),
        parts=memory.claims.parts_of(ledger, [host for host in hosts if known[host].incidents or known[host].steps]),
        claims=memory.claims.holders(ledger),
        seen=seen,
    )


_PARTNERS = {SMOKE: 1, PAIRS: 2}  # nodes besides the one that is tried: pairs are compared from three nodes on


def loads(commands: Commands, picture: Picture, proposal: Proposal, partners: list[str]) -> list[list[str]]:
    """Return the commands that put a node under the loads that it has to pass, and under one with others."""
    desired = picture.examination.desired[proposal.node]
    wanted, smoke = list(proposal.loads), desired.smoke
    trials = [load for load in wanted if load != SMOKE]
    if smoke is None and PAIRS not in trials:
        trials.append(PAIRS)
    found = [commands.trials(trials, [proposal.node, *partners])] if trials else []
    if smoke is not None and (SMOKE in wanted or PAIRS not in trials):
        as_it_is = {"exclude": None, "isolate": False, "via": "ssh"}  # drained, it is given no job by a scheduler
        as_it_is |= _batch(desired, smoke, len(partners) + 1, picture.fleet)
        found.append(commands.deploy("load", [proposal.node, *partners], smoke=as_it_is))
    return found


def _batch(desired: DesiredState, smoke: Smoke, part: int, nodes: int) -> dict[str, Any]:
    """Return the site's global batch at the size of the load; nothing where the site gives none."""
    recipe = recipe_for(smoke, [desired.gpu.profile])
    option = recipe.family.batch_option if recipe else ""
    if recipe is None or option not in smoke.options:
        return {}
    batch = share(recipe, smoke, part, nodes, ranks_of(desired, smoke, recipe) or 1)[option]
    return {"options": {option: batch}}


def partners_of(picture: Picture, proposal: Proposal) -> list[str] | str:
    """Return fit and free nodes to be loaded with this one; or the reason why there can be no load."""
    smoke = picture.examination.desired[proposal.node].smoke
    if smoke is None and SMOKE in proposal.loads:
        return "the node has to pass a training, and its desired state has no section smoke"
    least = max(_PARTNERS[SMOKE], (smoke.min_nodes or 0) - 1) if smoke else 0
    if PAIRS in proposal.loads or smoke is None:
        least = max(least, _PARTNERS[PAIRS])
    if picture.fleet == 1:
        return []
    fit = [host for host in picture.histories if host != proposal.node and _fit(picture, host)]
    groups, out = picture.examination.groups, picture.out
    # Healthy nodes come first, and like with like, as far as there are such.
    fit.sort(key=lambda host: (bool(picture.histories[host].open), groups.get(host) != groups.get(proposal.node)))
    # Each load has other partners: the same node in all of them could keep this one out alone.
    steps = picture.histories[proposal.node].steps
    turn = least * sum(step.done == "begun" and step.rung == LOAD for step in steps) % max(len(fit), 1)
    fit = fit[turn:] + fit[:turn]
    if len(fit) < least:
        return f"a load needs {least} other nodes that are healthy and free, and there are {len(fit)}"
    if not picture.services[proposal.node].scheduler:
        return fit[:least]
    room = picture.at_once - len(out | {proposal.node})
    for chosen in (fit[:least], sorted(fit, key=lambda host: host not in out)[:least]):
        if len(set(chosen) - out) <= room:
            return chosen
    allows = f"service.at_once allows {picture.at_once}"
    return f"a load needs {least} other nodes out of service for its time, and {allows}"


def _fit(picture: Picture, host: str) -> bool:
    """Return whether a node can be a partner: only settings that an operation changes speak against it, and no
    controller works on it. Such a node takes nothing away from a passed load. Without such nodes a rack that has
    drifted as a whole, as after a change of its desired state, could not come back node by node."""
    facts, past = picture.facts(host), picture.histories[host]
    drift_only = all(incident.drift for incident in past.incidents)
    last = past.taken("begun", "ended", "handed over", "taken back")
    at_work = last is not None and last.done in ("begun", "handed over")  # a step has no end, or a person has the node
    healthy = drift_only and not at_work and not picture.examination.blockers(host)
    return facts.reached and healthy and not (facts.job or facts.unmanaged or facts.claimed) and facts.drainable
