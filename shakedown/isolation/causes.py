"""The causes that make trainings fail, in one model: any nodes, or one fault that several nodes share.

A training fails with 1 - missed if the fault touches its group, and with false_fail if not. Bad nodes are independent:
belief propagation (`marginals`). Shared causes stand alone, with bad nodes, and in pairs: a link touches groups with
both ends, a rack's uplink those with nodes of it and another, a trunk those with nodes of both racks. A size, and a
node that fails now and then, stand alone. Their likelihoods are exact: a few matrix products for all together.

Belief propagation takes a group as an OR of its nodes behind a noisy channel. On nested groups sum-product comes close
to the exact posterior (Aldridge, Johnson, Scarlett 2019, arXiv 1902.06002, 3.3), at the cost of the memberships.
Probability alone never names a node: see `Knowledge.named`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import numpy.typing as npt

from shakedown.runs.isolation import Noise, Problem, Training

Floats = npt.NDArray[np.float64]
Kind = Literal["link", "uplink", "trunk", "size"]

PRIOR = 0.02
"""The share of bad nodes before any training: fleets have a few per cent in repair; 0.005 to 0.05 differ little."""
_SHARED = {"link": 0.05, "uplink": 0.02, "trunk": 0.02, "size": 0.005, "sometimes": 0.03}
"""The probability of all causes of a kind, a guess: as likely as one or two bad nodes; ten trainings outweigh it."""
RATES = (0.3, 0.5, 0.7)  # of their trainings that nodes fail which fail now and then
_LIKELY = 0.1  # probability of a node to be bad: of two or more, shared causes are weighed with bad nodes beside them
_BESIDE = 8  # so many of them
_PAIRED = 24  # shared causes that are weighed in pairs
_TWO = 0.1  # how likely two at once are, against two by chance: an uplink is never two trunks of three racks
_SIZES = tuple(step / 16 for step in range(4, 17))  # of all nodes
DIGITS = 9  # of a probability that order anything: processors differ in the last of 16


def in_order(values: Floats) -> npt.NDArray[np.int64]:
    """Return the places of the values in rising order; equal ones in their own order, on every processor."""
    return np.argsort(values.round(DIGITS), kind="stable")


@dataclass(frozen=True)
class Shape:
    """The nodes and racks of a search, as numbers. Racks count from two on; two have one trunk and no uplinks."""

    names: tuple[str, ...]
    racks: tuple[str, ...]
    of_rack: Floats  # nodes x racks: 1 where the node is in it

    @classmethod
    def from_problem(cls, problem: Problem) -> Shape:
        """Read the shape off a problem."""
        names = tuple(problem.nodes)
        racks = tuple(dict.fromkeys(problem.racks[name] for name in names if name in problem.racks))
        racks = racks if len(racks) > 1 else ()
        of_rack = np.zeros((len(names), len(racks)))
        for index, name in enumerate(names):
            if problem.racks.get(name) in racks:
                of_rack[index, racks.index(problem.racks[name])] = 1
        return cls(names, racks, of_rack)

    @cached_property
    def sizes(self) -> Floats:
        sizes = sorted({float(math.ceil(share * len(self.names))) for share in _SIZES})
        return np.asarray(sizes, dtype=np.float64)

    @cached_property
    def uplinks(self) -> Floats:
        """Return 1 for each rack whose uplink differs from its only node and from the only trunk."""
        several = self.of_rack.sum(axis=0) > 1
        return np.asarray(several & (len(self.racks) > 2), dtype=np.float64)

    @cached_property
    def trunks(self) -> Floats:
        """Return 1 for each pair of racks, the lower first, whose trunk is more than one link."""
        count = self.of_rack.sum(axis=0)
        return np.triu(np.asarray(np.add.outer(count, count) > 2, dtype=np.float64), 1)


@dataclass(frozen=True)
class Cause:
    """One of the causes that nodes share, by its numbers in `Shape`."""

    kind: Kind
    which: tuple[int, ...]

    def touches(self, members: Floats, shape: Shape) -> npt.NDArray[np.bool_]:
        """Return whether the cause makes groups fail; `members` has 1 for each node of each group."""
        if self.kind == "link":
            return np.asarray(members[..., list(self.which)].all(axis=-1))
        if self.kind == "size":
            return np.asarray(members.sum(axis=-1) >= self.which[0])
        spanned = members @ shape.of_rack > 0
        return np.asarray(spanned[..., list(self.which)].all(axis=-1) & (spanned.sum(axis=-1) > 1))


@dataclass(frozen=True)
class Posterior:
    """The probability of each cause. `nodes`: to be bad, of several at once too; `sometimes`: to fail now and then."""

    shape: Shape
    nodes: Floats
    sometimes: Floats
    links: Floats  # nodes x nodes, above the diagonal
    uplinks: Floats
    trunks: Floats  # racks x racks, above the diagonal
    sizes: Floats

    @property
    def shared(self) -> float:
        """Return the probability of any cause that several nodes share."""
        return min(float(self.links.sum() + self.uplinks.sum() + self.trunks.sum() + self.sizes.sum()), 1.0)

    def chances(self, kind: Kind) -> Floats:
        return {"link": self.links, "uplink": self.uplinks, "trunk": self.trunks, "size": self.sizes}[kind]

    def likeliest(self, count: int) -> list[tuple[float, Cause]]:
        """Return the likeliest shared causes, the likeliest first."""
        pairs: list[tuple[float, Cause]] = []
        kinds: tuple[Kind, ...] = ("link", "uplink", "trunk", "size")
        for kind in kinds:
            chances = self.chances(kind)
            flat = chances.ravel()
            for place in in_order(-flat)[:count]:
                which = tuple(int(index) for index in np.unravel_index(place, chances.shape))
                which = which if kind != "size" else (int(self.shape.sizes[which[0]]),)
                pairs.append((float(flat[place]), Cause(kind, which)))
        return sorted(pairs, key=lambda pair: -round(pair[0], DIGITS))[:count]


def posterior(problem: Problem, shape: Shape, trainings: Sequence[Training], noise: Noise) -> Posterior:
    """Compute the probabilities after these trainings; the run that failed before the search counts as a training."""
    place = {name: index for index, name in enumerate(shape.names)}
    rows = [[place[node] for node in training.group.nodes if node in place] for training in trainings]
    members = np.zeros((len(rows), len(place)))
    for index, row in enumerate(rows):
        members[index, row] = 1
    failed = np.array([training.outcome == "fail" for training in trainings], bool)
    tried = _Tried(_prior(problem, place), rows, members, failed, noise)
    nodes, evidence = tried.judge_nodes()
    alone = Posterior(shape, nodes, *_weighed(shape, members, tried.failed, noise))
    several = int((nodes > _LIKELY).sum()) > 1  # two shared causes, or one beside a bad node, look like many bad nodes
    mixed = list(_several(alone, tried)) if several else []
    weights = [alone.sometimes, alone.links, alone.uplinks, alone.trunks, alone.sizes]
    flat = [np.array([evidence, *(mixture.weight for mixture in mixed)]), *(weight.ravel() for weight in weights)]
    total = float(np.logaddexp.reduce(np.concatenate(flat)))
    chances = nodes * np.exp(evidence - total) + sum(
        mixture.nodes * np.exp(mixture.weight - total) for mixture in mixed
    )
    result = Posterior(shape, chances, *(np.exp(weight - total) for weight in weights))
    for mixture in mixed:
        for cause in mixture.causes:
            result.chances(cause.kind)[cause.which] += np.exp(mixture.weight - total)
    return result


@dataclass(frozen=True)
class _Tried:
    """The trainings as numbers."""

    prior: Floats
    rows: list[list[int]]  # the nodes of each
    members: Floats  # the same, 1 for each node
    failed: npt.NDArray[np.bool_]
    noise: Noise

    def judge_nodes(self, without: npt.NDArray[np.bool_] | None = None) -> tuple[Floats, float]:
        """Return each node's probability to be bad, and the log evidence for bad nodes, `without` some trainings."""
        kept = np.ones(len(self.rows), bool) if without is None else ~without
        failed, rows = self.failed[kept], [row for row, keep in zip(self.rows, kept, strict=True) if keep]
        chances, evidence = marginals(self.prior, rows, failed.tolist(), self.noise)
        good = np.where(failed, self.noise.false_fail, 1 - self.noise.false_fail)
        none = float(np.log(good).sum() + np.log1p(-self.prior).sum())
        ratios = _ratios(failed, 1 - self.noise.missed, self.noise.false_fail)
        single = self.members[kept].T @ ratios + np.log(self.prior) - np.log1p(-self.prior)
        return chances, max(evidence - none, float(np.logaddexp.reduce(np.append(single, 0.0))))  # no less than of one


