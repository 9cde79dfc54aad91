"""The loads that show whether a node is well: which they are, and which nodes bear witness."""

from __future__ import annotations

from shakedown.runner.repair.child import Commands
from shakedown.runner.repair.service import Picture
from shakedown.service.decide import Proposal
from shakedown.service.evidence import SMOKE
from shakedown.service.model import LOAD
from shakedown.service.status import History
from shakedown.trials.models import PAIRS

_WITNESSES = {SMOKE: 1, PAIRS: 2}  # nodes besides the one that is tried: pairs are compared from three nodes on


def loads(commands: Commands, picture: Picture, proposal: Proposal, witnesses: list[str]) -> list[list[str]]:
    """The commands that put a node under the loads that it has to pass, and under one with others."""
    wanted, smoke = list(proposal.loads), picture.examination.desired[proposal.node].smoke is not None
    trials = [load for load in wanted if load != SMOKE]
    if not smoke and PAIRS not in trials:
        trials.append(PAIRS)
    found = [commands.trials(trials, [proposal.node, *witnesses])] if trials else []
    if smoke and (SMOKE in wanted or PAIRS not in trials):
        as_it_is = {"exclude": None, "isolate": False, "via": "ssh"}  # drained, it is given no job by a scheduler
        found.append(commands.deploy("load", [proposal.node, *witnesses], smoke=as_it_is))
    return found


def witnesses(picture: Picture, proposal: Proposal) -> list[str] | str:
    """Nodes that are fit, and free, to be loaded with this one; or why there can be no load."""
    smoke = picture.examination.desired[proposal.node].smoke
    if smoke is None and SMOKE in proposal.loads:
        return "it has to pass a training, and the desired state has no section smoke"
    least = max(_WITNESSES[SMOKE], (smoke.min_nodes or 0) - 1) if smoke else 0
    if PAIRS in proposal.loads or smoke is None:
        least = max(least, _WITNESSES[PAIRS])
    if picture.fleet == 1:
        return []
    fit = [host for host in picture.histories if host != proposal.node and _fit(picture, host)]
    groups, out = picture.examination.groups, picture.out
    # Those that are well come first, and like with like, as far as there are such.
    fit.sort(key=lambda host: (bool(picture.histories[host].open), groups.get(host) != groups.get(proposal.node)))
    # Each load has the next ones bear witness: the same node in all of them could keep this one out by itself.
    steps = picture.histories[proposal.node].steps
    turn = least * sum(step.done == "begun" and step.rung == LOAD for step in steps) % max(len(fit), 1)
    fit = fit[turn:] + fit[:turn]
    if len(fit) < least:
        return f"a load needs {least} other nodes that are well and free, and there are {len(fit)}"
    if not picture.services[proposal.node].scheduler:
        return fit[:least]
    room = picture.at_once - len(out | {proposal.node})
    for chosen in (fit[:least], sorted(fit, key=lambda host: host not in out)[:least]):
        if len(set(chosen) - out) <= room:
            return chosen
    allows = f"service.at_once allows {picture.at_once}"
    return f"a load needs {least} other nodes out of service for its time, and {allows}"


def _fit(picture: Picture, host: str) -> bool:
    """Whether it can bear witness: nothing stands against it but settings that an operation changes, and nobody is at
    it. Of a load that is passed such a node takes nothing away; without them no rack that has drifted as a whole, as
    after a change of its desired state, could be brought back node by node."""
    facts, its = picture.facts(host), picture.histories[host]
    well = all(each.drift for each in its.incidents) and not _at_work(its) and not picture.examination.blockers(host)
    return facts.reached and well and not (facts.job or facts.unmanaged or facts.claimed) and facts.drainable


def _at_work(its: History) -> bool:
    """Whether a step was begun that has no end, or a person has the node."""
    last = its.taken("begun", "ended", "handed over", "taken back")
    return last is not None and last.done in ("begun", "handed over")
