"""Which nodes train together in the next round: to find a bad node, or a fault that several nodes share. For a shared
fault a bounded number of divisions into up to four groups is drawn; the one with the largest expected gain by the
posterior of `causes.py` (entropy of the outcomes without noise) is taken."""

import math
import random
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence, Set
from functools import lru_cache
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from shakedown.isolation.causes import DIGITS, RATES, Cause, Floats, Posterior, in_order
from shakedown.isolation.knowledge import SILENT, Knowledge
from shakedown.runs.isolation import Group, Noise, Problem, Purpose

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
    """Form groups over all open nodes, filled with cleared ones; a group that shows nothing new is mixed or waits."""
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
    """Divide groups that failed last, and mix all other nodes anew, which separates a missed bad node from its
    partners. Nodes without a result go into smaller groups, where they block fewer others."""
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
        nodes.sort(key=lambda node: -round(knowledge.probability[node], DIGITS))
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
    """Fill groups: cleared nodes first, then the least frequent partners; without partners one joins or waits."""
    smallest = knowledge.problem.smallest
    busy = {node for group in wanted for node in group.nodes} | held | knowledge.given_up.keys()
    spare = [node for node in knowledge.problem.nodes if node not in busy and node not in knowledge.named]
    random.Random(f"{knowledge.problem.seed}/pads/{salt}").shuffle(spare)
    spare.sort(key=lambda node: node not in knowledge.cleared)
    short = [group for group in wanted if len(group.nodes) < smallest]
    short.sort(key=lambda group: -max(round(knowledge.probability[node], DIGITS) for node in group.nodes))
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
    """Join the groups for which no node is left; a last small one waits. Without cleared nodes, where waiting is
    useless, it joins another, if possible not the other half of the group that failed."""
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


_GROUPS = 4  # of a round
_DRAWS = 16  # of each way to divide
_LIKELY = 6  # causes that are tried alone
_TRIES = 5  # of one group: as often as any can still say something
_NOTHING = 1e-9  # of probability
_LEAST = 0.001  # bits, below which no division shows anything

Labels = npt.NDArray[np.int64]


def look(knowledge: Knowledge, number: int) -> tuple[Group, ...]:
    """Choose the groups of the next round. Empty: no division that can be tried shows anything."""
    post = knowledge.model
    names = post.shape.names
    out = knowledge.left_out | knowledge.given_up.keys()
    usable = np.array([name not in out for name in names])
    draw = random.Random(f"{knowledge.problem.seed}/across/{number}")
    divisions = np.array(list(_divisions(post, usable, draw)))
    gains = gain(post, divisions, knowledge.problem.noise)
    for place in in_order(-gains):
        if gains[place] <= _LEAST:
            break
        members = [np.flatnonzero(divisions[place] == label) for label in range(_GROUPS)]
        groups = [tuple(names[index] for index in group) for group in members if len(group)]
        if all(len(group) >= knowledge.problem.smallest and _may_try(knowledge, frozenset(group)) for group in groups):
            return tuple(_group(knowledge, group, f"{number}.{index}") for index, group in enumerate(groups, 1))
    return ()


def _may_try(knowledge: Knowledge, nodes: frozenset[str]) -> bool:
    return sum(knowledge.tally(nodes)) < _TRIES and len(knowledge.without_result(nodes)) < SILENT


def _group(knowledge: Knowledge, nodes: tuple[str, ...], name: str) -> Group:
    failed = (training for training in knowledge.trainings if training.outcome == "fail")
    around = [training for training in failed if frozenset(nodes) <= training.nodes]
    parent = min(around, key=lambda training: len(training.nodes)).group.id if around else None
    again = any(training.nodes == frozenset(nodes) for training in knowledge.trainings)
    return Group(id=name, nodes=nodes, purpose="again" if again else "across", parent=parent)


def gain(post: Posterior, divisions: Labels, noise: Noise) -> Floats:
    """Return the expected gain of each division (a row of labels): bits that its outcomes show about the causes."""
    hard, soft = _masses(post, divisions)
    kernel = _outcomes(1 - noise.missed, noise.false_fail)
    mixed = _outcomes(sum(RATES) / len(RATES), noise.false_fail)
    outcomes = hard @ kernel + soft @ mixed
    return np.asarray(_entropy(outcomes) - hard @ _entropy(kernel) - soft @ _entropy(mixed), dtype=np.float64)


