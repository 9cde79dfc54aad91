"""The choice of groups that show most about a fault which several nodes share: a link, an uplink, a trunk, a size.

The module draws a bounded number of ways to divide the nodes into up to four groups. It takes the division with the
largest expected gain by the posterior of `causes.py`: the part of the outcomes' entropy that is not noise.
"""

import random
from collections.abc import Iterator, Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from shakedown.isolation.causes import RATES, Cause, Floats, Posterior
from shakedown.isolation.knowledge import SILENT, Knowledge
from shakedown.runs.isolation import Group, Noise

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
    for place in np.argsort(-gains, kind="stable"):
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
    around = [
        training
        for training in knowledge.trainings
        if training.outcome == "fail" and frozenset(nodes) <= training.nodes
    ]
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
    """Sum, for each division, the probability of the causes that touch a set of its groups (one bit for a group).

    Returns two tables: causes that fail a group nearly always, and causes that fail a group now and then.
    """
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
    """Yield ways to divide the nodes, as one label for each node; -1: the node does not train.

    The divisions are: all together; random parts of nodes and of whole racks; parts within racks and across the
    likeliest pairs of racks; each likely cause alone.
    """
    random_of = np.random.default_rng(draw.randrange(1 << 32))
    count, racks = len(usable), post.shape.of_rack
    rack = np.where(racks.any(axis=1), racks.argmax(axis=1), -1) if racks.shape[1] else np.full(count, -1)
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
            pair = _pair(likely, rack, random_of)
            yield made(np.where(np.isin(rack, pair), random_of.integers(0, 2, count), -1))
            yield made(np.where(np.isin(rack, pair), random_of.integers(-1, 1, count), -1))
            yield made(np.where(rack == pair[0], random_of.integers(0, 2, count), -1))
    yield from (made(labels) for labels in _alone(likely, rack, count))


def _pair(likely: Sequence[Cause], rack: Labels, random_of: np.random.Generator) -> Labels:
    """Draw two racks: those of a likely cause, or any."""
    cause = likely[int(random_of.integers(len(likely)))]
    if cause.kind == "trunk":
        return np.array(cause.which)
    first = rack[cause.which[0]] if cause.kind == "link" else cause.which[0] if cause.kind == "uplink" else -1
    second = rack[cause.which[1]] if cause.kind == "link" else -1
    any_of = random_of.choice(max(int(rack.max()) + 1, 1), 2)
    return np.array([first if first >= 0 else any_of[0], second if second >= 0 else any_of[1]])


def _alone(likely: Sequence[Cause], rack: Labels, count: int) -> Iterator[Labels]:
    """Yield divisions with each likely link alone, with several such links at once, and with all but one end."""
    together, busy = np.full(count, -1, np.int64), set[int]()
    for cause in likely:
        if cause.kind == "link":
            labels = np.full(count, -1, np.int64)
            labels[list(cause.which)] = 0
            yield labels
            if not busy & set(cause.which) and len(busy) < 2 * _GROUPS:
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
