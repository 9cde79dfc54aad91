"""Faults that most nodes of a job share: of the inventory, the image or what lies between the nodes, and no node's own.

One that most nodes show counts where each node can only have it of itself, or where no node was first for certain. What
may also follow from another node's failure counts only where all nodes show the same.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime

from shakedown.catalogue import Role, entry
from shakedown.common.lists import grouped
from shakedown.evidence.diagnosis.model import Diagnosis, Sign
from shakedown.evidence.diagnosis.signs import data

FEWEST = 2  # nodes that share a fault
_LAST = datetime.max.replace(tzinfo=UTC)
_VARIES = re.compile(r"0x[0-9a-fA-F]{1,16}|\d{1,20}")


def most(count: int, of: int) -> bool:
    """Return whether so many nodes of a job are most of them."""
    return count >= FEWEST and 2 * count > of


def common_fault(
    signs: Sequence[Sign], roles: Mapping[int, Role], nodes: Collection[str]
) -> tuple[Sign, set[str]] | None:
    """Return the sign of a fault that most nodes share, and the nodes that show it; None where there is none. `roles`
    holds what each sign (by its id) proves."""
    for role in ("origin", "either", "echo"):
        shown = [sign for sign in signs if roles[id(sign)] == role and sign.node]
        alike = grouped((likeness(sign, nodes), sign) for sign in shown)
        for group in sorted(alike.values(), key=lambda group: (group[0].symptom, min(map(when, group)))):
            sharing = {sign.node for sign in group if sign.node}
            if most(len(sharing), len(nodes)) and _is_shared(role, group, len(sharing) == len(nodes)):
                return group[0], sharing
        if shown and role != "echo":
            return None
    return None


def _is_shared(role: str, group: Sequence[Sign], by_all: bool) -> bool:
    """Return whether signs that most nodes show alike are one common fault."""
    sign = group[0]
    if sign.name == "hang":  # one account of the job as a whole, with a sign for each node in question
        return False
    if role == "origin":
        without_order = 2 * len(first_nodes(group)) > len({sign.node for sign in group})
        return sign.common or _is_kind(sign) or (without_order and (by_all or not sign.symptom))
    return by_all and (sign.common if role == "echo" else sign.name != "exit")


def of_jobs(found: Sequence[Diagnosis], nodes: Collection[str]) -> Diagnosis | None:
    """Return the fault that most nodes have in the jobs which each had for itself; None where they share none."""
    alike = grouped((likeness(diagnosis.evidence[0], nodes), diagnosis) for diagnosis in found)
    group = max(alike.values(), key=len, default=[])
    if not most(len(group), len(nodes)):
        return None
    names = {node for diagnosis in group for node in (*diagnosis.origin, *diagnosis.among, *diagnosis.echoed_by)}
    names |= {diagnosis.job.partition("/")[2] for diagnosis in group}
    evidence = tuple(sign for diagnosis in group for sign in diagnosis.evidence[:1])
    shared = {"origin": (), "among": (), "common": tuple(sorted(names & set(nodes))), "nodes": len(nodes)}
    why = "most nodes show this fault, and each trained alone"
    return group[0].model_copy(update={**shared, "confidence": "certain", "why": why, "evidence": evidence[:8]})


def where(name: str) -> str:
    """Return where to look first when most nodes show a fault of this name."""
    known = entry(name)
    places: dict[str, str] = data()["where"]
    return places.get(known.part if known else name, places["other"])


def likeness(sign: Sign, nodes: Collection[str]) -> tuple[str, str]:
    """Return what two signs of the same fault have in common: its name, and its text where the name says little."""
    known = entry(sign.name)
    if known is not None and not known.general:
        return sign.name, ""
    text = _VARIES.sub("#", sign.text.removeprefix(f"{sign.node}: "))
    for node in sorted(nodes, key=len, reverse=True):
        text = text.replace(_VARIES.sub("#", node), "*")
    return sign.name, text


def _is_kind(sign: Sign) -> bool:
    """Return whether the controller saw the fault itself: then each node has it of itself."""
    return entry(sign.name) is None and sign.name not in ("hang", "not running", "exit")


def first_nodes(signs: Collection[Sign]) -> list[str]:
    """Return the nodes that may have been first: no sign of another node is certain to have come before theirs."""
    earliest = min(map(when, signs))
    return sorted({sign.node for sign in signs if sign.node and (sign.since is None or sign.since <= earliest)})


def when(sign: Sign) -> datetime:
    return sign.at or _LAST