@dataclass(frozen=True)
class _Mixed:
    """Shared causes bad with nodes or each other: logarithm of the weight, and the nodes' chances then."""

    causes: tuple[Cause, ...]
    weight: float
    nodes: Floats


def _several(alone: Posterior, tried: _Tried) -> Iterator[_Mixed]:
    """Yield the likeliest shared causes beside bad nodes, and pairs of them. An unexplained failure counts against a
    cause: a rack behind a bad uplink looks like bad nodes, once another node is bad too."""
    likely = [(weight, cause) for weight, cause in alone.likeliest(_PAIRED) if cause.kind != "size"]
    likely = [(weight, cause) for weight, cause in likely if math.isfinite(weight)]
    touched = [cause.touches(tried.members, alone.shape) for _, cause in likely]
    ratios = _ratios(tried.failed, 1 - tried.noise.missed, tried.noise.false_fail)
    for place, (weight, cause) in enumerate(likely):
        nodes, evidence = tried.judge_nodes(without=touched[place]) if place < _BESIDE else (tried.prior, 0.0)
        if (share := -math.expm1(-evidence)) > 0:  # that any node is bad; with none the cause stands alone
            yield _Mixed((cause,), weight + evidence + math.log(share), nodes / share)
        for other, (beside, second) in enumerate(likely[:place]):
            both = float(ratios[touched[place] & touched[other]].sum())
            yield _Mixed((cause, second), weight + beside - both + math.log(_TWO), np.zeros(len(nodes)))


