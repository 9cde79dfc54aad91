"""Back into service, rung by rung: what is proposed is done, written down, checked, and put under load.

Every step is in the ledger before it is taken, so that whoever comes next goes on where this one stopped. One process
at a time does this on a host: a lock, which the commands that it runs hold too, so that one that was orphaned is not
overtaken.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby

from shakedown import private
from shakedown.ledger import service as book
from shakedown.ledger.store import Ledger
from shakedown.runner.child import Commands, shown
from shakedown.runner.scheduler import after, carry_out
from shakedown.runner.service import Picture
from shakedown.runs_folder import runs_folder
from shakedown.service.decide import Proposal
from shakedown.service.evidence import SMOKE
from shakedown.service.marks import WITNESS, Mark, drain_of, reason_of
from shakedown.service.model import LOAD, Accusation, Done, Known, Outcome, Step
from shakedown.service.power import PowerError, argv_of, cycle
from shakedown.service.standing import history
from shakedown.text import printable
from shakedown.trials.models import PAIRS

ROUNDS = 40  # of one call: each takes every node one step on
_BACK_S = 5.0  # between two looks for a node that was without power
_WITNESSES = {SMOKE: 1, PAIRS: 2}  # nodes besides the one that is tried: pairs are compared from three nodes on
LOCK = "service.lock"
_DOABLE = ("rung", "load", "drain", "hand over")

Look = Callable[[Sequence[str]], Picture]  # at these hosts; none: at all
Say = Callable[[str], None]


class Busy(Exception):
    """Another process is at it."""


@contextmanager
def alone() -> Iterator[int]:
    """The lock, for as long as this process or a command of it lives. Raises Busy, OSError."""
    private.make_folders(runs_folder())
    path = runs_folder() / LOCK
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Busy(f"{path} is held: another `shakedown service`, or a command of one, is at work") from None
        yield fd
    finally:
        os.close(fd)


@dataclass
class Climb:
    """One call of `shakedown service --mend`."""

    ledger: Ledger
    commands: Commands
    look: Look
    say: Say

    def run(self, picture: Picture, rounds: int = ROUNDS) -> None:
        """Until nothing is left that can be done now. Raises LedgerError: what cannot be written down is not done."""
        for _ in range(rounds):
            doable = [each for each in picture.proposals(int(time.time())) if each.kind in _DOABLE]
            done = False
            for rung, group in groupby(doable, key=lambda each: each.rung if each.kind == "rung" else each.kind):
                its = list(group)
                if self.commands.interrupted:
                    return
                if rung == "hand over":
                    for each in its:
                        self._write(picture, each, "handed over", why=each.why)
                    done = True
                elif rung == "drain":
                    for each in its:
                        self._hold(picture, each)
                elif rung == LOAD:
                    for each in its:
                        done |= self._load(picture, each)
                else:
                    done |= self._rung(picture, its)
            if not done or self.commands.interrupted:
                return
            picture = self.look(())

    def told(self, picture: Picture) -> list[str]:
        """What `run` would do first, as commands."""
        found = []
        for each in picture.proposals(int(time.time())):
            if each.kind == "rung":
                commands = [self._argv(picture, each.rung, [each.node]), self.commands.check([each.node])]
            elif each.kind == "load":
                witnesses = self._witnesses(picture, each)
                commands = self._loads(picture, each, witnesses) if isinstance(witnesses, list) else []
            else:
                continue
            found += [f"would run: {shown(argv)}" for argv in commands]
        return found

    def _argv(self, picture: Picture, rung: str, hosts: Sequence[str]) -> list[str]:
        if rung == "mend":
            return self.commands.mend(hosts)
        if rung == "power cycle":
            bmc = picture.services[hosts[0]].bmc
            assert bmc is not None
            return argv_of(bmc, hosts[0])
        return self.commands.deploy({"reload driver": "reload_driver", "reboot": "reboot"}[rung], hosts)

    def _rung(self, picture: Picture, its: Sequence[Proposal]) -> bool:
        """One rung on several nodes. Returns whether anything was done."""
        held = [each for each in its if self._hold(picture, each)]
        if not held:
            return False
        rung, hosts = held[0].rung, [each.node for each in held]
        begun = {each.node: self._write(picture, each, "begun", rung=rung, why=each.why) for each in held}
        _until(max(step.at for step in begun.values()))
        wrong = self._power(picture, hosts) if rung == "power cycle" else {}
        if rung != "power cycle":
            self.commands.run(self._argv(picture, rung, hosts))
        if not self.commands.interrupted:
            self.commands.run(self.commands.check(hosts))
        now = book.known_of(self.ledger, hosts)
        for host, step in begun.items():
            outcome, why, run_id = self._outcome(step, now[host], wrong.get(host, ""))
            ended = Step(
                node=host,
                at=after(now[host]),
                done="ended",
                rung=rung,
                name=step.name,
                outcome=outcome,
                why=why,
                run_id=run_id,
                who=step.who,
            )
            book.write(self.ledger, ended)
            self.say(f"{host}: {rung}: {outcome}{f': {why}' if why else ''}")
        return True

    def _outcome(self, begun: Step, known: Known, wrong: str) -> tuple[Outcome, str, str]:
        """What the check after a rung, or a load, came to; done: nothing was found against the node."""
        run_id = book.newest_run(self.ledger, begun.node, begun.at)
        if self.commands.interrupted:
            return "interrupted", "", run_id
        accused = [each for each in known.accusations if each.at >= begun.at]
        if wrong or accused:
            return "failed", wrong or str(accused[-1]), run_id
        if not run_id:
            return "failed", "no run of it is in the ledger", ""
        return "done", "", run_id

    def _power(self, picture: Picture, hosts: Sequence[str]) -> dict[str, str]:
        """Power away and back, one node after the other. Returns for whom that went wrong."""
        wrong: dict[str, str] = {}
        for host in hosts:
            service = picture.services[host]
            if self.commands.interrupted or service.bmc is None:
                wrong[host] = "it was not begun"
                continue
            state = picture.examination.states.get(host)
            before = str(state.system.boot_id) if state is not None else ""
            try:
                self.say(f"$ {shown(argv_of(service.bmc, host))}")
                cycle(service.bmc, host)
            except PowerError as error:
                wrong[host] = str(error)
                continue
            if not self._back(host, before, service.back_s):
                wrong[host] = f"it did not come back with another boot id within {service.back_s} s"
        return wrong

    def _back(self, host: str, before: str, limit_s: float) -> bool:
        until = time.monotonic() + limit_s
        while time.monotonic() < until and not self.commands.interrupted:
            time.sleep(_BACK_S)
            state = self.look([host]).examination.states.get(host)
            if state is not None and str(state.system.boot_id) != before:
                return True
        return False

    def _load(self, picture: Picture, proposal: Proposal) -> bool:
        """A node under load, together with others that are well. Returns whether that was done."""
        witnesses = self._witnesses(picture, proposal)
        if not isinstance(witnesses, list):
            self.say(f"{proposal.node}: {witnesses}")
            return False
        if not self._hold(picture, proposal):
            return False
        held = [host for host in witnesses if self._hold_witness(picture, host, proposal.node)]
        try:
            if len(held) < len(witnesses):
                return False
            begun = self._write(picture, proposal, "begun", rung=LOAD, why=proposal.why)
            _until(begun.at)
            for argv in self._loads(picture, proposal, witnesses):
                if not self.commands.interrupted:
                    self.commands.run(argv)
            known = book.known_of(self.ledger, [proposal.node])[proposal.node]
            outcome, why, run_id = self._outcome(begun, known, "")
            if outcome == "done" and not any(each.at >= begun.at for each in known.proofs):
                outcome, why = "failed", "it did not pass, and nothing was found against it: see that run"
            ended = begun.model_copy(
                update={"at": after(known), "done": "ended", "outcome": outcome, "why": why, "run_id": run_id}
            )
            book.write(self.ledger, ended)
            self.say(f"{proposal.node}: load: {outcome}{f': {why}' if why else ''}")
        finally:
            for host in held:
                self._release(picture, host)
        return True

    def _loads(self, picture: Picture, proposal: Proposal, witnesses: Sequence[str]) -> list[list[str]]:
        """The commands that put a node under the loads that it has to pass, and under one with others."""
        wanted, smoke = list(proposal.loads), picture.examination.desired[proposal.node].smoke is not None
        trials = [load for load in wanted if load != SMOKE]
        if not smoke and PAIRS not in trials:
            trials.append(PAIRS)
        commands = [self.commands.trials(trials, [proposal.node, *witnesses])] if trials else []
        if smoke and (SMOKE in wanted or PAIRS not in trials):
            as_it_is = {"exclude": None, "isolate": False, "via": "ssh"}  # drained, it is given no job by a scheduler
            commands.append(self.commands.deploy("load", [proposal.node, *witnesses], smoke=as_it_is))
        return commands

    def _witnesses(self, picture: Picture, proposal: Proposal) -> list[str] | str:
        """Nodes that are well, and free, to be loaded with this one; or why there can be no load."""
        examination = picture.examination
        smoke = examination.desired[proposal.node].smoke
        if smoke is None and SMOKE in proposal.loads:
            return "it has to pass a training, and the desired state has no section smoke"
        least = max(_WITNESSES[SMOKE], (smoke.min_nodes or 0) - 1) if smoke else 0
        if PAIRS in proposal.loads or smoke is None:
            least = max(least, _WITNESSES[PAIRS])
        if picture.fleet == 1:
            return []
        fit = []
        for host, its in picture.histories.items():
            facts = picture.facts(host)
            well = facts.reached and not its.open and not picture.examination.blockers(host)
            if host != proposal.node and well and not (facts.job or facts.theirs) and facts.drainable:
                fit.append(host)
        group = examination.groups.get(proposal.node)
        fit.sort(key=lambda host: examination.groups.get(host) != group)  # like with like, as far as there are such
        if len(fit) < least:
            return f"a load needs {least} other nodes that are well and free, and there are {len(fit)}"
        room = picture.at_once - len(picture.out | {proposal.node})
        if picture.services[proposal.node].scheduler and room < least:
            allows = f"service.at_once allows {picture.at_once}"
            return f"a load needs {least} other nodes out of service for its time, and {allows}"
        return fit[:least]

    def _hold(self, picture: Picture, proposal: Proposal) -> bool:
        """Have no job come to a node while it is worked on. Returns whether it is free."""
        accusation = picture.histories[proposal.node].accusations[0]
        return self._held(picture, proposal.node, accusation)

    def _hold_witness(self, picture: Picture, host: str, node: str) -> bool:
        why = Accusation(node=host, source="gate", name=WITNESS, what=f"for the load of {node}", run_id="service")
        return self._held(picture, host, why)

    def _held(self, picture: Picture, host: str, accusation: Accusation) -> bool:
        service, node = picture.services[host], picture.node(host)
        if not service.scheduler:
            return True
        if node is None:
            return False
        if not picture.facts(host).ours:
            why = carry_out(self.ledger, picture.scheduled, drain_of(host, accusation, node), picture.known[host])
            if why:
                self.say(why)
                return False
            self.say(f"{host}: drained: {reason_of(accusation)}")
        now = self.look([host])
        picture.known[host], picture.scheduled = now.known[host], now.scheduled
        if job := now.facts(host).job:
            self.say(f"{host}: drained, and left alone until its job has ended: {job}")
            return False
        return True

    def _release(self, picture: Picture, host: str) -> None:
        node = picture.node(host)
        if picture.services[host].scheduler and node is not None:
            known = book.known_of(self.ledger, [host])[host]
            if accused := history(known).accusations:
                self.say(f"{host}: stays drained: {accused[0]}")
                return
            mark = Mark(host, "resume", node.name, why="its part in the load is over")
            if why := carry_out(self.ledger, picture.scheduled, mark, known):
                self.say(why)

    def _write(self, picture: Picture, proposal: Proposal, done: Done, rung: str = "", why: str = "") -> Step:
        known = book.known_of(self.ledger, [proposal.node])[proposal.node]
        step = Step(
            node=proposal.node,
            at=after(known),
            done=done,
            rung=rung,
            name=proposal.name,
            why=printable(why, 400),
            who=book.who(),
        )
        if done == "handed over":
            self.say(f"{proposal.node}: handed over to a person: {why}")
        return book.write(self.ledger, step)


def _until(at: int) -> None:
    """Wait until a moment, seconds since 1970 UTC, is there: what is begun now counts as later than it."""
    while time.time() < at:
        time.sleep(0.05)
