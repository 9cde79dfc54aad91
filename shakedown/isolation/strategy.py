"""What to try next, or what the search has come to: a pure function of the problem and of what was tried.

1. Groups: racks, or about sqrt(n) groups, all at once. What failed is halved, in parallel; what passed is mixed anew
   while others are halved, which costs no time. A node that is alone trains with such that are cleared, each time with
   others. Each round is chosen by the probabilities (`belief.py`), so that it tells as much as it can.
2. A node is named when they say so and it has failed three times, each time in the company of other cleared nodes. It
   is cleared when no more than a 2 % chance is left that one of all those cleared is bad.
3. Where something that nodes share (a link, an uplink, a trunk, a size) is likely, the groups are those that tell most
   about it (`across.py`). It is named by its probability, and no node with it.
4. A closing run over all but the suspects must pass. Where nobody is named, it is repeated until hardly anything shared
   can be bad; after a run that failed, until a node that fails in 30 % of its trainings would have shown itself.
5. More than a third suspect, or nothing that ever passes: it is not a node.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from shakedown.common.text import counted
from shakedown.hosts import folded
from shakedown.isolation import across
from shakedown.isolation.groups import next_groups
from shakedown.isolation.knowledge import CONVINCED_SHARED, MISSED_SHARED, PROBABLE, SILENT, Knowledge
from shakedown.isolation.missed import BOUND, RATE, missed
from shakedown.runs.isolation import Group, Isolation, Result

LEAST_NODES = 3  # of fewer none can be told from the others
_THIRD = 1 / 3
_DOUBT = 0.3  # probability that is worth looking into: of something between nodes, and of a node at the end
_NOTHING_PASSED = 6  # trainings without a single pass
_SILENT_ROUNDS = 3  # one after another, in which no training said anything


@dataclass(frozen=True)
class Step:
    """The groups of the next round, or the end."""

    groups: tuple[Group, ...] = ()
    result: Result | None = None


def most_rounds(count: int) -> int:
    """A bound: what halving takes and what a search across takes, each twice over for noise, and the closing runs."""
    return 4 * math.ceil(math.log2(max(count, 2))) + 20


def next_step(isolation: Isolation) -> Step:
    """What to do after the rounds so far."""
    problem = isolation.problem
    number = len(isolation.rounds) + 1
    known = Knowledge(problem, isolation.rounds, isolation.run_id)
    if len(problem.nodes) < LEAST_NODES:
        why = f"fewer than {LEAST_NODES} nodes: none could be told from the others"
        return Step(result=_end(known, why))
    if why := _systemic(known):
        return Step(result=_end(known, why, systemic=True))
    if number > (problem.rounds or most_rounds(len(problem.nodes))):
        return Step(
            result=_end(known, f"stopped after {counted(len(isolation.rounds), 'round')}, as many as were allowed")
        )
    if problem.seconds is not None and isolation.rounds and _no_time(isolation):
        return Step(result=_end(known, f"stopped after {isolation.seconds:.0f} s: the next round would go over"))
    if _nothing_said(isolation):
        return Step(result=_end(known, _why_none(known)))
    shared = known.model.shared
    if shared > _DOUBT or (not known.open and shared + float(known.model.sometimes.sum()) > _DOUBT):
        return _between(known, number)
    if known.open:
        if groups := _of_nodes(known, number):
            return Step(groups=groups)
        if why := _systemic(known, _DOUBT):  # nodes that only ever failed with each other cannot be told apart
            return Step(result=_end(known, why, systemic=True))
        return Step(result=_end(known, _why_none(known)))
    return _close(known, number)


def _of_nodes(known: Knowledge, number: int) -> tuple[Group, ...]:
    """Groups that ask about single nodes. What racks share and is bad already keeps their nodes apart."""
    apart = {node for suspect in known.likely_shared if suspect.racks for node in suspect.without}
    if not apart:
        return tuple(next_groups(known, number))
    parts = [known.of_part(nodes) for nodes in (apart, {*known.problem.nodes} - apart) if nodes & {*known.open}]
    groups = [group for part in parts for group in next_groups(part, number)] or next_groups(known, number)
    return tuple(group.model_copy(update={"id": f"{number}.{place}"}) for place, group in enumerate(groups, 1))


def _between(known: Knowledge, number: int) -> Step:
    """Something that several nodes share is likely bad: which?"""
    if float(known.model.sizes.sum()) > CONVINCED_SHARED:
        least = min(len(each.nodes) for each in known.trainings if each.outcome == "fail")
        why = f"it fails with {least} nodes together, whichever they are, and passes with few"
        return Step(result=_end(known, f"{why}: a cause that shows only at size"))
    if groups := across.look(known, number) or (_of_nodes(known, number) if known.open else ()):
        return Step(groups=groups)
    likely = ", ".join(
        f"{known.words(each)} {chance:.0%}" for chance, each in known.model.likeliest(3) if chance > 0.05
    )
    why = f"something that nodes share is bad with a probability of {known.model.shared:.0%} ({likely})"
    if known.silent:
        why = f"{why}; {_why_none(known)}"
    return Step(result=_end(known, f"{why}, and no group is left that could tell more"))


def _nothing_said(isolation: Isolation) -> bool:
    """More of the same would say as little."""
    last = isolation.rounds[isolation.problem.again :][-_SILENT_ROUNDS:]
    silent = all(each.outcome == "unknown" and each.doubt != "near" for trainings in last for each in trainings)
    return len(last) == _SILENT_ROUNDS and silent


def _why_none(known: Knowledge) -> str:
    """Why nothing more is tried though nodes are open, with the figures."""
    if not known.silent:
        return f"no group of {folded(known.open)} is left that could say something new"
    last = known.silent[-1]
    return (
        f"{len(known.silent)} of {counted(len(known.trainings), 'training')} came to nothing, and no others are left to"
        f" try: the last was {last.group.id}, {folded(last.group.nodes)}: {last.why}"
    )


def _no_time(isolation: Isolation) -> bool:
    longest = max(max((t.seconds for t in each), default=0.0) for each in isolation.rounds)
    return isolation.seconds + longest > (isolation.problem.seconds or 0)


def _systemic(known: Knowledge, least: float = PROBABLE) -> str:
    probable = [node for node, bad in known.probability.items() if bad > least]
    told = [each for each in known.trainings if each.outcome != "unknown"]
    if len(told) >= _NOTHING_PASSED and all(each.outcome == "fail" for each in told):
        return f"not one of {counted(len(told), 'group')} passed: it is not a node, look at what all of them share"
    if len(probable) > _THIRD * len(known.problem.nodes) and len(probable) > 2:
        total = len(known.problem.nodes)
        return f"{len(probable)} of {total} nodes are suspect: it is not a node, look at what they share"
    return ""


def _close(known: Knowledge, number: int) -> Step:
    """No node is open: all without the suspects must pass."""
    rest = [node for node in known.problem.nodes if node not in known.left_out]
    if len(rest) < known.problem.smallest:
        return Step(result=_end(known, "too few nodes are left for a closing run"))
    group = Group(id=f"{number}.1", nodes=tuple(rest), purpose="closing")
    passes, fails = known.of(frozenset(rest))
    if passes > fails:
        unsure = not known.named and not known.shared and known.model.shared > MISSED_SHARED
        return Step(groups=(group,)) if unsure or _may_have_missed(known) else Step(result=_end(known, ""))
    if len(silent := known.came_to_nothing(frozenset(rest))) >= SILENT:
        return Step(result=_end(known, f"the closing run came to nothing: {silent[-1].why}"))
    if passes + fails < 5:
        return Step(groups=(group,))
    return Step(result=_end(known, "all together fail, and no part of them does"))


def _may_have_missed(known: Knowledge) -> str:
    """Why a search that follows a failed run cannot end without a name, and what tries longer; empty: it can."""
    chance = missed(known.problem, known.trainings)
    if not known.problem.failed or known.named or known.shared or chance < BOUND:
        return ""
    return (
        f"a node that fails in {RATE:.0%} of its trainings was missed with a probability of {chance:.0%}:"
        f" try longer with: shakedown isolate {known.run_id or 'RUN'} --resume"
    )


def _end(known: Knowledge, why: str, systemic: bool = False) -> Result:
    """The sentence at the end. A closing run that has not passed leaves no node cleared by it, and is said."""
    suspects = [] if systemic else [*known.named.values(), *known.shared]
    undecided = {node: _undecided(known, node) for node in known.open}
    cleared = [node for node in known.problem.nodes if node in known.cleared]
    if systemic:
        undecided |= dict.fromkeys(known.named, "suspect, as too many are")
    if not systemic and (doubt := _may_have_missed(known)):
        why, undecided, cleared = f"{why}; {doubt}" if why else doubt, dict.fromkeys(cleared, doubt) | undecided, []
    if why and not systemic and not undecided and not suspects:
        undecided, cleared = dict.fromkeys(cleared, why), []
    if why:
        conclusion = why
    elif suspects:
        conclusion = f"the run passes without {', '.join(map(str, suspects))}"
    else:
        conclusion = "no node was found bad: all train together"
    return Result(suspects=suspects, cleared=cleared, undecided=undecided, conclusion=conclusion, systemic=systemic)


def _undecided(known: Knowledge, node: str) -> str:
    told = f"bad with a probability of {known.probability[node]:.2g}"
    last = known.given_up.get(node)
    return told if last is None else f"{told}: its trainings came to nothing, the last was {last.group.id}: {last.why}"


def stopped(isolation: Isolation, why: str) -> Result:
    """What is known when a search is ended from outside."""
    return _end(Knowledge(isolation.problem, isolation.rounds, isolation.run_id), why)
