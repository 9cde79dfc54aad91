"""Equal findings as one, over a range of nodes: what 509 of 512 nodes have in common is said once, and what is odd
stands by itself. Used by whatever shows the findings of many nodes to a person; JSON has them one by one.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from shakedown.hosts import folded
from shakedown.state.findings import Finding, Remedy, Verdict

if TYPE_CHECKING:
    from shakedown.gates import Gate

Item = TypeVar("Item")
NAME = "NODE"
"""What stands in the texts of a row over several nodes where each had its own name."""


@dataclass(frozen=True)
class Folded:
    """A finding that several nodes have: that of the first of them, and the nodes, each once, in their order."""

    finding: Finding
    nodes: tuple[str, ...]

    @property
    def where(self) -> str:
        """The nodes as ranges: "node[001-127,129]"."""
        return folded(self.nodes)


@dataclass(frozen=True)
class FoldedGate:
    """A gate that several nodes' own jobs came to; without `nodes` it is one of the job over all of them."""

    gate: Gate
    nodes: tuple[str, ...]

    @property
    def where(self) -> str:
        """The nodes as ranges; nothing for the job over all of them."""
        return folded(self.nodes)


def fold(findings: Iterable[Finding]) -> list[Folded]:
    """Return findings that say the same of different nodes as one, in the order in which each was first seen.

    The same are name, verdict, values, unit, evidence and remedy. Of what is ok the evidence is not looked at: nobody
    is shown it. Nor are the arguments of a remedy, which hold what its text says. A node's own name in evidence and
    remedy ("log in to node07") makes no difference: over several nodes it is NODE.
    """
    return [
        Folded(_over_several(finding) if len(nodes) > 1 else finding, nodes)
        for finding, nodes in _alike(findings, _said, lambda finding: finding.node)
    ]


def fold_gates(gates: Iterable[Gate]) -> list[FoldedGate]:
    """Gates of the nodes' own jobs that came to the same as one; those of the job over all nodes as they are."""
    return [FoldedGate(gate, nodes) for gate, nodes in _alike(gates, _judged, lambda gate: gate.node)]


def _alike(
    items: Iterable[Item], content: Callable[[Item], Hashable], node_of: Callable[[Item], str | None]
) -> list[tuple[Item, tuple[str, ...]]]:
    groups: dict[Hashable, tuple[Item, dict[str, None]]] = {}
    for item in items:
        node = node_of(item)
        _, nodes = groups.setdefault((node is None, content(item)), (item, {}))
        if node is not None:
            nodes[node] = None
    return [(first, tuple(nodes)) for first, nodes in groups.values()]


def _said(finding: Finding) -> Hashable:
    ok = finding.verdict == Verdict.OK
    values = repr((finding.wanted, finding.actual, finding.persisted))  # values may be lists, and 1 is not True
    pending, evidence = finding.reboot_pending, "" if ok else without_name(finding.evidence, finding.node)
    return (
        finding.name,
        finding.verdict,
        values,
        pending,
        finding.unit,
        evidence,
        _remedy(None if ok else finding.remedy, finding.node),
    )


def without_name(text: str, node: str) -> str:
    """Return the text with NODE where the node's own name stood as a word."""
    return _word(node).sub(NAME, text) if node and node in text else text


@functools.lru_cache(maxsize=4096)
def _word(name: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![\w.-]){re.escape(name)}(?![\w-]|\.\w)")


def _over_several(finding: Finding) -> Finding:
    remedy = finding.remedy
    if remedy is not None:
        remedy = remedy.model_copy(update={"text": without_name(remedy.text, finding.node)})
    evidence = without_name(finding.evidence, finding.node)
    return finding.model_copy(update={"evidence": evidence, "remedy": remedy})


def _remedy(remedy: Remedy | None, node: str) -> Hashable:
    return remedy and (without_name(remedy.text, node), remedy.operation, remedy.as_root, remedy.risk, remedy.by)


def _judged(gate: Gate) -> Hashable:
    job = gate.job if gate.node is None else ""  # that of a node by itself has the node's name in it
    return gate.name, gate.verdict, repr((gate.wanted, gate.actual)), gate.unit, gate.evidence, gate.remedy, job
