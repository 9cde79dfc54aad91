"""Which nodes train together in the next round."""

from __future__ import annotations

import math
import random
from collections import Counter, defaultdict
from collections.abc import Sequence, Set
from itertools import pairwise

from shakedown.isolation.knowledge import Knowledge
from shakedown.runs.isolation import Group, Problem, Purpose

_ATTEMPTS = 12  # to mix groups of which none has said already what it can
_EVEN = math.log(2)  # of -log(all good): a group that is as likely to fail as to pass tells most


def size_at_most(count: int) -> int:
    """Nodes of the first groups: about the root of their number."""
    return max(2, math.ceil(math.sqrt(count)))


def first_groups(problem: Problem) -> list[list[str]]:
    """Racks, where they are known and of a size that is worth it; about the root of the number of nodes otherwise."""
    bound = size_at_most(len(problem.nodes))
    racks: dict[str, list[str]] = defaultdict(list)
    for node in problem.nodes:
        racks[problem.racks.get(node, "")].append(node)
    if len(racks) < 2 or min(map(len, racks.values())) < problem.smallest:
        return parts(problem.nodes, math.ceil(len(problem.nodes) / bound))
    return [part for rack in racks.values() for part in parts(rack, math.ceil(len(rack) / max(2 * bound, 2)))]


def parts(nodes: Sequence[str], count: int) -> list[list[str]]:
    """The nodes in so many parts of one size, in their order."""
    count = max(1, min(count, len(nodes)))
    bounds = [round(index * len(nodes) / count) for index in range(count + 1)]
    return [list(nodes[begin:end]) for begin, end in pairwise(bounds)]


