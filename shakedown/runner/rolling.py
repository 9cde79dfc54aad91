"""A run in batches: some nodes are brought into their desired state, then the next, until enough of them have failed;
the smoke run at the end is one, over all that came through.

pyinfra has two ways of not doing everything at once, and neither is this: `--serial` takes one host through all
operations and then the next, `--parallel` bounds each operation, so that all nodes still change together; and
`fail_percent` ends a run where it stands. Here one state and one session see all nodes, which are compared with each
other and share what a registry said, and only the nodes of a batch are active while its deploy runs.
"""

import contextlib
from dataclasses import dataclass
from pathlib import Path

import gevent
from gevent.lock import BoundedSemaphore
from pydantic import ValidationError
from pyinfra.api import Host, State
from pyinfra.api.state import StateStage

from shakedown.common.text import counted
from shakedown.desired.models import Rolling as Wanted
from shakedown.hosts import named
from shakedown.operations.smoke import connection_is_gone
from shakedown.runner import engine
from shakedown.runner.examine import reread
from shakedown.runner.inventory import desired_states, hosts_in_limit
from shakedown.runner.progress import progress
from shakedown.runner.session import Session, session
from shakedown.runs import rolling as plan
from shakedown.runs.directory import desired_digest
from shakedown.runs.folder import earlier_of, find_run
from shakedown.runs.rolling import Rolling
from shakedown.state.findings import Verdict

FIRST_S = 20.0  # for all hosts to answer; the batches begin without those that take longer
NOT_BEGUN = "its batch was not begun"


@dataclass(frozen=True)
class Request:
    """How a run in batches was requested."""

    batch: str
    max_failed: str | None = None
    tries: int = 5  # to connect to a host
    earlier: Path | None = None  # directory of the run to go on with


def requested(state: State, batch: str | None, max_failed: str | None, resume: str | None) -> Request | None:
    """Return what the command line requests, over the resumed run, over the desired state. Raise InventoryError."""
    wanted = next(iter(desired_states(state).states.values())).rolling
    earlier: Rolling | None = None
    try:
        path = find_run(resume) if resume else None
        if path is not None:
            earlier = earlier_of(path)
            if not {turn.node for turn in earlier.turns} & {host.name for host in hosts_in_limit(state)}:
                raise ValueError(f"{path}: none of its nodes is among the hosts of this run")
        given = {"batch": batch, "max_failed": max_failed}
        before = {"batch": earlier.batch, "max_failed": earlier.max_failed} if earlier else {}
        layers = {**wanted.model_dump(), **before, **{key: value for key, value in given.items() if value is not None}}
        chosen = Wanted.model_validate(layers)
    except ValidationError as error:
        (first, *_) = error.errors()
        name = str(first["loc"][0]).replace("_", "-")
        raise engine.InventoryError(f"--{name} {first['input']}: expected {first['msg'].partition(', ')[2]}") from error
    except ValueError as error:
        raise engine.InventoryError(str(error)) from error
    if chosen.batch is None:
        if max_failed is not None:
            raise engine.InventoryError("--max-failed: there is no --batch, so all nodes are changed at once")
        return None
    return Request(chosen.batch, chosen.max_failed, chosen.tries, path)


