"""A search as a tree: the groups, their parts and their outcomes. Data for a page, lines for a terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from shakedown.common.text import counted, printable
from shakedown.hosts import folded
from shakedown.runs.isolation import Isolation, Result, Training

_NODES_SHOWN = 60  # characters


@dataclass
class Branch:
    """A group with its parts. `label` is its nodes, folded."""

    id: str
    label: str
    nodes: tuple[str, ...]
    pads: tuple[str, ...]
    purpose: str
    outcome: str  # pass, fail, unknown
    why: str
    seconds: float
    step_ms: float | None
    logs: str
    parts: list[Branch] = field(default_factory=list)


@dataclass(frozen=True)
class Tree:
    """The roots are the groups that are not part of a failed group: those of the first round, and groups that were
    mixed anew."""

    roots: list[Branch]
    rounds: int
    trainings: int
    seconds: float
    result: Result | None


def tree(isolation: Isolation) -> Tree:
    """Build the tree of a search, in the order of the trainings."""
    branches: dict[str, Branch] = {}
    roots: list[Branch] = []
    for training in isolation.trainings:
        branch = branches[training.group.id] = _branch(training)
        above = branches.get(training.group.parent or "")
        (above.parts if above is not None else roots).append(branch)
    return Tree(
        roots,
        len(isolation.rounds),
        len(branches),
        sum(_seconds(trainings) for trainings in isolation.rounds),
        isolation.result,
    )


def _seconds(trainings: Sequence[Training]) -> float:
    return max((training.seconds for training in trainings), default=0.0)


def _branch(training: Training) -> Branch:
    group = training.group
    return Branch(
        id=group.id,
        label=folded(group.nodes),
        nodes=group.nodes,
        pads=group.pads,
        purpose=group.purpose,
        outcome=training.outcome,
        why=training.why,
        seconds=training.seconds,
        step_ms=training.step_ms,
        logs=training.logs,
    )


def lines(isolation: Isolation) -> Iterator[str]:
    """Write the tree as text: failed groups with all their parts, and one line for the passed groups of a round."""
    found = tree(isolation)
    yield (
        f"{counted(found.rounds, 'round')}, {counted(found.trainings, 'training')}, {found.seconds:.0f} s"
        + "".join(f"; hint: {printable(str(hint), 120)}" for hint in isolation.problem.hints[:5])
    )
    quiet = Counter(_round(root) for root in found.roots if _is_quiet(root))
    for root in found.roots:
        if not _is_quiet(root):
            yield from _lines(root, "", "")
        elif passed := quiet.pop(_round(root), 0):
            yield f"round {_round(root)}: {counted(passed, 'group')} passed"
    if found.result is not None:
        yield from result_lines(found.result)


def _round(root: Branch) -> str:
    return root.id.partition(".")[0]


def _is_quiet(root: Branch) -> bool:
    return root.outcome == "pass" and not root.parts and root.purpose != "closing"


def round_line(trainings: Sequence[Training]) -> Iterator[str]:
    """Write the outcome of a round while the search goes on: the number of passes, and the other trainings."""
    if not trainings:
        return
    number = trainings[0].group.id.partition(".")[0]
    passed = sum(training.outcome == "pass" for training in trainings)
    total = counted(len(trainings), "training")
    yield f"round {number}: {passed} of {total} passed, {_seconds(trainings):.0f} s"
    for training in trainings:
        if training.outcome != "pass" or len(trainings) == 1:
            yield from _lines(_branch(training), "  ", "  ")


def _lines(branch: Branch, first: str, more: str) -> Iterator[str]:
    label = branch.label if len(branch.label) <= _NODES_SHOWN else f"{branch.label[:_NODES_SHOWN]}..."
    pads = f" (with {folded(branch.pads)})" if branch.pads else ""
    step = f"  {branch.step_ms:.0f} ms" if branch.step_ms and branch.outcome == "pass" else ""
    reason = f"  {branch.why}" if branch.why and branch.outcome != "pass" else ""
    yield printable(f"{first}{branch.outcome:<7} {branch.id:<5} {branch.purpose:<8} {label}{pads}{step}{reason}", 200)
    for index, part in enumerate(branch.parts):
        last = index == len(branch.parts) - 1
        yield from _lines(part, more + ("`- " if last else "|- "), more + ("   " if last else "|  "))


def result_lines(result: Result) -> Iterator[str]:
    """Write the result of the search, the suspects first."""
    yield printable(result.conclusion, 300)
    for suspect in result.suspects:
        ids = ", ".join(suspect.trainings)
        evidence = f": {suspect.why}" if suspect.why else ""
        yield printable(f"suspect    {suspect}  failed in {ids}{evidence}", 300)
    if result.undecided:
        yield printable(f"undecided  {folded(list(result.undecided))}", 300)
    if result.cleared:
        yield printable(f"cleared    {folded(result.cleared)}", 300)
