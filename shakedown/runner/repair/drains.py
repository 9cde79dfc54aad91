"""Nodes that are worked on are kept free of jobs: drained where a scheduler owns them, and given back."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from shakedown.ledger import claims as book
from shakedown.ledger.store import Ledger
from shakedown.runner.repair.scheduler import carry_out
from shakedown.runner.repair.service import Picture
from shakedown.service.decide import Proposal
from shakedown.service.marks import PARTNER, Mark, drain_mark, drain_reason, is_only_partner
from shakedown.service.model import Incident, history

Look = Callable[[Sequence[str]], Picture]  # at these hosts; none: at all
Say = Callable[[str], None]


@dataclass
class Drains:
    """The drains of one call of `shakedown service --repair`."""

    ledger: Ledger
    look: Look
    say: Say

    def drain(self, picture: Picture, proposal: Proposal) -> bool:
        """Have no job come to a node while it is worked on. Returns whether it is free."""
        incident = picture.histories[proposal.node].incidents[0]
        return self._held(picture, proposal.node, incident)

    def drain_partner(self, picture: Picture, host: str, node: str) -> bool:
        """Drain a partner node, which is only loaded together with `node`."""
        why = Incident(node=host, source="gate", name=PARTNER, what=f"for the load of {node}", run_id="service")
        return self._held(picture, host, why)

    def release(self, picture: Picture, host: str) -> None:
        """Give a partner node back, unless something speaks against it since it was drained, or it was out before."""
        node = picture.node(host)
        if not picture.services[host].scheduler or node is None:
            return
        known = book.known_of(self.ledger, [host])[host]
        past = history(known)
        if is_only_partner(past, known):
            mark = Mark(host, "resume", node.name, why="its part in the load is over")
            if why := carry_out(self.ledger, picture.scheduled, mark, known, picture.room):
                self.say(why)
        elif past.open:
            self.say(f"{host}: stays drained: {past.incidents[0]}")

    def _held(self, picture: Picture, host: str, incident: Incident) -> bool:
        service, node = picture.services[host], picture.node(host)
        if not service.scheduler:
            return True
        if node is None:
            return False
        if not picture.facts(host).managed:
            mark = drain_mark(host, incident, node)
            if why := carry_out(self.ledger, picture.scheduled, mark, picture.known[host], picture.room):
                self.say(why)
                return False
            self.say(f"{host}: drained: {drain_reason(incident)}")
        now = self.look([host])
        picture.known[host], picture.scheduled = now.known[host], now.scheduled
        if job := now.facts(host).job:
            self.say(f"{host}: drained, and left alone until its job has ended: {job}")
            return False
        return True
