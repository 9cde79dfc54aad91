"""The results of searches for single nodes, now and in later runs."""

from collections.abc import Iterable
from pathlib import Path

from shakedown.common.runs_folder import runs_folder
from shakedown.runs.directory import RunDirectory
from shakedown.runs.folder import own
from shakedown.runs.isolation import Isolation, Result
from shakedown.state.findings import Verdict


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
        own(path, "isolation.json")
        isolation = RunDirectory(path).load_isolation()
    except FileNotFoundError:
        raise ValueError(f"{path}: the run has no search: begin one with: shakedown isolate {path.name}") from None
    if isolation.result is not None and not isolation.result.undecided:
        raise ValueError(f"{path}: the search has ended: {isolation.result.conclusion}")
    return isolation


def left_out(nodes: Iterable[str], inventory: str, root: Path | None = None) -> dict[str, str]:
    """Return the nodes that the last search over this inventory named: node -> reason.

    Of a link it is one end; of an uplink or a trunk, one rack. Without such a search the result is empty.
    """
    wanted, excluded = set(nodes), dict[str, str]()
    for path in sorted((root or runs_folder()).glob("*/isolation.json"), reverse=True) if wanted else ():
        try:
            isolation = RunDirectory(path.parent).load_isolation()
        except (OSError, ValueError):
            continue
        if path.parent.is_symlink() or isolation.inventory != inventory or isolation.result is None:
            continue
        for suspect in isolation.result.suspects:
            if not any(node in excluded for node in suspect.nodes):
                reason = f"suspect ({suspect}) of the search in run {path.parent.name}"
                excluded |= {node: reason for node in suspect.without or suspect.nodes[-1:] if node in wanted}
        break
    return excluded
