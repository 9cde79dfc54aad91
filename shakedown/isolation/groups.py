"""Which nodes train together in the next round."""

import math
import random
from collections import Counter, defaultdict
from collections.abc import Sequence, Set
from itertools import pairwise

from shakedown.isolation.knowledge import Knowledge
from shakedown.runs.isolation import Group, Problem, Purpose

_ATTEMPTS = 12  # to mix groups that can all still show something
_EVEN = math.log(2)  # of -log(all good): a group that is as likely to fail as to pass shows most


def size_at_most(count: int) -> int:
    """Return the size of the first groups: about the root of the number of nodes."""
    return max(2, math.ceil(math.sqrt(count)))


def first_groups(problem: Problem) -> list[list[str]]:
    """Divide the nodes into racks, where these are known and large enough; else into groups of about the root."""
    bound = size_at_most(len(problem.nodes))
    racks: dict[str, list[str]] = defaultdict(list)
    for node in problem.nodes:
        racks[problem.racks.get(node, "")].append(node)
    if len(racks) < 2 or min(map(len, racks.values())) < problem.smallest:
        return parts(problem.nodes, math.ceil(len(problem.nodes) / bound))
    return [part for rack in racks.values() for part in parts(rack, math.ceil(len(rack) / max(2 * bound, 2)))]


def parts(nodes: Sequence[str], count: int) -> list[list[str]]:
    """Divide the nodes into `count` parts of one size, in their order."""
    count = max(1, min(count, len(nodes)))
    bounds = [round(index * len(nodes) / count) for index in range(count + 1)]
    return [list(nodes[begin:end]) for begin, end in pairwise(bounds)]