class Callers:
    """Connects to all hosts, and again to silent ones, beside the work, with longer pauses, until their tries end."""

    def __init__(self, state: State, tries: int) -> None:
        self._state, self._tries = state, tries
        self._slots = BoundedSemaphore(state.config.PARALLEL or len(list(state.inventory)))
        self.tried: dict[str, int] = {}
        self.calling: dict[str, gevent.Greenlet] = {}

    def connect(self, state: State) -> None:
        """Try each host for the first time. This replaces pyinfra's connect_all, which waits for the slowest."""
        for host in hosts_in_limit(state):
            self.call(host)
        with gevent.Timeout(FIRST_S, False):
            while any(name not in self.tried for name in self.calling):
                gevent.sleep(0.05)

    def call(self, host: Host) -> None:
        """Begin to connect, from the first try on."""
        self.tried.pop(host.name, None)
        self.calling[host.name] = gevent.spawn(self._call, host)

    def _call(self, host: Host) -> None:
        for pause in (0.0, *plan.pauses(self._tries)):
            gevent.sleep(pause)
            with self._slots:
                host.connect(show_errors=not pause)
            if host.connected:
                self._state.activated_hosts.add(host)  # so that it is disconnected at the end
                progress(self._state).hosts[host.name].answer()
            self.tried[host.name] = self.tried.get(host.name, 0) + 1
            if host.connected:
                break
        del self.calling[host.name]

    def answering(self) -> list[str]:
        """Return the connected hosts. A host whose connection has ended since is called again."""
        for host in hosts_in_limit(self._state):
            if host.connected and connection_is_gone(host):
                self.again(host)
        return [host.name for host in hosts_in_limit(self._state) if host.connected]

    def again(self, host: Host) -> None:
        """Connect anew."""
        with contextlib.suppress(Exception):  # of a connection that is gone, and that nobody needs
            host.disconnect()
        host.connected = False
        self.call(host)

    def stop(self) -> None:
        """Give up on those that are still being called."""
        gevent.killall(list(self.calling.values()))


def run(state: State, request: Request, callers: Callers, smoke: bool) -> None:
    """Bring the nodes of a connected state into their desired state a batch at a time, and train at the end where
    `smoke`. How far it came is in the record at every moment; `Session.verdict` judges it."""
    current = session()
    record = current.open_run()
    record.rolling = _planned(current, request)
    rolling = _Rolling(state, current, record.rolling, callers)
    try:
        rolling.through()
        if smoke and not record.rolling.stopped:
            rolling.train()
    finally:
        callers.stop()
        rolling.leave()


def show_batches(current: Session, request: Request) -> None:
    """Show, in a dry run, in how many batches the nodes would be brought up."""
    planned = _planned(current, request)
    waiting = planned.names("waiting")
    line = f"in {counted(plan.batches(planned), 'batch', 'batches')} of {request.batch}: {named(waiting) or 'no node'}"
    current.say(line, soft_wrap=True)


def _planned(current: Session, request: Request) -> Rolling:
    # As the inventory has them: a node that answers late says later where its user's home is.
    states = desired_states(current.state).states
    digests = {name: desired_digest({name: desired}) for name, desired in states.items()}
    earlier = earlier_of(request.earlier) if request.earlier else None
    resumes = request.earlier.name if request.earlier else ""
    turns = plan.turns(digests, earlier)
    return Rolling(batch=request.batch, max_failed=request.max_failed, resumes=resumes, turns=turns)


