"""The way back into service, step by step: do what is proposed, write it down, check it, put the node under load.

Every step is in the ledger before it is taken, so that whoever comes next goes on where this one stopped.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from shakedown.common.text import name, printable
from shakedown.ledger import claims as book
from shakedown.ledger.claims import Holder, begin, end, renew, this_process
from shakedown.ledger.store import Ledger
from shakedown.operations.reboot import boot_id_here
from shakedown.runner.repair.child import Commands, shown
from shakedown.runner.repair.scheduler import AHEAD_S, after, carry_out
from shakedown.runner.repair.service import Picture, loads, partners_of
from shakedown.service.decide import Proposal
from shakedown.service.marks import PARTNER, Mark, drain_mark, drain_reason, is_only_partner, when
from shakedown.service.model import LOAD, Done, Incident, Known, Outcome, Step, history
from shakedown.service.power import OWN_POWER, PowerError, command_for, cycle

ROUNDS = 40  # of one call: each takes every node one step on
WAIT_S = 600  # that one call waits for the next repair where nothing else is left: each in escalation.toml is shorter
_BACK_S = 5.0  # between two looks for a node that was without power
_DOABLE = ("repair", "load", "drain", "hand over")
_DEPLOYS = {"reload driver": "reload_driver", "reboot": "reboot"}


@dataclass
class Escalation:
    """One call of `shakedown service --repair`."""

    ledger: Ledger
    commands: Commands
    look: Callable[[Sequence[str]], Picture]  # at these hosts; none: at all
    say: Callable[[str], None]
    holder: Holder = field(default_factory=this_process)

    def run(self, picture: Picture, rounds: int = ROUNDS) -> None:
        """Go on until nothing is left to do now. Raise LedgerError: a step that cannot be written down is not done."""
        for _ in range(rounds):
            proposals = picture.proposals(int(time.time()))
            if self.commands.interrupted:
                return
            if not self._round(picture, proposals) and not self._waited(proposals):
                return
            if self.commands.interrupted:
                return
            picture = self.look(())

    def preview(self, picture: Picture) -> list[str]:
        """Return what `run` would do first, as commands."""
        lines = []
        for proposal in picture.proposals(int(time.time())):
            node = proposal.node
            if proposal.kind == "repair":
                commands = [self._argv(picture, proposal.repair, [node]), self.commands.check([node])]
            elif proposal.kind == "load":
                others = partners_of(picture, proposal)
                commands = loads(self.commands, picture, proposal, others) if isinstance(others, list) else []
            else:
                continue
            lines += [f"would run: {shown(argv)}" for argv in commands]
        return lines

    def _round(self, picture: Picture, proposals: Sequence[Proposal]) -> bool:
        doable = [proposal for proposal in proposals if proposal.kind in _DOABLE]
        done = False
        for step, members in groupby(doable, key=lambda todo: todo.repair if todo.kind == "repair" else todo.kind):
            group = list(members)
            if self.commands.interrupted:
                break
            if step == "hand over":
                for proposal in group:
                    self.say(f"{proposal.node}: handed over to a person: {proposal.why}")
                    book.write(self.ledger, self._step(proposal, "handed over", "", proposal.why))
                done = True
            elif step == "drain":
                for proposal in group:
                    self._drain(picture, proposal)
            elif step == LOAD:
                for proposal in group:
                    done |= self._load(picture, proposal)
            else:
                done |= self._repair(picture, group)
        return done

    def _waited(self, proposals: Sequence[Proposal]) -> bool:
        waits = [proposal for proposal in proposals if proposal.kind == "wait"]
        first = min(waits, key=lambda proposal: proposal.until, default=None)
        if first is None or first.until > time.time() + WAIT_S:
            return False
        self.say(f"{first.node}: {first.repair} from {when(first.until)} UTC on: waiting")
        return self._until(first.until, WAIT_S)

    def _argv(self, picture: Picture, repair: str, hosts: Sequence[str]) -> list[str]:
        if repair == "mend":
            return self.commands.mend(hosts)
        if repair == "power cycle":
            bmc = picture.services[hosts[0]].bmc
            assert bmc is not None
            return command_for(bmc, hosts[0])
        return self.commands.deploy(_DEPLOYS[repair], hosts)

    def _repair(self, picture: Picture, group: Sequence[Proposal]) -> bool:
        held = [todo for todo in group if not self.commands.interrupted and self._drain(picture, todo)]
        if not held or self.commands.interrupted:
            return False
        repair = held[0].repair
        begun = {todo.node: step for todo in held if (step := self._begin(picture, todo, repair)) is not None}
        if not begun:
            return False
        self._until(max(step.at for step in begun.values()))
        claimed = renew(self.ledger, self.holder)  # a process that was stopped for long has lost its claims
        if not (hosts := [host for host in begun if name(host) in claimed]):
            self.say(f"{repair}: another controller has taken over {', '.join(begun)}: nothing is done")
            return False
        wrong = self._power(picture, hosts) if repair == "power cycle" else self._run(picture, repair, hosts)
        seen = None
        if not self.commands.interrupted:
            self.commands.run(self.commands.check(hosts))
            seen = self.look(hosts)
            if repair == "reboot":
                same = "The node was not rebooted: its boot id is unchanged"
                both = picture.examination.states.keys() & seen.examination.states.keys()
                wrong |= {h: same for h in hosts if h in both and _boot_id(picture, h) == _boot_id(seen, h)}
        now = book.known_of(self.ledger, hosts)
        for host in hosts:
            step = begun[host]
            waits = repair == "mend" and seen is not None and seen.facts(host).pending
            outcome, why, run_id = self._outcome(step, now[host], wrong.get(host, ""), waits, kind="drift")
            self._end(step, now[host], outcome, why, run_id)
        return True

    def _run(self, picture: Picture, repair: str, hosts: Sequence[str]) -> dict[str, str]:
        """Run the command of a repair. Return the nodes where it failed, as far as its exit code shows."""
        if repair != "reload driver":
            self.commands.run(self._argv(picture, repair, hosts))
            return {}
        wrong = {}  # nothing but the exit code tells, and that is of one node only where it is called for one
        for host in hosts:
            if code := self.commands.run(self._argv(picture, repair, [host])):
                wrong[host] = f"not reloaded: the command has ended with {code}"
        return wrong

    def _outcome(
        self, begun: Step, known: Known, wrong: str, waits: bool = False, kind: str = ""
    ) -> tuple[Outcome, str, str]:
        """Judge the check after a repair, or a load. `done`: nothing speaks against the node, or (`waits`) only
        settings that are written down and come with its next boot."""
        run_id = book.newest_run(self.ledger, begun.node, begun.at, kind)
        if self.commands.interrupted:
            return "interrupted", "", run_id
        accused = [incident for incident in known.incidents if incident.at >= begun.at]
        if not run_id:
            return "failed", wrong or "the ledger has no run of this step", ""
        if wrong:
            return "failed", wrong, run_id
        if accused and not (waits and all(incident.drift for incident in accused)):
            return "failed", str(accused[-1]), run_id
        return "done", str(accused[-1]) if accused else "", run_id

    def _power(self, picture: Picture, hosts: Sequence[str]) -> dict[str, str]:
        """Power-cycle one node after the other. Return the nodes where that failed, with the reason."""
        wrong: dict[str, str] = {}
        for host in hosts:
            service = picture.services[host]
            if self.commands.interrupted or service.bmc is None:
                wrong[host] = "the power cycle was not begun"
                continue
            before = _boot_id(picture, host)
            if before and before == boot_id_here():
                wrong[host] = OWN_POWER.format(node=host)
                continue
            try:
                self.say(f"$ {shown(command_for(service.bmc, host))}")
                reading = picture.examination.readings.get(host)
                address = reading.address if reading else ""
                cycle(service.bmc, host, lock=self.commands.lock, address=address)
            except PowerError as error:
                wrong[host] = str(error)
                continue
            if not self._back(host, before, service.back_s):
                wrong[host] = f"the node did not come back with another boot id within {service.back_s} s"
        return wrong

    def _back(self, host: str, before: str, limit_s: float) -> bool:
        until = time.monotonic() + limit_s
        while time.monotonic() < until and not self.commands.interrupted:
            time.sleep(_BACK_S)
            if _boot_id(self.look([host]), host) not in ("", before):
                return True
        return False

    def _load(self, picture: Picture, proposal: Proposal) -> bool:
        """Put a node under load, together with others. Return whether that was done."""
        known = book.known_of(self.ledger, [proposal.node])[proposal.node]
        if not history(known, picture.fleet == 1).open:
            return True  # it was a partner meanwhile, and has passed with that
        others = partners_of(picture, proposal)
        if not isinstance(others, list):
            self.say(f"{proposal.node}: {others}")
            return False
        if not self._drain(picture, proposal):
            return False
        held = []
        try:
            for host in others:
                why = f"for the load of {proposal.node}"  # with which alone the partner is loaded
                partner = Incident(node=host, source="gate", name=PARTNER, what=why, run_id="service")
                if self.commands.interrupted or not self._held(picture, host, partner):
                    return False
                held.append(host)
            if (begun := self._begin(picture, proposal, LOAD, others)) is None:
                return False
            self._until(begun.at)
            for argv in loads(self.commands, picture, proposal, others):
                if not self.commands.interrupted:
                    self.commands.run(argv)
            known = book.known_of(self.ledger, [proposal.node])[proposal.node]
            outcome, why, run_id = self._outcome(begun, known, "")
            if outcome == "done" and not any(load.at >= begun.at for load in known.passed_loads):
                outcome, why = "failed", "the node did not pass, without a finding against it: see that run"
            self._end(begun, known, outcome, why, run_id, others)
        finally:
            for host in held:
                self._release(picture, host)
        return True

    def _drain(self, picture: Picture, proposal: Proposal) -> bool:
        """Have no job come to a node while it is worked on. Returns whether it is free."""
        incident = picture.histories[proposal.node].incidents[0]
        return self._held(picture, proposal.node, incident)

    def _release(self, picture: Picture, host: str) -> None:
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

    def _begin(self, picture: Picture, proposal: Proposal, repair: str, also: Sequence[str] = ()) -> Step | None:
        """Write that a step begins, and claim its node and the nodes `also`. None: another controller was faster."""
        step = self._step(proposal, "begun", repair, proposal.why)
        if why := begin(self.ledger, step, picture.room, self.holder, also):
            self.say(why)
            return None
        return step

    def _step(self, proposal: Proposal, done: Done, repair: str, why: str) -> Step:
        known = book.known_of(self.ledger, [proposal.node])[proposal.node]
        node, at, text, who = proposal.node, after(known), printable(why, 400), self.holder.who
        return Step(node=node, at=at, done=done, rung=repair, name=proposal.name, why=text, who=who)

    def _end(
        self, begun: Step, known: Known, outcome: Outcome, why: str, run_id: str, also: Sequence[str] = ()
    ) -> None:
        ended = {"at": after(known), "done": "ended", "outcome": outcome, "why": why, "run_id": run_id}
        step = Step.model_validate(begun.model_dump() | ended)
        if end(self.ledger, step, self.holder, also):
            self.say(f"{begun.node}: {begun.rung}: {outcome}{f': {why}' if why else ''}")
        else:
            self.say(f"{begun.node}: {begun.rung}: another controller has taken the node over meanwhile")

    def _until(self, at: int, most_s: float = AHEAD_S + 5) -> bool:
        """Wait until a moment, seconds since 1970 UTC, has come: what begins now counts as later than it. Return
        whether it has; a clock that is set back keeps nobody waiting for longer than `most_s`."""
        limit = time.monotonic() + most_s
        while time.time() < at and time.monotonic() < limit and not self.commands.interrupted:
            time.sleep(0.05)
        return time.time() >= at


def _boot_id(picture: Picture, host: str) -> str:
    state = picture.examination.state_of(host)
    return str(state.system.boot_id) if state is not None else ""