def next_groups(knowledge: Knowledge, number: int) -> list[Group]:
    """Form the groups of a round over all open nodes, filled with cleared nodes.

    A group that can show nothing new is not formed: its nodes are mixed anew, and wait where no other group results.
    """
    if not knowledge.rounds:
        return _numbered(
            _filled(knowledge, [_Wanted(part, "groups", None) for part in _by_hints(knowledge)], f"{number}"), number
        )
    again = [
        training.group for training in knowledge.near if any(node in knowledge.open for node in training.group.subjects)
    ]
    held = {node for group in again for node in group.nodes}
    remix: set[str] = set()
    best: list[Group] = []
    for attempt in range(_ATTEMPTS):
        salt = f"{number}/{attempt}" if attempt else f"{number}"
        least = max(attempt - _ATTEMPTS // 2, 0) + 1
        made = _filled(knowledge, _by_family(knowledge, held, remix, salt, least), salt, held)
        good = [group for group in made if knowledge.worth_trying(frozenset(group.nodes))]
        if not best or _worth(knowledge, good) > _worth(knowledge, best):
            best = good
        if len(_new(knowledge, made)) == len(made):
            break
        remix |= {node for group in made if group not in good for node in group.subjects}
    return _numbered([*again, *(_new(knowledge, best) or best)], number)


def _worth(knowledge: Knowledge, groups: Sequence[Group]) -> tuple[int, int]:
    """Count the subjects of the groups, and of the groups that show something new."""
    return _subjects(groups), _subjects(_new(knowledge, groups))


def _new(knowledge: Knowledge, groups: Sequence[Group]) -> list[Group]:
    """Select the groups that have not trained, or have as many passes as failures. The others wait meanwhile."""
    return [group for group in groups if knowledge.undecided(frozenset(group.nodes))]


def _subjects(groups: Sequence[Group]) -> int:
    return sum(len(group.subjects) for group in groups)


def _numbered(groups: Sequence[Group], number: int) -> list[Group]:
    return [group.model_copy(update={"id": f"{number}.{index}"}) for index, group in enumerate(groups, 1)]


class _Wanted:
    def __init__(self, nodes: list[str], purpose: Purpose, parent: str | None) -> None:
        self.nodes, self.purpose, self.parent = nodes, purpose, parent


def _by_hints(knowledge: Knowledge) -> list[list[str]]:
    """Form the first groups, with each hinted node in a small group of its own, filled from the largest group."""
    hinted = {hint.node for hint in knowledge.problem.hints}
    groups = [[node for node in group if node not in hinted] for group in first_groups(knowledge.problem)]
    company = knowledge.problem.smallest - 1
    small: list[list[str]] = []
    for node in (node for node in knowledge.problem.nodes if node in hinted):
        largest = max(groups, key=len)
        taken = largest[len(largest) - company :] if len(largest) >= company + knowledge.problem.smallest else []
        del largest[len(largest) - len(taken) :]
        small.append([node, *taken])
    return [*small, *filter(None, groups)]


def _by_family(knowledge: Knowledge, held: Set[str], remix: Set[str], salt: str, least: int) -> list[_Wanted]:
    """Divide the nodes of groups that failed last, and mix all other nodes anew.

    Mixing separates a bad node that was missed from its last partners. Nodes whose last training gave no result go into
    smaller groups: a node that cannot train then blocks fewer others.
    """
    families: dict[str | None, list[str]] = defaultdict(list)
    longest = len(knowledge.problem.nodes)
    for node in knowledge.open:
        if node in held or node in knowledge.given_up:
            continue
        last = knowledge.latest.get(node)
        if last is not None and last.outcome == "unknown" and last.doubt is None:
            longest = min(longest, math.ceil(len(last.nodes) / 2))
        failed = last is not None and last.outcome == "fail" and node not in remix
        families[last.group.id if last is not None and failed else None].append(node)
    mixed = families.pop(None, [])
    random.Random(f"{knowledge.problem.seed}/{salt}").shuffle(mixed)
    groups = []
    for family, nodes in families.items():
        nodes.sort(key=lambda node: -knowledge.probability[node])
        groups += [_Wanted(part, "halves", family) for part in _divided(knowledge, nodes, least=2)]
    least = max(least, math.ceil(len(mixed) / max(longest, knowledge.problem.smallest)))
    groups += [_Wanted(part, "regroup", None) for part in _divided(knowledge, mixed, min(least, len(mixed)))]
    for group in groups:
        if len(group.nodes) == 1 and knowledge.probability[group.nodes[0]] > 0.2:
            group.purpose = "confirm"
    return groups


def _divided(knowledge: Knowledge, nodes: list[str], least: int) -> list[list[str]]:
    """Divide nodes into parts that are about as likely to fail as to pass, and no larger than the first groups."""
    if not nodes:
        return []
    weights = {node: -math.log1p(-min(knowledge.probability[node], 0.999999)) for node in nodes}
    count = math.ceil(sum(weights.values()) / _EVEN)
    count = max(count, math.ceil(len(nodes) / size_at_most(len(knowledge.problem.nodes))), least)
    share = sum(weights.values()) / count
    groups: list[list[str]] = []
    weight = math.inf
    longest = math.ceil(len(nodes) / least)
    for node in nodes:
        if weight + weights[node] / 2 > share or len(groups[-1]) >= longest:
            groups.append([])
            weight = 0.0
        groups[-1].append(node)
        weight += weights[node]
    return groups


def _filled(knowledge: Knowledge, wanted: list[_Wanted], salt: str, held: Set[str] = frozenset()) -> list[Group]:
    """Fill each group up to the nodes that a training needs: cleared nodes first, then the least frequent partners.

    A group for which no node is left joins another such group, or waits for the next round.
    """
    smallest = knowledge.problem.smallest
    busy = {node for group in wanted for node in group.nodes} | held | knowledge.given_up.keys()
    spare = sorted(
        (node for node in knowledge.problem.nodes if node not in busy and node not in knowledge.named),
        key=lambda node: knowledge.probability[node],
    )
    random.Random(f"{knowledge.problem.seed}/pads/{salt}").shuffle(spare)
    spare.sort(key=lambda node: node not in knowledge.cleared)
    short = [group for group in wanted if len(group.nodes) < smallest]
    short.sort(key=lambda group: -max(knowledge.probability[node] for node in group.nodes))
    pads: dict[int, list[str]] = {}
    alone: list[_Wanted] = []
    for group in short:
        met = sum((knowledge.partners[node] for node in group.nodes), Counter[str]())
        spare.sort(key=lambda node: (node not in knowledge.cleared, met[node]))
        chosen = spare[: smallest - len(group.nodes)]
        if len(chosen) + len(group.nodes) < smallest:
            alone.append(group)
            continue
        pads[id(group)] = chosen
        spare = [node for node in spare if node not in chosen]
    kept = [group for group in wanted if group not in alone]
    kept += _joined(knowledge, kept, alone)
    return [
        Group(
            id=f"{number}",
            nodes=tuple(sorted((*group.nodes, *pads.get(id(group), ())), key=knowledge.place.__getitem__)),
            pads=tuple(pads.get(id(group), ())),
            purpose=group.purpose,
            parent=group.parent,
        )
        for number, group in enumerate(kept, 1)
    ]


def _joined(knowledge: Knowledge, kept: list[_Wanted], alone: list[_Wanted]) -> list[_Wanted]:
    """Join the groups for which no node is left. A last one that is still too small waits.

    Without any cleared node waiting is useless: its nodes then join another group, if possible not the other half of
    the group that failed.
    """
    smallest = knowledge.problem.smallest
    joined: list[_Wanted] = []
    for group in alone:
        if joined and len(joined[-1].nodes) < smallest:
            joined[-1].nodes += group.nodes
        else:
            joined.append(group)
    if joined and len(joined[-1].nodes) < smallest:
        rest = joined.pop()
        whole = [*kept, *joined]
        if whole and not knowledge.cleared:
            others = [group for group in whole if group.parent is None or group.parent != rest.parent] or whole
            min(others, key=lambda group: len(group.nodes)).nodes += rest.nodes
    return joined