def _prior(problem: Problem, place: dict[str, int]) -> Floats:
    odds = np.full(len(place), PRIOR / (1 - PRIOR))
    for hint in problem.hints:
        if hint.node in place:
            odds[place[hint.node]] *= hint.odds
    odds = np.minimum(odds, 1.0)  # a hint alone is never more than even odds
    return np.asarray(odds / (1 + odds), dtype=np.float64)


def _ratios(failed: npt.NDArray[np.bool_], rate: float, false_fail: float) -> Floats:
    """Return the log likelihood ratio of each outcome, for a cause that fails a group at this rate against none."""
    ratios = np.where(failed, np.log(rate / false_fail), np.log((1 - rate) / (1 - false_fail)))
    return np.asarray(ratios, dtype=np.float64)


def _weighed(shape: Shape, members: Floats, failed: npt.NDArray[np.bool_], noise: Noise) -> Iterator[Floats]:
    """Yield prior times likelihood against no fault, as logarithms: sometimes, links, uplinks, trunks, sizes."""
    ratios = _ratios(failed, 1 - noise.missed, noise.false_fail)
    rates = [members.T @ _ratios(failed, r + (1 - r) * noise.false_fail, noise.false_fail) for r in RATES]
    ones = np.ones(len(shape.names))
    yield _with_prior(np.logaddexp.reduce(rates) - np.log(len(RATES)), "sometimes", ones)
    yield _with_prior(members.T @ (ratios[:, None] * members), "link", np.triu(np.ones((len(ones), len(ones))), 1))
    spanned = (members @ shape.of_rack > 0).astype(float)
    spanned[spanned.sum(axis=1) < 2] = 0
    yield _with_prior(spanned.T @ ratios, "uplink", shape.uplinks)
    yield _with_prior(spanned.T @ (ratios[:, None] * spanned), "trunk", shape.trunks)
    reached = members.sum(axis=1)[:, None] >= shape.sizes[None, :]
    yield _with_prior(reached.T.astype(float) @ ratios, "size", np.ones(len(shape.sizes)))