class _Rolling:
    def __init__(self, state: State, current: Session, record: Rolling, callers: Callers) -> None:
        self.state, self.current, self.record, self.callers = state, current, record, callers
        self.run = current.open_run().run_id
        self.begun = 0
        self.silent: set[str] = set()  # connected, and without an answer when they had their turn

    def through(self) -> None:
        """Bring up batch after batch, until none is left or enough nodes have failed."""
        self.show(f"{counted(len(self.record.turns), 'node')} in batches of {self.record.batch}")
        if done := self.record.names("done"):
            self.show(f"done in {self.record.resumes}, and not touched again: {named(done)}")
        while not self.record.stopped:
            answering = self.callers.answering()
            batch = plan.next_batch(self.record, answering)
            if batch:
                self.bring_up(batch)
            elif waiting := [name for name in self.record.names("waiting") if name in self.callers.calling]:
                self.show(f"no answer yet from {named(waiting)}: trying again")
                while all(name in self.callers.calling for name in waiting):
                    gevent.sleep(0.2)
                continue
            else:
                self.give_up(self.record.names("waiting"))
                return
            self.record.stopped = plan.why_stop(self.record, self.run, batch)

    def give_up(self, names: list[str]) -> None:
        """Count those that never answered as failed."""
        for name in names:
            host = self.current.host(name)
            run = self.current.run_of(host.name)
            why = run.lost or "could not connect"
            tries = counted(self.callers.tried.get(name, 0), "try", "tries")
            run.lose(f"no answer after {tries}: {why}")
            self.failed(name, f"no answer after {tries}: {why}")
        if names:
            self.record.stopped = plan.why_stop(self.record, self.run)

    def failed(self, name: str, why: str) -> None:
        turn = self.record.turn(name)
        turn.status, turn.why, turn.run, turn.verdict = "failed", why, self.run, Verdict.FAIL
        self.current.exclude(name, why, Verdict.FAIL)

    def bring_up(self, names: list[str]) -> None:
        """One batch: read again, since hours may have passed; changed, checked."""
        self.begun += 1
        rest = plan.batches(self.record) - 1
        done, failed = len(self.record.names("done")), len(self.record.names("failed"))
        line = f"batch {self.begun} of {self.begun + rest}: {named(names)} ({done} done, {failed} failed)"
        self.show(line)
        for name in names:
            turn = self.record.turn(name)
            turn.status, turn.batch, turn.run = "under way", self.begun, self.run
        hosts = [self.current.host(name) for name in names]
        reread(self.state, self.current.examination, hosts)
        self.current.examination.judge()
        hosts = self.answered(hosts)
        self.current.save()
        if not hosts:
            return
        self.deploy("bringup", hosts)
        for host in hosts:
            turn = self.record.turn(host.name)
            run = self.current.run_of(host.name)
            why = run.excluded or run.failure
            if why or host not in self.state.active_hosts:
                self.failed(host.name, why or run.message or "it failed")
            else:
                turn.status, turn.verdict = "done", self.current.examination.verdict_of(host.name)
        self.current.save()

    def answered(self, hosts: list[Host]) -> list[Host]:
        """Those that answered. Another has a later turn, once: its connection may be gone, unnoticed."""
        states = self.current.examination.states
        lost = [host for host in hosts if host.name not in states and host.name not in self.silent]
        for host in lost:
            self.silent.add(host.name)
            turn = self.record.turn(host.name)
            turn.status, turn.batch, turn.run = "waiting", None, ""
            self.callers.again(host)
        if lost:
            self.show(f"no answer from {named([host.name for host in lost])}: called again, for a later batch")
        return [host for host in hosts if host not in lost]

    def train(self) -> None:
        """Run the smoke run, once, over all nodes that came through and still answer."""
        answering = self.callers.answering()
        standing = [name for name in self.record.names("done") if name in answering]
        if not standing:
            self.record.stopped = "no node came through"
            return
        for name in set(self.record.names("done")) - set(standing):
            self.current.exclude(name, "its connection was lost after its batch", Verdict.FAIL)
        self.show(f"every batch is through: {counted(len(standing), 'node')} to train")
        hosts = [self.current.host(name) for name in standing]
        reread(self.state, self.current.examination, hosts)
        self.current.examination.judge()
        self.deploy("smoke", hosts)

    def deploy(self, name: str, hosts: list[Host]) -> None:
        """Run a deploy over some of the hosts. pyinfra prepares and runs over those that are active, in the order of
        the operations that each of them has; it takes the operations of a second deploy for nested ones of the first,
        and a stage of its own never goes back."""
        self.state.active_hosts = set(hosts)
        self.state.is_executing = False
        self.state.current_stage = StateStage.Prepare
        for host in self.state.inventory:
            host.op_hash_order = []
        engine.run_deploy(self.state, name)

    def leave(self) -> None:
        """However it ended: what was not begun is no pass, and somebody can go on."""
        for name in self.record.names("waiting"):
            self.current.exclude(name, NOT_BEGUN, Verdict.UNKNOWN)
        if left := self.record.names("waiting", "under way", "failed"):
            self.current.notices.append(f"not done: {named(left)}; --resume {self.run} goes on with them")
        if self.record.stopped:
            self.show(f"stopped: {self.record.stopped}", "red")

    def show(self, line: str, style: str | None = None) -> None:
        self.current.say(line, soft_wrap=True, style=style)
        if self.current.notes is not None:
            self.current.notes.note("stage", line)
