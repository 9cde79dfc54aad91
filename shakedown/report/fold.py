"""Equal gates as one, over a range of nodes. Findings of many nodes are folded by their causes: `report/causes.py`."""

from __future__ import annotations

import functools
import re
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from shakedown.hosts import folded

if TYPE_CHECKING:
    from shakedown.gates import Gate

NAME = "NODE"
"""What stands in the texts of a row over several nodes where each had its own name."""


@dataclass(frozen=True)
class FoldedGate:
    """A gate that several nodes' own jobs came to; without `nodes` it is one of the job over all of them."""

    gate: Gate
    nodes: tuple[str, ...]

    @property
    def where(self) -> str:
        """The nodes as ranges; nothing for the job over all of them."""
        return folded(self.nodes)


def fold_gates(gates: Iterable[Gate]) -> list[FoldedGate]:
    """Return gates of the nodes' own jobs that came to the same as one; those of the job over all nodes as they are."""
    groups: dict[Hashable, tuple[Gate, dict[str, None]]] = {}
    for gate in gates:
        job = gate.job if gate.node is None else ""  # that of a node by itself has the node's name in it
        values = repr((gate.wanted, gate.actual))
        same = (gate.node is None, gate.name, gate.verdict, values, gate.unit, gate.evidence, gate.remedy, job)
        _, nodes = groups.setdefault(same, (gate, {}))
        if gate.node is not None:
            nodes[gate.node] = None
    return [FoldedGate(first, tuple(nodes)) for first, nodes in groups.values()]


def without_name(text: str, node: str) -> str:
    """Return the text with NODE where the node's own name stood as a word."""
    return _word(node).sub(NAME, text) if node and node in text else text


@functools.lru_cache(maxsize=4096)
def _word(name: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![\w.-]){re.escape(name)}(?![\w-]|\.\w)")