def _masses(post: Posterior, divisions: Labels) -> tuple[Floats, Floats]:
    """Sum the causes' probability by division and set of touched groups (bits): failing always, and at times."""
    shape, count = post.shape, len(divisions)
    hard, soft = np.zeros((count, 1 << _GROUPS)), np.zeros((count, 1 << _GROUPS))
    spans, sizes = np.zeros((count, len(shape.racks)), np.int64), np.zeros((count, len(shape.sizes)), np.int64)
    left = max(1 - post.shared - float(post.sometimes.sum()), 0.0)
    nodes = post.nodes * min(1.0, left / max(float(post.nodes.sum()), 1e-12))  # several at once are counted as one
    for index in range(_GROUPS):
        members, bit = (divisions == index).astype(np.float64), 1 << index
        hard[:, bit] += members @ nodes + ((members @ post.links) * members).sum(axis=1)
        soft[:, bit] += members @ post.sometimes
        spanned = members @ shape.of_rack > 0
        spans |= np.where(spanned & (spanned.sum(axis=1) > 1)[:, None], bit, 0)
        sizes |= np.where(members.sum(axis=1)[:, None] >= shape.sizes, bit, 0)
    one, other = np.nonzero(post.trunks > _NOTHING)
    signs = ((spans, post.uplinks), (spans[:, one] & spans[:, other], post.trunks[one, other]), (sizes, post.sizes))
    for index in range(1 << _GROUPS):
        hard[:, index] += sum((sign == index) @ chances for sign, chances in signs)
    hard[:, 0] += np.maximum(1 - hard.sum(axis=1) - soft.sum(axis=1), 0.0)
    total = (hard.sum(axis=1) + soft.sum(axis=1))[:, None]  # beyond 1 where several causes are bad at once
    return hard / total, soft / total


@lru_cache(maxsize=64)
def _outcomes(rate: float, false_fail: float) -> Floats:
    """Compute, for each set of touched groups (rows), the probability of each set of failed groups (columns)."""
    count = 1 << _GROUPS
    chances = np.ones((count, count))
    for bit in range(_GROUPS):
        touched = np.array([1 if row >> bit & 1 else 0 for row in range(count)])
        chance = np.where(touched, rate, false_fail)[:, None]
        chances *= np.where(touched[None, :], chance, 1 - chance)
    return chances


def _entropy(chances: Floats) -> Floats:
    return np.asarray(-(chances * np.log2(np.maximum(chances, 1e-300))).sum(axis=-1), dtype=np.float64)


def _divisions(post: Posterior, usable: npt.NDArray[np.bool_], draw: random.Random) -> Iterator[Labels]:
    """Yield divisions, one label for each node (-1: no training): all together; random parts of nodes and racks; within
    racks and across the likeliest pairs; each likely cause alone."""
    random_of = np.random.default_rng(draw.randrange(1 << 32))
    count, racks = len(usable), post.shape.of_rack
    rack = (racks @ np.arange(1, racks.shape[1] + 1)).astype(np.int64) - 1  # -1: in none
    likely = [cause for _, cause in post.likeliest(_LIKELY)]

    def made(labels: Labels) -> Labels:
        return np.where(usable, labels, -1)

    yield made(np.zeros(count, np.int64))
    for _ in range(_DRAWS):
        for parts in (1, 2, 3, 4):
            yield made(random_of.integers(0 if parts > 1 else -1, parts, count))
            if racks.shape[1] > 1:
                yield made(np.append(random_of.integers(-1, parts, racks.shape[1]), -1)[rack])
        if racks.shape[1]:
            chosen = random_of.permutation(racks.shape[1])
            alone = np.append(np.full(racks.shape[1], 0), -1)
            alone[chosen[: _GROUPS - 1]] = np.arange(1, len(chosen[: _GROUPS - 1]) + 1)
            yield made(alone[rack])  # some racks alone, and all the others together
            pair = _pair(likely, rack, racks.shape[1], random_of)
            yield made(np.where(np.isin(rack, pair), random_of.integers(0, 2, count), -1))
            yield made(np.where(np.isin(rack, pair), random_of.integers(-1, 1, count), -1))
            yield made(np.where(rack == pair[0], random_of.integers(0, 2, count), -1))
    yield from (made(labels) for labels in _alone(likely, rack, count))


def _pair(likely: Sequence[Cause], rack: Labels, racks: int, random_of: np.random.Generator) -> Labels:
    """Draw two racks: those of a likely cause first, then any."""
    cause = likely[int(random_of.integers(len(likely)))]
    if cause.kind == "trunk":
        return np.array(cause.which)
    ends = rack[list(cause.which)] if cause.kind == "link" else np.array(cause.which)
    ends = ends[ends >= 0] if cause.kind != "size" else ends[:0]
    return np.array([*ends, *random_of.choice(racks, 2)[len(ends) :]])


def _alone(likely: Sequence[Cause], rack: Labels, count: int) -> Iterator[Labels]:
    """Yield divisions with each likely link alone, with several such links at once, and with all but one end."""
    together, busy = np.full(count, -1, np.int64), set[int]()
    for cause in likely:
        if cause.kind == "link":
            labels = np.full(count, -1, np.int64)
            labels[list(cause.which)] = 0
            yield labels
            if not busy & set(cause.which):  # beyond _GROUPS a label counts for nothing
                together[list(cause.which)] = len(busy) // 2
                busy |= set(cause.which)
            for end in cause.which:
                labels = np.zeros(count, np.int64)
                labels[end] = -1
                yield labels
        elif cause.kind in ("uplink", "trunk"):
            yield np.where(np.isin(rack, cause.which), 0, -1)
            for index in cause.which:
                yield np.where(rack == index, -1, 0)
                yield np.where(rack == index, 0, 1)
    yield together
