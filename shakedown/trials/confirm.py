"""What a run names is named only where a fresh run of the same trial names it again. Both are kept: neither is the
better one of two."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from shakedown.trials.models import Judged, Matrix, Named

_OF_NODES = ("node", "sender", "receiver")


def is_proof(each: Judged) -> bool:
    """Whether a standing needs no second run: a wrong result is wrong however often the next one is right."""
    return each.standing == "named" and each.wrong_results


def figures(first: Sequence[Judged], fresh: Sequence[Judged]) -> list[Judged]:
    """The figures of the first run, with what the fresh one says of those that it names."""
    again = {(each.node, each.part, each.trial, each.figure): each for each in fresh}
    measured = {(each.node, each.trial) for each in fresh}
    found = []
    for each in first:
        if each.standing != "named" or is_proof(each):
            found.append(each)
            continue
        second = again.get((each.node, each.part, each.trial, each.figure))
        if second is not None and second.standing == "named":
            why = f"{each.why}; again in a fresh run: {second.why}"
            change: dict[str, object] = {"why": why, "again": second.values}
        elif (each.node, each.trial) not in measured:
            change = {"standing": "undecided", "why": f"{each.why}; there is no fresh run that says the same"}
        else:
            values = second.values if second is not None else []
            said = f"{second.median:.6g}" if second is not None and second.median is not None else "its figures came"
            said += f", {second.why}" if second is not None and second.why else ""
            change = {"standing": "undecided", "why": f"{each.why}; not so in a fresh run: {said}", "again": values}
        found.append(each.model_copy(update=change))
    return [*found, *_wrong_only_now(first, fresh)]


def _wrong_only_now(first: Sequence[Judged], fresh: Sequence[Judged]) -> Iterator[Judged]:
    """Wrong results that only the fresh run had: they are proof all the same."""
    known = {(each.node, each.part, each.trial, each.figure) for each in first if is_proof(each)}
    yield from (
        each for each in fresh if is_proof(each) and (each.node, each.part, each.trial, each.figure) not in known
    )


def matrices(first: Sequence[Matrix], fresh: Sequence[Matrix]) -> list[Matrix]:
    """The same of what stands out between nodes."""
    again = {(each.trial, each.figure, each.rail): each for each in fresh}
    found = []
    for each in first:
        second = again.get((each.trial, each.figure, each.rail))
        found.append(each.model_copy(update={"named": [_named(named, second) for named in each.named]}))
    return found


def _named(named: Named, second: Matrix | None) -> Named:
    if named.kind == "unnamed":
        return named
    if second is not None and any(same(named, other) for other in second.named):
        return named.model_copy(update={"confirmed": True})
    if second is None or second.median is None:
        why = "there is no fresh run that says the same"
    else:
        others = ", ".join(f"{other.kind} {other.what}" for other in second.named) or "nothing"
        why = f"not so in a fresh run, out of which stands {others}"
    change = {"kind": "unnamed", "confirmed": False, "evidence": f"{named.evidence}; {why}"}
    return named.model_copy(update={**change, "what": f"{named.kind} {named.what}"})


def same(named: Named, other: Named) -> bool:
    """Whether two runs speak of the same: what a node sends may be all of it that is seen in the other one."""
    if named.kind in _OF_NODES:
        return other.kind in _OF_NODES and other.what == named.what
    return other.kind == named.kind and set(other.nodes) == set(named.nodes)
