"""The fresh run: a trial names only what a second run of the same trial names again. The record keeps both runs:
neither is the better one of two."""

from collections import defaultdict
from collections.abc import Iterator, Sequence

from shakedown.common.text import decimal
from shakedown.trials.models import Judged, Matrix, Named, TrialsRecord

_OF_NODES = ("node", "sender", "receiver")
_NO_FRESH_RUN = "no fresh run confirms it"


def is_conclusive(judged: Judged) -> bool:
    """Return whether a figure needs no second run: a wrong result stays wrong, even if the next one is right."""
    return judged.standing == "named" and judged.wrong_results


def to_confirm(record: TrialsRecord) -> dict[str, list[str]]:
    """Return the trials of single nodes to measure again: node -> the trials that name it."""
    result: dict[str, list[str]] = defaultdict(list)
    for judged in record.judged:
        if judged.standing == "named" and not is_conclusive(judged) and judged.trial not in result[judged.node]:
            result[judged.node].append(judged.trial)
    return {node: names for node, names in result.items() if names}


def suspects(record: TrialsRecord) -> dict[str, list[int]]:
    """Return the nodes to measure again with others: trial between nodes -> their places in the rounds."""
    suspected: dict[str, set[str]] = defaultdict(set)
    for matrix in record.matrices:
        for named in matrix.named:
            suspected[matrix.trial] |= set(named.nodes) if named.kind != "unnamed" else set()
    return {
        name: [place for place, node in enumerate(record.places) if node in nodes]
        for name, nodes in suspected.items()
        if nodes
    }


def confirm_figures(first: Sequence[Judged], fresh: Sequence[Judged]) -> list[Judged]:
    """Return the figures of the first run; those that the fresh run does not name again become undecided."""
    again = {_key(judged): judged for judged in fresh}
    measured = {(judged.node, judged.trial) for judged in fresh}
    result = []
    for judged in first:
        if judged.standing != "named" or is_conclusive(judged):
            result.append(judged)
            continue
        second = again.get(_key(judged))
        if second is not None and second.standing == "named":
            reason = f"{judged.why}; again in a fresh run: {second.why}"
            change: dict[str, object] = {"why": reason, "again": second.values}
        elif (judged.node, judged.trial) not in measured:
            change = {"standing": "undecided", "why": f"{judged.why}; {_NO_FRESH_RUN}"}
        else:
            values = second.values if second is not None else []
            text = decimal(second.median) if second is not None and second.median is not None else "its figures came"
            text += f", {second.why}" if second is not None and second.why else ""
            change = {"standing": "undecided", "why": f"{judged.why}; not so in a fresh run: {text}", "again": values}
        result.append(judged.model_copy(update=change))
    return [*result, *_wrong_only_now(first, fresh)]


def _key(judged: Judged) -> tuple[str, str, str, str]:
    return judged.node, judged.part, judged.trial, judged.figure


def _wrong_only_now(first: Sequence[Judged], fresh: Sequence[Judged]) -> Iterator[Judged]:
    """Yield wrong results that only the fresh run had: they are as conclusive."""
    reported = {_key(judged) for judged in first if is_conclusive(judged)}
    yield from (judged for judged in fresh if is_conclusive(judged) and _key(judged) not in reported)


def confirm_matrices(first: Sequence[Matrix], fresh: Sequence[Matrix]) -> list[Matrix]:
    """Return the matrices of the first run; causes that the fresh run does not name again become unnamed."""
    again = {(matrix.trial, matrix.figure, matrix.rail): matrix for matrix in fresh}
    result = []
    for matrix in first:
        second = again.get((matrix.trial, matrix.figure, matrix.rail))
        result.append(matrix.model_copy(update={"named": [_confirm(named, second) for named in matrix.named]}))
    return result


def _confirm(named: Named, second: Matrix | None) -> Named:
    if named.kind == "unnamed":
        return named
    if second is not None and any(same(named, other) for other in second.named):
        return named.model_copy(update={"confirmed": True})
    if second is None or second.median is None:
        reason = _NO_FRESH_RUN
    else:
        others = ", ".join(f"{other.kind} {other.what}" for other in second.named) or "nothing"
        reason = f"not so in a fresh run, which names {others}"
    change = {"kind": "unnamed", "confirmed": False, "evidence": f"{named.evidence}; {reason}"}
    return named.model_copy(update={**change, "what": f"{named.kind} {named.what}"})


def same(named: Named, other: Named) -> bool:
    """Return whether two runs name the same cause: a node, its sends and its receives count as the same."""
    if named.kind in _OF_NODES:
        return other.kind in _OF_NODES and other.what == named.what
    return other.kind == named.kind and set(other.nodes) == set(named.nodes)
