"""The search: the next groups, or the end, by the problem and the trainings so far, and the expected cost.

1. Groups: racks, or about sqrt(n) groups, all at once. Groups that failed are halved, in parallel. Groups that passed
   are mixed anew meanwhile, which costs no time. A single node trains with cleared nodes, each time with others. The
   probabilities (`causes.py`) choose each round, so that it shows as much as possible.
2. A node is named by its probability and by three failures, each time with other cleared nodes. Nodes are cleared when
   the chance that any cleared node is bad is at most 2 %.
3. Where a shared cause (a link, an uplink, a trunk, a size) is likely, the groups are those that show most about it
   (`groups.py`). The cause is named by its probability, and no node with it.
4. A closing run over all but the suspects must pass. Where no node is named, it is repeated until a shared cause is
   very unlikely; after a run that failed, until a node that fails in 30 % of its trainings would have shown itself.
5. More than a third suspect, or no training that ever passes: the cause is not a node.
"""

import math
import random
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from shakedown.common.text import counted, duration
from shakedown.hosts import folded
from shakedown.isolation import pace
from shakedown.isolation.causes import PRIOR
from shakedown.isolation.groups import look, next_groups
from shakedown.isolation.knowledge import CONVINCED_SHARED, MISSED_SHARED, PROBABLE, SILENT, Knowledge
from shakedown.runs.isolation import Group, Isolation, Launcher, Noise, Problem, Result, Training

LEAST_NODES = 3  # of fewer nodes a search cannot tell which is bad
_THIRD = 1 / 3
_DOUBT = 0.3  # probability that is worth looking into: of a shared cause, and of a node at the end
_NOTHING_PASSED = 6  # trainings without a single pass
_SILENT_ROUNDS = 3  # in a row, in which no training gave a result


Step = tuple[Group, ...] | Result  # the groups of the next round, or the end


def most_rounds(count: int) -> int:
    """Return a bound: the rounds of halving and of a search across, twice each for noise, and the closing runs."""
    return 4 * math.ceil(math.log2(max(count, 2))) + 20


def next_step(isolation: Isolation) -> Step:
    """Decide what follows the rounds so far."""
    problem = isolation.problem
    number = len(isolation.rounds) + 1
    knowledge = Knowledge(problem, isolation.rounds, isolation.run_id)
    if len(problem.nodes) < LEAST_NODES:
        reason = f"fewer than {LEAST_NODES} nodes: a search could not tell which is bad"
        return _end(knowledge, reason)
    if reason := _systemic(knowledge):
        return _end(knowledge, reason, systemic=True)
    if number > (problem.rounds or most_rounds(len(problem.nodes))):
        return _end(knowledge, f"stopped after {counted(len(isolation.rounds), 'round')}, the limit")
    if problem.seconds is not None and isolation.rounds and _no_time(isolation):
        reason = f"stopped after {isolation.seconds:.0f} s: the next round would exceed the time limit"
        return _end(knowledge, reason)
    if _without_results(isolation):
        return _end(knowledge, _why_none(knowledge))
    shared = knowledge.model.shared
    if shared > _DOUBT or (not knowledge.open and shared + float(knowledge.model.sometimes.sum()) > _DOUBT):
        return _between(knowledge, number)
    if knowledge.open:
        if groups := _single_nodes(knowledge, number):
            return groups
        if reason := _systemic(knowledge, _DOUBT):  # nodes that only ever failed with each other cannot be told apart
            return _end(knowledge, reason, systemic=True)
        return _end(knowledge, _why_none(knowledge))
    return _close(knowledge, number)


