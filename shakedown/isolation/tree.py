"""A search as a tree for a page and a terminal, and its results for single nodes, now and in later runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from shakedown.common.runs_folder import runs_folder
from shakedown.common.text import counted, printable
from shakedown.hosts import folded
from shakedown.runs.directory import RunDirectory
from shakedown.runs.folder import own
from shakedown.runs.isolation import Isolation, Result, Training
from shakedown.state.findings import Verdict

_NODES_SHOWN = 60  # characters


@dataclass
class Branch:
    """A group's training, with the trainings of its parts."""

    training: Training
    parts: list[Branch] = field(default_factory=list)

    @property
    def label(self) -> str:
        return folded(self.training.group.nodes)

    @property
    def is_quiet(self) -> bool:
        """Return whether the page and the terminal only count the group: it passed, and has no parts."""
        return self.training.outcome == "pass" and not self.parts and self.training.group.purpose != "closing"

    @property
    def round(self) -> str:
        """Return the number of the group's round."""
        return self.training.group.id.partition(".")[0]


def tree(isolation: Isolation) -> list[Branch]:
    """Build a search's tree in the order of trainings. Roots are groups that are no part of a failed one."""
    branches: dict[str, Branch] = {}
    roots: list[Branch] = []
    for training in isolation.trainings:
        branch = branches[training.group.id] = Branch(training)
        above = branches.get(training.group.parent or "")
        (above.parts if above is not None else roots).append(branch)
    return roots


def lines(isolation: Isolation) -> Iterator[str]:
    """Write the tree as text: failed groups with all their parts, and one line for the passed groups of a round."""
    cost = f"{counted(len(isolation.rounds), 'round')}, {counted(len(isolation.trainings), 'training')}"
    hints = [f"; hint: {printable(str(hint), 120)}" for hint in isolation.problem.hints[:5]]
    yield f"{cost}, {isolation.seconds:.0f} s{''.join(hints)}"
    roots = tree(isolation)
    quiet = Counter(root.round for root in roots if root.is_quiet)
    for root in roots:
        if not root.is_quiet:
            yield from _lines(root, "", "")
        elif passed := quiet.pop(root.round, 0):
            yield f"round {root.round}: {counted(passed, 'group')} passed"
    if isolation.result is not None:
        yield from result_lines(isolation.result)


def round_line(trainings: Sequence[Training]) -> Iterator[str]:
    """Write the outcome of a round while the search goes on: the number of passes, and the other trainings."""
    if not trainings:
        return
    branches = [Branch(training) for training in trainings]
    passed = sum(training.outcome == "pass" for training in trainings)
    total, seconds = counted(len(trainings), "training"), max(training.seconds for training in trainings)
    yield f"round {branches[0].round}: {passed} of {total} passed, {seconds:.0f} s"
    for branch in branches:
        if branch.training.outcome != "pass" or len(branches) == 1:
            yield from _lines(branch, "  ", "  ")


def _lines(branch: Branch, first: str, more: str) -> Iterator[str]:
    training, group = branch.training, branch.training.group
    label = branch.label if len(branch.label) <= _NODES_SHOWN else f"{branch.label[:_NODES_SHOWN]}..."
    pads = f" (with {folded(group.pads)})" if group.pads else ""
    step = f"  {training.step_ms:.0f} ms" if training.step_ms and training.outcome == "pass" else ""
    reason = f"  {training.why}" if training.why and training.outcome != "pass" else ""
    yield printable(f"{first}{training.outcome:<7} {group.id:<5} {group.purpose:<8} {label}{pads}{step}{reason}", 200)
    for index, part in enumerate(branch.parts):
        last = index == len(branch.parts) - 1
        yield from _lines(part, more + ("`- " if last else "|- "), more + ("   " if last else "|  "))


def result_lines(result: Result) -> Iterator[str]:
    yield printable(result.conclusion, 300)
    for suspect in result.suspects:
        ids = ", ".join(suspect.trainings)
        evidence = f": {suspect.why}" if suspect.why else ""
        yield printable(f"suspect    {suspect}  failed in {ids}{evidence}", 300)
    if result.undecided:
        yield printable(f"undecided  {folded(list(result.undecided))}", 300)
    if result.cleared:
        yield printable(f"cleared    {folded(result.cleared)}", 300)


def verdict_of(name: str, result: Result | None) -> tuple[Verdict, str]:
    """Return the verdict of a search on one node, with the reason."""
    if result is None:
        return Verdict.UNKNOWN, "the search has no result"
    for suspect in result.suspects:
        if name in suspect.nodes:
            return Verdict.FAIL, f"suspect: {suspect}, which failed in {', '.join(suspect.trainings)}"
    if name in result.undecided:
        return Verdict.UNKNOWN, f"undecided: {result.undecided[name]}"
    return (Verdict.OK, "") if name in result.cleared else (Verdict.UNKNOWN, "the search left the node out")


def to_resume(path: Path) -> Isolation:
    """Load the search of a run, to go on with it. Raises ValueError with the reason where there is none."""
    try:
        own(path, "run.json", "isolation.json")
        isolation = RunDirectory(path).load_isolation()
    except FileNotFoundError:
        raise ValueError(f"{path}: the run has no search: begin one with: shakedown isolate {path.name}") from None
    if isolation.result is not None and not isolation.result.undecided:
        raise ValueError(f"{path}: the search has ended: {isolation.result.conclusion}")
    return isolation


def left_out(nodes: Iterable[str], inventory: str, root: Path | None = None) -> dict[str, str]:
    """Return node -> reason of the inventory's last search: of a link one end, of an uplink or trunk one rack. Raises
    ValueError where others could have written it."""
    wanted, excluded = set(nodes), dict[str, str]()
    for path in sorted((root or runs_folder()).glob("*/isolation.json"), reverse=True) if wanted else ():
        try:
            isolation = RunDirectory(path.parent).load_isolation()
        except (OSError, ValueError):
            continue
        if path.parent.is_symlink() or isolation.inventory != inventory or isolation.result is None:
            continue
        own(path.parent, "isolation.json")
        for suspect in isolation.result.suspects:
            if not any(node in excluded for node in suspect.nodes):
                reason = f"suspect ({suspect}) of the search in run {path.parent.name}"
                excluded |= {node: reason for node in suspect.without or suspect.nodes[-1:] if node in wanted}
        break
    return excluded
