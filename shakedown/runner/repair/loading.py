"""The loads that show whether a node is healthy, and the partner nodes for them."""

from typing import Any

from shakedown.desired.models import DesiredState, Smoke
from shakedown.jobs.plan.participants import ranks_of
from shakedown.recipes.fitting import recipe_for
from shakedown.recipes.options import share
from shakedown.runner.repair.child import Commands
from shakedown.runner.repair.service import Picture
from shakedown.service.decide import Proposal
from shakedown.service.evidence import SMOKE
from shakedown.service.model import LOAD
from shakedown.trials.models import PAIRS

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