def _single_nodes(knowledge: Knowledge, number: int) -> tuple[Group, ...]:
    """Form groups that test single nodes. A rack behind a likely bad uplink or trunk trains apart."""
    apart = {node for suspect in knowledge.likely_shared if suspect.racks for node in suspect.without}
    if not apart:
        return tuple(next_groups(knowledge, number))
    parts = [
        knowledge.restrict(nodes) for nodes in (apart, {*knowledge.problem.nodes} - apart) if nodes & {*knowledge.open}
    ]
    groups = [group for part in parts for group in next_groups(part, number)] or next_groups(knowledge, number)
    return tuple(group.model_copy(update={"id": f"{number}.{place}"}) for place, group in enumerate(groups, 1))


def _between(knowledge: Knowledge, number: int) -> Step:
    """Test the likely causes that several nodes share."""
    if float(knowledge.model.sizes.sum()) > CONVINCED_SHARED:
        least = min(len(training.nodes) for training in knowledge.trainings if training.outcome == "fail")
        reason = f"any {least} nodes together fail, and few nodes together pass"
        return _end(knowledge, f"{reason}: a cause that shows only at size")
    if groups := look(knowledge, number) or (_single_nodes(knowledge, number) if knowledge.open else ()):
        return groups
    likely = ", ".join(
        f"{knowledge.words(cause)} {chance:.0%}" for chance, cause in knowledge.model.likeliest(3) if chance > 0.05
    )
    reason = f"a cause that nodes share is bad with a probability of {knowledge.model.shared:.0%} ({likely})"
    if knowledge.silent:
        reason = f"{reason}; {_why_none(knowledge)}"
    return _end(knowledge, f"{reason}, and no group is left that could show more")


def _without_results(isolation: Isolation) -> bool:
    """Return whether no training of the last rounds gave a result: further rounds would give none either."""
    last = isolation.rounds[isolation.problem.again :][-_SILENT_ROUNDS:]
    silent = all(
        training.outcome == "unknown" and training.doubt != "near" for trainings in last for training in trainings
    )
    return len(last) == _SILENT_ROUNDS and silent


def _why_none(knowledge: Knowledge) -> str:
    """Write why no further group trains though nodes are open, with the figures."""
    if not knowledge.silent:
        return f"no group of {folded(knowledge.open)} is left that could show something new"
    last = knowledge.silent[-1]
    silent = f"{len(knowledge.silent)} of {counted(len(knowledge.trainings), 'training')} gave no result"
    last_one = f"the last was {last.group.id}, {folded(last.group.nodes)}: {last.why}"
    return f"{silent}, and no other group is left to try: {last_one}"


def _no_time(isolation: Isolation) -> bool:
    longest = max(max((t.seconds for t in trainings), default=0.0) for trainings in isolation.rounds)
    return isolation.seconds + longest > (isolation.problem.seconds or 0)


def _systemic(knowledge: Knowledge, least: float = PROBABLE) -> str:
    probable = [node for node, bad in knowledge.probability.items() if bad > least]
    decisive = knowledge.decisive
    advice = "the cause is not a node; look at what the nodes share"
    if len(decisive) >= _NOTHING_PASSED and all(training.outcome == "fail" for training in decisive):
        return f"all of {counted(len(decisive), 'group')} failed: {advice}"
    if len(probable) > _THIRD * len(knowledge.problem.nodes) and len(probable) > 2:
        return f"{len(probable)} of {len(knowledge.problem.nodes)} nodes are suspect: {advice}"
    return ""


def _close(knowledge: Knowledge, number: int) -> Step:
    """Run the closing training: all nodes without the suspects must pass."""
    rest = [node for node in knowledge.problem.nodes if node not in knowledge.left_out]
    if len(rest) < knowledge.problem.smallest:
        return _end(knowledge, "too few nodes are left for a closing run")
    group = Group(id=f"{number}.1", nodes=tuple(rest), purpose="closing")
    passes, fails = knowledge.tally(frozenset(rest))
    if passes > fails:
        unsure = not knowledge.named and not knowledge.shared and knowledge.model.shared > MISSED_SHARED
        return (group,) if unsure or _may_have_missed(knowledge) else _end(knowledge, "")
    if len(silent := knowledge.without_result(frozenset(rest))) >= SILENT:
        return _end(knowledge, f"the closing run gave no result: {silent[-1].why}")
    if passes + fails < 5:
        return (group,)
    return _end(knowledge, "all nodes together fail, and no part of them fails")


