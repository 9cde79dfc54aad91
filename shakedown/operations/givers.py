"""Who takes an image from whom: one node pulls it from the registry, and everybody who has it gives it on.

The nodes that give grow with those that have it, so that with two receivers at a time 64 nodes are served in four
rounds. Pure but for the waiting.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from gevent.event import Event

REGISTRY = ""
"""In place of a giver: the node pulls."""
FAILURES = 2
"""Of a receiver, until it pulls from the registry; of a giver, until nobody takes from it any more: either may be the
one that is broken."""


@dataclass
class Givers:
    """Those that have one image, and those that want it."""

    per_node: int
    serving: dict[str, int]  # node that has the image -> receivers at the moment
    pulling: set[str] = field(default_factory=set)
    faults: Counter[str] = field(default_factory=Counter)
    failures: Counter[str] = field(default_factory=Counter)
    changed: Event = field(default_factory=Event)

    def choose(self, receiver: str, reaches: Callable[[str], bool]) -> str | None:
        """A giver for a node, or REGISTRY; None: it has to wait for one. `reaches`: whether a giver would do."""
        if self.failures[receiver] >= FAILURES:
            return self._registry(receiver)
        able = [node for node in self.serving if node != receiver and self.faults[node] < FAILURES]
        for node in sorted(able, key=lambda node: self.serving[node]):
            if reaches(node):
                if self.serving[node] < self.per_node:
                    self.serving[node] += 1
                    return node
                return None  # and so have the others that are reached
        return None if self.pulling else self._registry(receiver)

    def _registry(self, receiver: str) -> str:
        self.pulling.add(receiver)
        return REGISTRY

    def wait(self, receiver: str, reaches: Callable[[str], bool]) -> str:
        """As `choose`, waiting until there is one."""
        while (chosen := self.choose(receiver, reaches)) is None:
            self.changed.clear()
            self.changed.wait()
        return chosen

    def ended(self, receiver: str, giver: str, done: bool) -> None:
        """What was chosen is over. Who has the image gives it from now on."""
        if giver == REGISTRY:
            self.pulling.discard(receiver)
        else:
            self.serving[giver] -= 1
        if done:
            self.serving.setdefault(receiver, 0)
        elif giver != REGISTRY:
            self.faults[giver] += 1
            self.failures[receiver] += 1
        self.changed.set()


@dataclass
class Sharing:
    """What the nodes of one run share: for each image, by its id, who gives it."""

    per_node: int
    way: Callable[[str, str], str | None]  # (giver, receiver) -> the giver's address that the receiver reaches
    holders: Callable[[str], Iterable[str]]  # image id -> nodes that were seen to have it
    _givers: dict[str, Givers] = field(default_factory=dict)

    def of(self, image_id: str) -> Givers:
        """Those of one image."""
        if image_id not in self._givers:
            self._givers[image_id] = Givers(self.per_node, dict.fromkeys(self.holders(image_id), 0))
        return self._givers[image_id]

    def __repr__(self) -> str:
        return "from nodes that have it"