def _with_prior(likelihood: Floats, kind: str, there: Floats) -> Floats:
    share = _SHARED[kind] / max(float(there.sum()), 1.0)
    return np.asarray(np.where(there > 0, likelihood + np.log(share), -np.inf), dtype=np.float64)


_SWEEPS = 40
_STILL = 1e-4  # log odds: a smaller change ends the sweeps
_BOUND = 40.0  # log odds: beyond it a double has no room


def marginals(
    prior: Floats, groups: Sequence[Sequence[int]], failed: Sequence[bool], noise: Noise
) -> tuple[Floats, float]:
    """Return each node's probability to be bad, and the log evidence (Bethe). `groups`: indices of `prior`."""
    base = np.log(prior) - np.log1p(-prior)
    if not groups:
        return prior, 0.0
    sizes = np.fromiter((len(group) for group in groups), np.int64, len(groups))
    node = np.fromiter((index for group in groups for index in group), np.int64, int(sizes.sum()))
    test = np.repeat(np.arange(len(groups)), sizes)
    fails = np.asarray(failed, dtype=bool)
    with_bad = np.where(fails, 1 - noise.missed, noise.missed)[test]
    without = np.where(fails, noise.false_fail, 1 - noise.false_fail)[test]
    log_with_bad = np.log(with_bad)
    to_node = np.zeros(len(node))  # log likelihood ratios, group to node
    total = base
    for _ in range(_SWEEPS):
        to_test = np.minimum(np.maximum(total[node] - to_node, -_BOUND), _BOUND)  # np.clip takes longer
        log_good = -np.logaddexp(0.0, to_test)  # of the node being good, by all other groups
        others = np.bincount(test, log_good, len(groups))[test] - log_good
        all_good = np.exp(others)
        ratio = log_with_bad - np.log(all_good * without + (1 - all_good) * with_bad)
        moved = float(np.abs(ratio - to_node).max())
        to_node = 0.5 * to_node + 0.5 * ratio  # damped: short loops would swing
        total = base + np.bincount(node, to_node, len(prior))
        if moved < _STILL:
            break
    to_test = np.clip(total[node] - to_node, -_BOUND, _BOUND)
    all_good = np.exp(np.bincount(test, -np.logaddexp(0.0, to_test), len(groups)))
    bad, good = np.where(fails, 1 - noise.missed, noise.missed), np.where(fails, noise.false_fail, 1 - noise.false_fail)
    log_bad, log_good = -np.logaddexp(0.0, -to_node), -np.logaddexp(0.0, to_node)
    of_nodes = np.logaddexp(
        np.log(prior) + np.bincount(node, log_bad, len(prior)),
        np.log1p(-prior) + np.bincount(node, log_good, len(prior)),
    )
    of_edges = np.logaddexp(log_bad - np.logaddexp(0.0, -to_test), log_good - np.logaddexp(0.0, to_test))
    evidence = np.log(all_good * good + (1 - all_good) * bad).sum() + of_nodes.sum() - of_edges.sum()
    return np.asarray(1 / (1 + np.exp(-np.clip(total, -_BOUND, _BOUND))), dtype=np.float64), float(evidence)