def _may_have_missed(knowledge: Knowledge) -> str:
    """Write why a search after a failed run cannot end without a name, and how to go on; empty: the search can end."""
    chance = missed(knowledge.problem, knowledge.trainings)
    if not knowledge.problem.failed or knowledge.named or knowledge.shared or chance < BOUND:
        return ""
    return (
        f"a node that fails in {RATE:.0%} of its trainings was missed with a probability of {chance:.0%}:"
        f" try longer with: shakedown isolate {knowledge.run_id or 'RUN'} --resume"
    )


def _end(knowledge: Knowledge, reason: str, systemic: bool = False) -> Result:
    """Write the conclusion. A closing run that has not passed clears no node, and the conclusion reports it."""
    suspects = [] if systemic else [*knowledge.named.values(), *knowledge.shared]
    undecided = {node: _undecided(knowledge, node) for node in knowledge.open}
    cleared = [node for node in knowledge.problem.nodes if node in knowledge.cleared]
    if systemic:
        undecided |= dict.fromkeys(knowledge.named, "suspect, as too many are")
    if not systemic and (doubt := _may_have_missed(knowledge)):
        reason = f"{reason}; {doubt}" if reason else doubt
        undecided, cleared = dict.fromkeys(cleared, doubt) | undecided, []
    if reason and not systemic and not undecided and not suspects:
        undecided, cleared = dict.fromkeys(cleared, reason), []
    names = ", ".join(map(str, suspects))
    conclusion = reason or (f"the run passes without {names}" if names else "no node is bad: all train together")
    return Result(suspects=suspects, cleared=cleared, undecided=undecided, conclusion=conclusion, systemic=systemic)


def _undecided(knowledge: Knowledge, node: str) -> str:
    message = f"bad with a probability of {knowledge.probability[node]:.2g}"
    last = knowledge.given_up.get(node)
    if last is None:
        return message
    return f"{message}: the trainings of the node gave no result, the last was {last.group.id}: {last.why}"


def stopped(isolation: Isolation, reason: str) -> Result:
    """Conclude a search that is ended from outside."""
    return _end(Knowledge(isolation.problem, isolation.rounds, isolation.run_id), reason)


RATE = 0.3  # the share of trainings that such a node fails
BOUND = 0.05  # probability to have missed one, below which a search that follows a failed run may end without a name

_LEAST_ODDS = 2.0  # that the cause is still there, before the search


def missed(problem: Problem, trainings: Iterable[Training]) -> float:
    """Return the probability, after these trainings, of a node that fails `RATE` of its own, against noise alone."""
    false_fail = problem.noise.false_fail
    fails = RATE + (1 - RATE) * false_fail
    failed, passed = math.log(fails / false_fail), math.log((1 - fails) / (1 - false_fail))
    ratios = dict.fromkeys(problem.nodes, 0.0)
    for training in trainings:
        if training.outcome != "unknown":
            for node in training.nodes & ratios.keys():
                ratios[node] += failed if training.outcome == "fail" else passed
    before = max(PRIOR * len(ratios) * fails / false_fail, _LEAST_ODDS) / max(len(ratios), 1)
    odds = before * sum(math.exp(min(ratio, 50.0)) for ratio in ratios.values())
    return odds / (1 + odds)


def search(
    isolation: Isolation,
    launch: Launcher,
    keep: Callable[[Isolation], None] = lambda isolation: None,
    interrupted: Callable[[], str | None] = lambda: None,
) -> Isolation:
    """Run a search until it has a result; `keep` is called after each round. A resumed one repeats the last round."""
    while isolation.result is None:
        step = next_step(isolation)
        if isinstance(step, Result):
            isolation.result = step
            break
        trainings: list[Training] = list(launch(step))
        if [training.group for training in trainings] != list(step):
            raise ValueError("the launcher must return one training for each group, in the groups' order")
        if reason := interrupted():
            keep(isolation)
            return isolation.model_copy(update={"result": stopped(isolation, reason)})
        isolation.rounds = pace.judge_rounds([*isolation.rounds, trainings])
        keep(isolation)
    keep(isolation)
    return isolation