def next_groups(known: Knowledge, number: int) -> list[Group]:
    """The groups of a round that asks about all nodes that are still open, each once, filled with cleared nodes. None
    is a group that has said what it can: its nodes are mixed anew, and wait where that leads to no other."""
    if not known.rounds:
        return _numbered(
            _filled(known, [_Wanted(part, "groups", None) for part in _by_hints(known)], f"{number}"), number
        )
    again = [each.group for each in known.near if any(node in known.open for node in each.group.asked)]
    held = {node for group in again for node in group.nodes}
    remix: set[str] = set()
    best: list[Group] = []
    for attempt in range(_ATTEMPTS):
        salt = f"{number}/{attempt}" if attempt else f"{number}"
        least = max(attempt - _ATTEMPTS // 2, 0) + 1
        made = _filled(known, _by_family(known, held, remix, salt, least), salt, held)
        good = [group for group in made if known.worth_trying(frozenset(group.nodes))]
        if not best or _worth(known, good) > _worth(known, best):
            best = good
        if len(_new(known, made)) == len(made):
            break
        remix |= {node for group in made if group not in good for node in group.asked}
    return _numbered([*again, *(_new(known, best) or best)], number)


def _worth(known: Knowledge, groups: Sequence[Group]) -> tuple[int, int]:
    """How many nodes they ask about, and of these how many in groups that tell something new."""
    return _asked(groups), _asked(_new(known, groups))


def _new(known: Knowledge, groups: Sequence[Group]) -> list[Group]:
    """Those of them that have not trained, or came to a failure and to a pass. The others have said what they can, and
    wait as long as there are any of these."""
    return [group for group in groups if known.undecided(frozenset(group.nodes))]


def _asked(groups: Sequence[Group]) -> int:
    return sum(len(group.asked) for group in groups)


def _numbered(groups: Sequence[Group], number: int) -> list[Group]:
    return [group.model_copy(update={"id": f"{number}.{index}"}) for index, group in enumerate(groups, 1)]


class _Wanted:
    def __init__(self, nodes: list[str], purpose: Purpose, parent: str | None) -> None:
        self.nodes, self.purpose, self.parent = nodes, purpose, parent


def _by_hints(known: Knowledge) -> list[list[str]]:
    """The first groups, with the nodes that something cheaper speaks against taken out: each has a group of few, with
    nodes that nothing speaks against, out of the largest group that is left."""
    hinted = {hint.node for hint in known.problem.hints}
    groups = [[node for node in group if node not in hinted] for group in first_groups(known.problem)]
    company = known.problem.smallest - 1
    found: list[list[str]] = []
    for node in (node for node in known.problem.nodes if node in hinted):
        largest = max(groups, key=len)
        taken = largest[len(largest) - company :] if len(largest) >= company + known.problem.smallest else []
        del largest[len(largest) - len(taken) :]
        found.append([node, *taken])
    return [*found, *filter(None, groups)]


def _by_family(known: Knowledge, held: Set[str], remix: Set[str], salt: str, least: int) -> list[_Wanted]:
    """Those of a group that failed last are divided; those that passed last are mixed anew, which tells a bad node that
    was missed from the company that it was in. So are those whose last training came to nothing, in smaller groups:
    one node that cannot be tried takes fewer others with it."""
    families: dict[str | None, list[str]] = defaultdict(list)
    longest = len(known.problem.nodes)
    for node in known.open:
        if node in held or node in known.given_up:
            continue
        last = known.latest.get(node)
        if last is not None and last.outcome == "unknown" and last.doubt is None:
            longest = min(longest, math.ceil(len(last.nodes) / 2))
        failed = last is not None and last.outcome == "fail" and node not in remix
        families[last.group.id if last is not None and failed else None].append(node)
    mixed = families.pop(None, [])
    random.Random(f"{known.problem.seed}/{salt}").shuffle(mixed)
    found = []
    for family, nodes in families.items():
        nodes.sort(key=lambda node: -known.probability[node])
        found += [_Wanted(part, "halves", family) for part in _divided(known, nodes, least=2)]
    least = max(least, math.ceil(len(mixed) / max(longest, known.problem.smallest)))
    found += [_Wanted(part, "regroup", None) for part in _divided(known, mixed, min(least, len(mixed)))]
    for each in found:
        if len(each.nodes) == 1 and known.probability[each.nodes[0]] > 0.2:
            each.purpose = "confirm"
    return found


def _divided(known: Knowledge, nodes: list[str], least: int) -> list[list[str]]:
    """In parts that are about as likely to fail as to pass, and no larger than the first groups were."""
    if not nodes:
        return []
    weights = {node: -math.log1p(-min(known.probability[node], 0.999999)) for node in nodes}
    count = math.ceil(sum(weights.values()) / _EVEN)
    count = max(count, math.ceil(len(nodes) / size_at_most(len(known.problem.nodes))), least)
    share = sum(weights.values()) / count
    found: list[list[str]] = []
    weight = math.inf
    longest = math.ceil(len(nodes) / least)
    for node in nodes:
        if weight + weights[node] / 2 > share or len(found[-1]) >= longest:
            found.append([])
            weight = 0.0
        found[-1].append(node)
        weight += weights[node]
    return found


def _filled(known: Knowledge, wanted: list[_Wanted], salt: str, held: Set[str] = frozenset()) -> list[Group]:
    """Each group with as many nodes as a training needs: first such that are cleared, and with whom its node has not
    trained before. Who finds nobody joins another that is alone too, or waits for the next round."""
    smallest = known.problem.smallest
    busy = {node for each in wanted for node in each.nodes} | held | known.given_up.keys()
    spare = sorted(
        (node for node in known.problem.nodes if node not in busy and node not in known.named),
        key=lambda node: known.probability[node],
    )
    groups: list[Group] = []
    alone: list[_Wanted] = []
    short = [each for each in wanted if len(each.nodes) < smallest]
    short.sort(key=lambda each: -max(known.probability[node] for node in each.nodes))
    random.Random(f"{known.problem.seed}/pads/{salt}").shuffle(spare)
    spare.sort(key=lambda node: node not in known.cleared)
    pads: dict[int, list[str]] = {}
    for each in short:
        met = sum((known.partners[node] for node in each.nodes), Counter[str]())
        spare.sort(key=lambda node: (node not in known.cleared, met[node]))
        chosen = spare[: smallest - len(each.nodes)]
        if len(chosen) + len(each.nodes) < smallest:
            alone.append(each)
            continue
        pads[id(each)] = chosen
        spare = [node for node in spare if node not in chosen]
    joined: list[_Wanted] = []
    for each in alone:
        if joined and len(joined[-1].nodes) < smallest:
            joined[-1].nodes += each.nodes
        else:
            joined.append(each)
    if joined and len(joined[-1].nodes) < smallest:
        rest = joined.pop()
        whole = [each for each in wanted if each not in alone] + joined
        if not known.cleared and whole:  # nobody to wait for; with its other half it would be the group that failed
            others = [each for each in whole if each.parent is None or each.parent != rest.parent] or whole
            min(others, key=lambda each: len(each.nodes)).nodes += rest.nodes
    for each in [each for each in wanted if each not in alone] + joined:
        fill = tuple(pads.get(id(each), ()))
        groups.append(
            Group(
                id=f"{len(groups) + 1}",
                nodes=tuple(sorted((*each.nodes, *fill), key=known.place.__getitem__)),
                pads=fill,
                purpose=each.purpose,
                parent=each.parent,
            )
        )
    return groups
