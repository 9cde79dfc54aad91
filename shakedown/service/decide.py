"""What to do next with nodes that are suspect. Pure: history, facts of the moment and limits in, proposals out.

Whatever is not known counts against acting: a node that may have a job is left alone, and so is one that somebody else
has taken out of service.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from shakedown.common.text import counted
from shakedown.service.ladder import Budget, ladder
from shakedown.service.model import LOAD, RUNGS, Accusation, Known, Step
from shakedown.service.standing import History

Kind = Literal["rung", "load", "drain", "hand over", "wait", "leave"]
LOADS = 2  # loads in a row that came to nothing, after which a person has to look


@dataclass(frozen=True)
class Facts:
    """What is known of a node now, besides its history. `job`: why it has a job, or why nobody can say; empty: it has
    none. `theirs`: who else has taken it out of service, and why. `ours`: we have, in the scheduler."""

    reached: bool = True
    job: str = ""
    theirs: str = ""
    ours: bool = False
    drainable: bool = True  # it can be kept free of jobs while it is worked on
    waits: bool = False  # it has a job in the scheduler, and draining it has it free once that has ended
    found: frozenset[tuple[str, str]] | None = None  # what the check finds now, by source and name; None: not read
    pending: bool = False  # something has drifted, and all of it is written down and waits for a boot or a login
    claimed: str = ""  # the process of a controller, other than this one, that is at work on the node


@dataclass(frozen=True)
class Allowed:
    """What the desired state allows on one node."""

    rungs: tuple[str, ...] = ("mend",)
    bmc: bool = False


@dataclass(frozen=True)
class Proposal:
    """What is to be done with a node next, or why nothing is."""

    node: str
    kind: Kind
    why: str
    rung: str = ""
    name: str = ""  # the accusation's
    loads: tuple[str, ...] = ()  # that are to be passed; empty: any, with other nodes
    until: int = 0  # of a wait: seconds since 1970 UTC


@dataclass
class Limits:
    """Of all nodes together. `stopped`: why nothing is begun at all."""

    at_once: int = 1
    stopped: str = ""
    busy: set[str] = field(default_factory=set)  # nodes that are out already: drained by us, or being mended elsewhere


def proposals(
    histories: Mapping[str, History],
    known: Mapping[str, Known],
    facts: Mapping[str, Facts],
    allowed: Mapping[str, Allowed],
    limits: Limits,
    now: int,
) -> list[Proposal]:
    """For each suspect what is next: those that are being mended already come first, so that what was begun ends."""
    begun = [node for node, its in histories.items() if its.steps]
    order = [*begun, *(node for node, its in histories.items() if its.open and not its.steps)]
    out = set(limits.busy)
    found = []
    for node in order:
        its = facts.get(node, Facts(reached=False, job="it was not asked"))
        proposal = next_of(node, histories[node], known.get(node, Known()), its, allowed.get(node, Allowed()), now)
        if proposal.kind in ("rung", "load"):
            proposal = _held(proposal, its, limits, out)
        if proposal.kind in ("rung", "load", "drain"):
            out.add(node)
        found.append(proposal)
    return found


def _held(proposal: Proposal, facts: Facts, limits: Limits, out: set[str]) -> Proposal:
    """The proposal, or why it must not be carried out now."""
    why = ""
    if limits.stopped:
        why = limits.stopped
    elif facts.theirs:
        why = f"out of service by somebody else: {facts.theirs}"
    elif not facts.drainable:
        why = "the scheduler could give it a job meanwhile: drain it, or allow it with service.drain"
    elif proposal.node not in out and len(out) >= limits.at_once:
        why = f"{len(out)} out of service already, and service.at_once allows {limits.at_once}"
    elif facts.job:
        why = f"never a node with a job: {facts.job}"
    kind: Kind = "drain" if facts.waits and why.endswith(facts.job) else "leave"
    return Proposal(proposal.node, kind, why, proposal.rung, proposal.name) if why else proposal


def next_of(node: str, history: History, known: Known, facts: Facts, allowed: Allowed, now: int) -> Proposal:
    """Return what is next for one node that is accused. A step without an end, on a node that no process claims, was
    interrupted."""
    accusation = history.accusations[0]
    if facts.claimed:
        return Proposal(node, "leave", f"{facts.claimed} is at work there", name=accusation.name)
    if all(ladder().is_compared(each) for each in history.accusations):
        why = "nodes differ, and which of them is wrong rests on another node's word: a person has to look"
        return Proposal(node, "leave", why, name=accusation.name)
    last = history.taken("begun", "handed over", "taken back")
    if last is None:
        return _climb(node, history, known, facts, allowed, now)
    if last.done == "handed over":
        return Proposal(node, "leave", f"handed over to a person: {last.why}", name=accusation.name)
    if last.done == "taken back":
        return _load(node, history, "a person has taken it back into service")
    ended = _end_of(last, history.steps)
    accused_again = any(each.last.at >= last.at for each in history.open.values())
    if ended is None or ended.outcome == "interrupted":
        if last.rung == LOAD and not accused_again:
            return _load(node, history, "it was interrupted")
        return _climb(node, history, known, facts, allowed, now)
    if last.rung == LOAD:
        tries = _loads_in_a_row(history.steps)
        if not accused_again and tries < LOADS:
            return _load(node, history, "the load before came to nothing")
        if not accused_again:
            why = f"nothing speaks against it anew, and {counted(tries, 'load')} in a row did not show that it is well"
            return Proposal(node, "hand over", why, name=accusation.name)
        if facts.found is not None:  # what the load has shown is so, whatever a check finds
            since = {(each.source, each.name) for each in history.accusations if each.at >= last.at}
            facts = replace(facts, found=facts.found | since)
    if ended.outcome == "done" and not accused_again:
        return _load(node, history, f"after {last.rung}")
    return _climb(node, history, known, facts, allowed, now)


def _load(node: str, history: History, why: str) -> Proposal:
    loads = dict.fromkeys(load for each in history.open.values() for load in each.lacking())
    return Proposal(node, "load", why, LOAD, history.accusations[0].name, tuple(loads))


def _climb(node: str, history: History, known: Known, facts: Facts, allowed: Allowed, now: int) -> Proposal:
    """The next rung that is allowed and has something left of its budget; a person, where there is none."""
    own = [each for each in history.accusations if not ladder().is_compared(each)]
    accusations = [each for each in own if _stands(each, facts)]
    if not accusations:
        return _load(node, history, "the check does not find it any more")
    accusation = accusations[0]
    lacking: list[str] = []
    for budget in _rungs(accusations):
        if why := _impossible(budget, facts, allowed) or _pointless(budget, accusations, facts):
            lacking.append(why)
            continue
        tried = _tried(known, budget, now)
        if tried >= budget.attempts:
            lacking.append(f"{budget.rung} was tried {_times(tried)}")
            continue
        rungs = [step.at for step in known.steps if step.done in ("begun", "ended") and step.rung in RUNGS]
        if now < (until := max([accusation.at, *rungs]) + int(budget.wait_s)):
            return Proposal(node, "wait", f"before {budget.rung}", budget.rung, accusation.name, until=until)
        return Proposal(node, "rung", str(accusation), budget.rung, accusation.name)
    if not facts.reached and not any(step.rung == "power cycle" for step in history.steps):
        return Proposal(node, "leave", "it does not answer: a person has to look at it", name=accusation.name)
    return Proposal(node, "hand over", "; ".join(dict.fromkeys(lacking)) or "no rung is left", name=accusation.name)


def _stands(accusation: Accusation, facts: Facts) -> bool:
    """Whether it may still be so. What the check of now does not find needs no rung but a load; the operations (of what
    has drifted) harm nobody, and see to what the next boot would bring, too."""
    if facts.found is None or accusation.drift or accusation.source not in ("finding", "unread"):
        return True
    return (accusation.source, accusation.name) in facts.found


def _rungs(accusations: Sequence[Accusation]) -> list[Budget]:
    """Those of the gravest accusation; before them the operations, where any drift is among the others."""
    rungs = ladder().rungs(accusations[0])
    drifted = next((each for each in accusations if each.drift), None)
    if drifted is None or any(each.rung == "mend" for each in rungs):
        return rungs
    return [*(each for each in ladder().rungs(drifted) if each.rung == "mend"), *rungs]


def _impossible(budget: Budget, facts: Facts, allowed: Allowed) -> str:
    """Why a rung cannot be tried on this node at all."""
    if budget.rung not in allowed.rungs:
        return f"service.rungs does not allow {budget.rung}"
    if budget.rung == "power cycle":
        return "" if allowed.bmc else "there is no service.bmc for a power cycle"
    return "" if facts.reached else f"it does not answer, as {budget.rung} needs it"


def _pointless(budget: Budget, accusations: Sequence[Accusation], facts: Facts) -> str:
    """Why a rung would change nothing: no operation is for what was found, or each has done what it can."""
    if budget.rung != "mend":
        return ""
    if facts.pending:
        return "what has drifted is written down, and waits for a boot or a login"
    found = accusations[0].source == "finding" and not any(each.drift for each in accusations)
    return f"no operation changes {accusations[0].name}" if found else ""


def _tried(known: Known, budget: Budget, now: int) -> int:
    """Attempts on this rung within its window. One that was interrupted is none."""
    begun = [step for step in known.steps if step.done == "begun" and step.rung == budget.rung]
    recent = [step for step in begun if now - step.at <= budget.within_s]
    ends = [_end_of(step, known.steps) for step in recent]
    return sum(end is not None and end.outcome != "interrupted" for end in ends)


def _end_of(begun: Step, steps: Sequence[Step]) -> Step | None:
    """The end of a step that was begun: the first of its kind that follows it."""
    after = list(steps[steps.index(begun) + 1 :])
    for step in after:
        if step.done == "begun":
            return None
        if step.done == "ended" and step.rung == begun.rung:
            return step
    return None


def _loads_in_a_row(steps: Sequence[Step]) -> int:
    count = 0
    for step in reversed(steps):
        if step.done != "begun" or step.rung != LOAD:
            if step.done in ("begun", "taken back"):
                break
            continue
        count += 1
    return count


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"