_PLAYS = 12  # of each kind; of large racks fewer
_LARGE = 256
TRAINING_S = 60.0
"""Seconds that a training is taken to last before one has run: most of it is the start of the program."""


@dataclass(frozen=True)
class Estimate:
    """Rounds and trainings: the medians of simulated searches with all nodes good, and with one bad."""

    nodes: int
    first_round: int  # trainings
    good: tuple[int, int]  # rounds, trainings
    one_bad: tuple[int, int]
    at_most: int  # rounds
    most_groups: int  # in a round
    at_most_s: float | None
    seconds: float  # of one training, as is assumed

    def lines(self) -> list[str]:
        """Write the estimate for a person who decides whether to start the search."""
        if self.nodes < LEAST_NODES:
            return [f"{counted(self.nodes, 'node')}: a search needs at least {LEAST_NODES} to tell which is bad"]
        kinds = (("if no node is bad", self.good), ("if one is", self.one_bad))
        found = [f"{counted(self.nodes, 'node')}; the first round trains {counted(self.first_round, 'group')} at once"]
        for text, (rounds, trainings) in kinds:
            cost = f"{counted(rounds, 'round')} and {counted(trainings, 'training')}"
            found.append(f"{text}: about {cost}, {duration(rounds * self.seconds)}")
        bound = f"at most {counted(self.at_most, 'round')} of up to {counted(self.most_groups, 'training')}"
        limit = f", {duration(self.at_most * self.seconds)}"
        limit = limit if self.at_most_s is None else f" and {duration(self.at_most_s)}"
        return [*found, f"{bound}{limit} (assuming {duration(self.seconds)} for a training)"]


@dataclass
class _Simulation:
    """A launcher that trains no node: a training fails by chance, as `noise` has it."""

    bad: frozenset[str]
    random: random.Random
    noise: Noise
    seconds: float
    trainings: int = 0

    def __call__(self, groups: Sequence[Group]) -> list[Training]:
        self.trainings += len(groups)
        return [self._train(group) for group in groups]

    def _train(self, group: Group) -> Training:
        chance = 1 - self.noise.missed if self.bad & {*group.nodes} else self.noise.false_fail
        failed = self.random.random() < chance
        return Training(group=group, outcome="fail" if failed else "pass", seconds=self.seconds)


def estimate(problem: Problem, seconds: float) -> Estimate:
    """Simulate the search with these nodes, hints and limits; `seconds` is the assumed time of one training."""
    plays = _PLAYS if len(problem.nodes) <= _LARGE else 3
    costs: dict[int, list[tuple[int, int]]] = {0: [], 1: []}
    first = 0
    for bad in costs:
        for seed in range(plays):
            draw = random.Random(f"estimate/{bad}/{seed}")
            wrong = frozenset(draw.sample(problem.nodes, min(bad, len(problem.nodes))))
            isolation = Isolation(problem=problem)
            launch = _Simulation(wrong, draw, problem.noise, seconds)
            search(isolation, launch)
            first = len(isolation.rounds[0]) if isolation.rounds else 0
            costs[bad].append((len(isolation.rounds), launch.trainings))
    good, one = (
        (round(statistics.median(r for r, _ in cost)), round(statistics.median(t for _, t in cost)))
        for cost in costs.values()
    )
    at_most = problem.rounds or most_rounds(len(problem.nodes))
    most_groups = max(len(problem.nodes) // problem.smallest, 1)
    return Estimate(len(problem.nodes), first, good, one, at_most, most_groups, problem.seconds, seconds)
