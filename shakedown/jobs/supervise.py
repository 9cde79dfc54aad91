"""Run a launch plan as one distributed job: all nodes start or none, and when one fails all are stopped.

Knows nothing of SSH or pyinfra: a `Remote` runs commands on nodes, a `Scheduler` runs the nodes' tasks side by side.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from shakedown.evidence.diagnosis.first import first, may_be_echo, with_culprit
from shakedown.evidence.diagnosis.names import names_in
from shakedown.evidence.results import Failure, JobResult, Outcome
from shakedown.evidence.telemetry.timing import Timing
from shakedown.jobs.job import Clock, Event, Job, Timeouts
from shakedown.jobs.launch import LaunchPlan
from shakedown.jobs.member import ROOM_BYTES, Member
from shakedown.jobs.remote import STANDSTILL_S, Node, Remote
from shakedown.jobs.standstill import Standstill
from shakedown.logs.kept_logs import LogQuota
from shakedown.logs.log import MAX_ITERATIONS
from shakedown.logs.signatures import MISMATCH

__all__ = ["Job", "JobResult", "Scheduler", "Threads", "Timeouts", "run_job"]

_TICK_S = 0.1


class Scheduler(Protocol):
    """Runs functions side by side: threads, or greenlets under pyinfra."""

    def spawn(self, function: Callable[[], None]) -> None:
        """Begin to run the function."""

    def sleep(self, seconds: float) -> None:
        """Let the others run."""


class Threads:
    """The scheduler of plain Python."""

    def spawn(self, function: Callable[[], None]) -> None:
        """Run it in a thread that does not keep the process alive."""
        threading.Thread(target=function, daemon=True).start()

    def sleep(self, seconds: float) -> None:
        """time.sleep."""
        time.sleep(seconds)


def run_job(
    plan: LaunchPlan,
    remote: Remote,
    log_dir: Path,
    *,
    secrets: Mapping[str, str] | None = None,
    on_event: Callable[[Event], None] = lambda event: None,
    interrupted: Callable[[], str | None] = lambda: None,
    scheduler: Scheduler | None = None,
    timeouts: Timeouts | None = None,
    quota: LogQuota | None = None,
) -> JobResult:
    """Run the job to its end and return what became of it, with every node's log in `log_dir`.

    `secrets` holds the values of the variables that the nodes' plans name; `interrupted` says why the job is to be
    stopped from outside (Ctrl-C), None otherwise; `quota` is what other jobs of the run have left for logs. Raises
    ValueError for a secret that is not given, before anything is started; a KeyboardInterrupt stops the job like
    `interrupted` does.
    """
    values = dict(secrets or {})
    absent = sorted({name for node in plan.nodes for name in node.secrets if name not in values})
    if absent:
        raise ValueError(f"secrets without a value: {', '.join(absent)}")
    bounds = timeouts or Timeouts.of(plan.unreachable_s)
    return _Supervisor(
        plan, remote, log_dir, values, on_event, interrupted, scheduler or Threads(), bounds, quota
    ).run()


class _Supervisor:
    def __init__(
        self,
        plan: LaunchPlan,
        remote: Remote,
        log_dir: Path,
        secrets: dict[str, str],
        on_event: Callable[[Event], None],
        interrupted: Callable[[], str | None],
        scheduler: Scheduler,
        timeouts: Timeouts,
        quota: LogQuota | None,
    ) -> None:
        self._plan = plan
        self._secrets = secrets
        self._on_event = on_event
        self._interrupted = interrupted
        self._scheduler = scheduler
        self._timeouts = timeouts
        self._clock = Clock()
        quota = quota or LogQuota()
        self._members = [
            Member(
                Node(plan, node, remote, timeouts.poll_timeout_s),
                log_dir,
                timeouts,
                scheduler.sleep,
                quota,
                self._clock,
            )
            for node in plan.nodes
        ]
        self._addresses = names_in(plan.nodes)
        self._names = [node.name for node in plan.nodes]
        self._reporter = self._members[-1]
        self._failures: list[Failure] = []  # of the job as a whole: timeouts, an interrupt
        self._standstill = Standstill(plan)
        self._went: float | None = None
        self._stopped: float | None = None
        self._looking_since: float | None = None
        self._last_iteration: int | None = None
        self._progress_at = 0.0
        self._came: list[tuple[int, float]] = []  # iteration, when its line came

    def run(self) -> JobResult:
        self._say("phase", "preparing " + ", ".join(member.name for member in self._members))
        for member in self._members:
            self._scheduler.spawn(lambda member=member: member.run(self._secrets))  # type: ignore[misc]
        try:
            if self._prepare():
                self._watch()
        except KeyboardInterrupt:
            self._fail("interrupted", "stopped by Ctrl-C")
        self._end()
        result = self._result()
        self._say("end", f"{result.outcome}: {result.reason}")
        return result

    # -- the three parts of a job ----------------------------------------------------------------------------------

    def _prepare(self) -> bool:
        """Wait until every node is ready. False where one is not to be had."""
        deadline = self._clock.now() + self._timeouts.prepare_s
        while not all(member.ready for member in self._members):
            for member in self._members:
                if member.status.setup_error:
                    member.fail("not ready", f"{member.name}: setup failed: {member.status.setup_error}")
            if self._clock.now() > deadline:
                late = ", ".join(member.name for member in self._members if not member.ready)
                self._fail("not ready", f"not ready within {self._timeouts.prepare_s:.0f} s: {late}")
            trouble = self._trouble()
            if trouble and not self._others_may_answer(trouble):
                return False
            self._scheduler.sleep(_TICK_S)
        return True

    def _watch(self) -> None:
        """Start every leader, and watch until all have exited with 0 or something is wrong."""
        self._say("phase", "all nodes are ready: starting")
        self._went = self._progress_at = self._clock.now()
        for member in self._members:
            member.go = True
        while not all(member.status.over for member in self._members):
            self._report()
            self._judge_progress()
            trouble = self._trouble()
            if trouble and not (self._may_be_echo(trouble) or self._others_may_answer(trouble)):
                return
            self._scheduler.sleep(_TICK_S)

    def _end(self) -> None:
        """Stop what runs, wait until it is over everywhere, collect and remove; nobody waits for a node for ever."""
        trouble = self._trouble()
        if trouble:
            self._stopped = self._clock.now()
            why = first(trouble, self._addresses, self._names)
            self._say("failure", why.text, why.node)
            more = "; a further Ctrl-C stops waiting for them" if why.kind == "interrupted" else ""
            self._say("phase", f"stopping all nodes{more}")
            differ = any(failure.kind == MISMATCH for failure in trouble)
            for member in self._members:
                member.stop, member.look = why.text, member.look or differ
        for member in self._members:
            member.finish = True
        kept, since, began = 0, self._clock.now(), self._clock.now()
        while not all(self._is_over(member) for member in self._members):
            now, before = self._clock.now(), kept
            kept = sum(member.kept() for member in self._members)
            since = now if kept > before else since  # a long log may come for as long as it comes
            if now - since > self._timeouts.stop_s or now - began > self._timeouts.collect_s:
                break
            self._report()
            self._scheduler.sleep(_TICK_S)
        for member in self._members:
            member.given_up = True
        self._report()

    def _is_over(self, member: Member) -> bool:
        """Return whether nothing more is to be had from the node: all done, or silent for long. A node whose watchdog
        alone is silent can still be stopped."""
        silent_s = self._clock.now() - member.heard_at
        return member.done or silent_s > self._timeouts.unreachable_s + self._timeouts.poll_timeout_s

    # -- judging ---------------------------------------------------------------------------------------------------

    def _trouble(self) -> list[Failure]:
        """Every failure so far, in the order of time. What a job says after it was stopped is none."""
        why = self._interrupted()
        if why and not any(failure.kind == "interrupted" for failure in self._failures):
            self._fail("interrupted", why)
        if self._stopped is None:
            for member in self._members:
                self._judge(member)
        failures = self._failures + [failure for member in self._members for failure in member.failures]
        return sorted(
            (failure for failure in failures if self._stopped is None or failure.at <= self._clock.at(self._stopped)),
            key=lambda failure: failure.at,
        )

    def _judge(self, member: Member) -> None:
        status = member.status
        known = {failure.kind for failure in member.failures}
        if status.exit_code and "exit" not in known:
            text = f"{member.name}: the job ended with {_exit_text(status.exit_code)}"
            member.fail("exit", text, member.exited_at, since=member.exited_since)
        elif status.ending and "watchdog" not in known:
            member.fail("watchdog", f"{member.name}: ended on the node: {status.ending}", since=member.asked_before)
        elif status.rebooted and "rebooted" not in known:
            text = f"{member.name}: it was rebooted in mid-run (its boot id is another one)"
            member.fail("rebooted", text, since=member.asked_before)
        elif not status.watchdog and not {"watchdog", "rebooted"} & known:
            member.fail("watchdog", f"{member.name}: its watchdog has died", since=member.asked_before)
        free = status.disk_free_bytes
        if free is not None and free < ROOM_BYTES and "disk full" not in known:
            text = f"{member.name}: no room is left where the run folder is: its log is cut"
            member.fail("disk full", text, since=member.asked_before)
        silent = self._clock.now() - member.answered_at
        if member.silence and silent > self._timeouts.unreachable_s and not {"unreachable", "watchdog"} & known:
            there = member.heard_at > member.answered_at
            text = f"{member.name}: no answer{' of its watchdog' if there else ''} for {silent:.0f} s: {member.silence}"
            member.fail("watchdog" if there else "unreachable", text, since=member.asked_at)

    def _judge_progress(self) -> None:
        """No first iteration, no further one, no end in time, or one node that is through before the others."""
        if self._failures or self._went is None:
            return
        now, plan = self._clock.now(), self._plan
        waited = now - self._progress_at
        where = self._reporter.name
        if self._standstill.is_long(waited):
            self._look(now)
        if now - self._went > plan.timeout_s:
            self._fail("timeout", f"not over within {plan.timeout_s:g} s", where)
        elif self._looks_still(now):
            pass
        elif self._last_iteration is None and waited > plan.start_timeout_s:
            self._fail("no start", f"{where}: no iteration within {plan.start_timeout_s:g} s", where)
        elif self._last_iteration is not None and waited > plan.stall_timeout_s:
            text = f"{where}: nothing for {plan.stall_timeout_s:g} s after iteration {self._last_iteration}"
            self._fail("stall", text, where)
        exits = [(member.exited_at, member.name) for member in self._members if member.exited_at is not None]
        others = ", ".join(member.name for member in self._members if member.exited_at is None)
        exited_at, first = min(exits, default=(now, ""))
        if others and now - exited_at > self._timeouts.last_exit_s:
            self._fail(
                "early exit", f"{first} had ended, and {self._timeouts.last_exit_s:g} s later these had not: {others}"
            )

    def _look(self, now: float) -> None:
        """Have every node write down what its processes are doing, once for each standstill, while nothing has been
        ended yet."""
        if self._looking_since is None:
            self._looking_since = now
            self._say("phase", "no progress: writing down what each rank is doing")
            for member in self._members:
                member.look = True

    def _look_again(self) -> None:
        """The job went on: what was written down is of no later standstill."""
        if self._looking_since is not None and all(member.looked or not member.look for member in self._members):
            self._looking_since = None
            for member in self._members:
                member.look = member.looked = False

    def _looks_still(self, now: float) -> bool:
        """Whether that goes on: a standstill is not declared before it is over, or has had its time."""
        if self._looking_since is None or now - self._looking_since > STANDSTILL_S:
            return False
        return not all(member.looked or member.silence or member.status.over for member in self._members)

    def _may_be_echo(self, trouble: list[Failure]) -> bool:
        """Whether to wait a moment for the failure that this one is an echo of.

        A node that was asked since and has answered is not gone. Another is waited for as long as a command may take.
        Then it is taken for the one that the others lost: they notice in milliseconds, a silence is noticed much later.
        """
        if not all(map(may_be_echo, trouble)):
            return False
        began = self._clock.when(trouble[0].at)
        waited = self._clock.now() - began
        if waited < self._timeouts.echo_s + self._timeouts.poll_s:
            return True
        silent = [member for member in self._members if member.asked_at < began and not member.status.over]
        if silent and waited < self._timeouts.poll_timeout_s + self._timeouts.poll_s:
            return True
        for member in silent:
            seconds = self._clock.now() - member.answered_at
            text = f"{member.name}: no answer for {seconds:.0f} s: {member.silence or 'silent'}"
            member.fail("unreachable", text, since=member.asked_at)
        return False

    def _others_may_answer(self, trouble: list[Failure]) -> bool:
        """Return whether to wait for the nodes that have not yet shown whether they have the same fault.

        Before the first iteration the same fault shows on each node when that node comes to it, later on all at once.
        A node has answered once it failed, or was well in an exchange that began after that time.
        """
        if any(failure.node is None for failure in trouble):
            return False
        began = self._clock.when(min(failure.since or failure.at for failure in trouble))
        settled = began + (self._timeouts.answer_s if self._last_iteration is None else self._timeouts.echo_s)
        waiting = [member for member in self._members if not (member.failures or member.status.over or member.done)]
        if self._went is None:
            waiting = [member for member in waiting if not member.ready]
        if self._clock.now() < settled:
            return bool(waiting)
        late = any(member.asked_at < settled for member in waiting)
        return late and self._clock.now() < settled + self._timeouts.poll_timeout_s + self._timeouts.poll_s

    def _fail(self, kind: str, text: str, node: str | None = None) -> None:
        member = self._reporter if node == self._reporter.name else None
        self._failures.append(
            Failure(
                node=node,
                kind=kind,
                text=text,
                at=self._clock.at(self._clock.now()),
                line=(member.line or None) if member else None,
                line_number=(member.line_number or None) if member else None,
            )
        )

    # -- telling ---------------------------------------------------------------------------------------------------

    def _report(self) -> None:
        """Hand on the iterations that have come in. Only the last global rank prints any."""
        for member in self._members:
            while member.iterations:
                when, iteration = member.iterations.popleft()
                self._last_iteration, self._progress_at = iteration.iteration, max(self._progress_at, when)
                if len(self._came) < MAX_ITERATIONS:
                    self._came.append((iteration.iteration, round(self._clock.at(when).timestamp(), 3)))
                self._standstill.iteration(when)
                self._look_again()
                self._on_event_safely(Event("iteration", "", member.name, iteration))

    def _say(self, kind: str, text: str, node: str | None = None) -> None:
        self._on_event_safely(Event(kind, text, node))  # type: ignore[arg-type]

    def _on_event_safely(self, event: Event) -> None:
        """What goes wrong in showing an event must neither end the supervision of a job nor hide the next event."""
        with contextlib.suppress(Exception):
            self._on_event(event)

    def _result(self) -> JobResult:
        trouble = self._trouble()
        why = None
        if trouble:
            running = [(member.name, member.status.running_at_end) for member in self._members]
            why = with_culprit(first(trouble, self._addresses, self._names), running)
        if not trouble and not all(member.status.exit_code == 0 for member in self._members):
            why = Failure(
                node=None, kind="exit", text="not every exit code is known", at=self._clock.at(self._clock.now())
            )
        outcome: Outcome = "failed" if why else "completed"
        if why and self._went is None:
            outcome = "not started"
        if why and why.kind == "interrupted":
            outcome = "interrupted"
        return JobResult(
            run_id=self._plan.run_id,
            outcome=outcome,
            reason=why.text if why else "every leader exited with 0",
            first_failure=why,
            failures=trouble,
            nodes=[member.result() for member in self._members],
            last_iteration=self._last_iteration,
            started_at=None if self._went is None else self._clock.at(self._went),
            finished_at=self._clock.at(self._clock.now()),
            timing=self._timing(),
        )

    def _timing(self) -> Timing:
        return Timing(
            started_at=None if self._went is None else self._clock.at(self._went).timestamp(),
            finished_at=self._clock.at(self._clock.now()).timestamp(),
            clocks={member.name: member.node_clock for member in self._members if member.node_clock},
            iterations=self._came,
        )


def _exit_text(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit code {code}"
