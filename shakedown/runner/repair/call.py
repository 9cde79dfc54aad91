"""The work of `shakedown service`: look, act where that is requested, look again."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import click
from pyinfra.api import State
from pyinfra_cli.util import parse_cli_arg

from shakedown.common.text import printable
from shakedown.ledger import claims as book
from shakedown.ledger.claims import kept, this_process
from shakedown.ledger.store import Ledger
from shakedown.runner import engine
from shakedown.runner.examine import examine
from shakedown.runner.repair.child import Busy, Commands, alone
from shakedown.runner.repair.escalation import Escalation
from shakedown.runner.repair.scheduler import after, carry_out
from shakedown.runner.repair.service import Picture, picture
from shakedown.runner.run_nodes import keep_check
from shakedown.service.model import Step

__all__ = ["Busy", "Commands", "ServiceCall"]


@dataclass
class ServiceCall:
    """One call."""

    ledger: Ledger
    commands: Commands
    limit: tuple[str, ...]

    def first(self, state: State, keep: Callable[..., None], kept: bool, taken: Sequence[str]) -> Picture:
        """Read the nodes as they are. The check is `kept` where something is to follow from it."""
        examination = examine(state)
        keep(examination)
        if kept:
            keep_check(state, examination, examination.verdict())
        for node in taken:
            known = book.known_of(self.ledger, [node])[node]
            step = Step(node=node, at=after(known), done="taken back", why="by a person", who=book.who())
            book.write(self.ledger, step)
        return picture(self.ledger, examination, _names(state), kept)

    def act(self, found: Picture, repair: bool, drain: bool) -> Picture:
        """Drain and resume, climb, drain and resume. Returns what it has come to."""
        with alone() as (lock, path), self.commands.handing_on():
            self.commands.lock = lock
            holder = this_process(str(path))
            self._marks(found, drain)
            if repair:
                with kept(self.ledger, holder):
                    Escalation(self.ledger, self.commands, self._look, _say, holder).run(self._look(()))
            found = self._look(())
            if self.commands.interrupted:
                return found
            self._marks(found, drain or repair)
            return self._look(())

    def preview(self, found: Picture, repair: bool, drain: bool) -> list[str]:
        """Return what `act` would do first."""
        lines = Escalation(self.ledger, self.commands, self._look, _say).preview(found) if repair else []
        changes = [mark for mark in found.marks() if mark.what != "leave"]
        return [*(f"would {mark}" for mark in changes if drain or repair), *lines] or ["nothing would be done"]

    def _marks(self, found: Picture, wanted: bool) -> None:
        for mark in found.marks() if wanted else ():
            if mark.what == "leave" or found.services[mark.node].drain != "yes":
                _say(str(mark) if mark.what == "leave" else f"proposed, as service.drain has it: {mark}")
            elif not self.commands.interrupted:
                _say(carry_out(self.ledger, found.scheduled, mark, found.known[mark.node], found.room) or str(mark))

    def _look(self, hosts: Sequence[str]) -> Picture:
        """Read everything anew: the nodes (all, or these) over connections of their own."""
        given = {key: parse_cli_arg(value) for key, _, value in (item.partition("=") for item in self.commands.data)}
        limit = () if hosts else self.limit
        state = engine.load(self.commands.inventory, limit, given, self.commands.parallel, only=hosts)
        with engine.connected(state):
            examination = examine(state)
        return picture(self.ledger, examination, _names(state), kept=True)


def _names(state: State) -> list[str]:
    return [host.name for host in state.inventory]


def _say(line: str) -> None:
    click.echo(f"{time.strftime('%H:%M:%S')} {printable(line)}", err=True)
