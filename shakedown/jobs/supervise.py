"""Run a launch plan as one distributed job: all nodes start or none, and when one fails all are stopped.

Knows nothing of SSH or pyinfra: a `Remote` runs commands on nodes, a `Scheduler` runs the nodes' tasks side by side.
"""

import contextlib
from collections.abc import Callable
from typing import Protocol

from shakedown.evidence.diagnosis.origin import STOOD_STILL, first, with_culprit
from shakedown.evidence.diagnosis.signs import names_in
from shakedown.evidence.results import Failure, JobResult, Outcome, Timing
from shakedown.hosts import few
from shakedown.jobs.faults import Faults, HangRecorder, StepTimes
from shakedown.jobs.launch import Clock, Event, Job, Timeouts
from shakedown.jobs.member import Member
from shakedown.jobs.remote import Node
from shakedown.logs.iterations import MAX_ITERATIONS
from shakedown.logs.signatures import MISMATCH
from shakedown.schedulers.interface import Interrupted, Remote

_TICK_S = 0.1


class Scheduler(Protocol):
    """Runs functions side by side: gevent under pyinfra."""

    def spawn(self, function: Callable[[], None]) -> object:
        """Begin to run the function."""

    def sleep(self, seconds: float) -> object:
        """Let the others run."""


def run_job(
    job: Job,
    remote: Remote,
    *,
    scheduler: Scheduler,
    interrupted: Interrupted = lambda: None,
    clock: Clock | None = None,
) -> JobResult:
    """Run a planned job to its end and return what became of it, with every node's log in the job's `log_dir`.
    `interrupted` gives the reason to stop the job from outside (Ctrl-C), or None. Raises ValueError for a secret that
    is not given, before anything is started; a KeyboardInterrupt stops the job like `interrupted` does."""
    return _Supervisor(job, remote, interrupted, scheduler, clock or Clock()).run()


class _Supervisor:
    def __init__(self, job: Job, remote: Remote, interrupted: Interrupted, scheduler: Scheduler, clock: Clock) -> None:
        assert job.plan is not None
        plan = job.plan
        absent = sorted({name for node in plan.nodes for name in node.secrets if name not in job.secrets})
        if absent:
            raise ValueError(f"secrets without a value: {', '.join(absent)}")
        self._plan, self._secrets, self._on_event = plan, dict(job.secrets), job.on_event
        self._scheduler, self._clock = scheduler, clock
        self._timeouts = timeouts = job.timeouts or Timeouts.of(plan.unreachable_s)
        nodes = [Node(plan, node, remote, timeouts.poll_timeout_s) for node in plan.nodes]
        self._members = [Member(node, job, timeouts, scheduler.sleep, clock) for node in nodes]
        self._addresses = names_in(plan.nodes)
        self._names = [node.name for node in plan.nodes]
        self._reporter = self._members[-1]
        self._faults = Faults(self._members, timeouts, self._clock, interrupted)
        self._steps = StepTimes(plan)
        self._hang = HangRecorder(self._members)
        self._started: float | None = None
        self._last_iteration: int | None = None
        self._progress_at = 0.0
        self._iterations: list[tuple[int, float]] = []  # iteration, when its line came

    def run(self) -> JobResult:
        self._say("phase", f"preparing {few(self._names)}")
        for member in self._members:
            self._scheduler.spawn(lambda member=member: member.run(self._secrets))  # type: ignore[misc]
        try:
            if self._prepare():
                self._watch()
        except KeyboardInterrupt:
            self._faults.fail("interrupted", "stopped by Ctrl-C")
        self._end()
        result = self._result()
        self._say("end", f"{result.outcome}: {result.reason}")
        return result

    def _prepare(self) -> bool:
        deadline = self._clock.now() + self._timeouts.prepare_s
        while not all(member.ready for member in self._members):
            for member in self._members:
                if member.status.setup_error:
                    lacks = member.status.lacking
                    text = f"{'' if lacks else 'setup failed: '}{member.status.setup_error}"
                    member.fail("lacking" if lacks else "not ready", f"{member.name}: {text}")
            if self._clock.now() > deadline:
                late = ", ".join(member.name for member in self._members if not member.ready)
                self._faults.fail("not ready", f"not ready within {self._timeouts.prepare_s:.0f} s: {late}")
            failures = self._faults.so_far()
            if failures and not self._wait_for_others(failures):
                return False
            self._scheduler.sleep(_TICK_S)
        return True

    def _watch(self) -> None:
        """Start every leader, and watch until all have exited with 0 or something is wrong."""
        self._say("phase", "all nodes are ready: starting")
        self._started = self._progress_at = self._clock.now()
        for member in self._members:
            member.go = True
        while not all(member.status.over for member in self._members):
            self._report()
            self._judge_progress()
            failures = self._faults.so_far()
            if failures and not (self._faults.wait_for_cause(failures) or self._wait_for_others(failures)):
                return
            self._scheduler.sleep(_TICK_S)

    def _end(self) -> None:
        """Stop what runs, wait until it is over everywhere, collect and remove. No wait for a node is endless."""
        if failures := self._faults.so_far():
            self._faults.stopped()
            cause = first(failures, self._addresses, self._names)
            self._say("failure", cause.text, cause.node if cause.kind not in STOOD_STILL else None)
            more = "; a further Ctrl-C stops waiting for them" if cause.kind == "interrupted" else ""
            self._say("phase", f"stopping all nodes{more}")
            differ = any(failure.kind == MISMATCH for failure in failures)
            for member in self._members:
                member.stopped_at = self._clock.now()
                member.stop, member.record_hang = cause.text, member.record_hang or differ
        for member in self._members:
            member.finish = True
        kept, since, began = 0, self._clock.now(), self._clock.now()
        while not all(self._is_over(member) for member in self._members):
            now, before = self._clock.now(), kept
            kept = sum(member.kept() for member in self._members)
            reading = any(member.reading for member in self._members)
            since = now if kept > before or reading else since  # a long log may come for as long as it comes
            if now - since > self._timeouts.stop_s or now - began > self._timeouts.collect_s:
                break
            self._report()
            self._scheduler.sleep(_TICK_S)
        for member in self._members:
            member.given_up = True
        self._report()

    def _is_over(self, member: Member) -> bool:
        """Return whether the node is done, or silent for long. One whose watchdog alone is silent can be stopped, and
        one whose log is being read is not asked meanwhile."""
        silent_s = 0 if member.reading else self._clock.now() - member.heard_at
        return member.done or silent_s > self._timeouts.unreachable_s + self._timeouts.poll_timeout_s

    def _wait_for_others(self, failures: list[Failure]) -> bool:
        return self._faults.wait_for_others(failures, self._started is not None, self._last_iteration is not None)

    def _judge_progress(self) -> None:
        """Note no first iteration, no further one, no end in time, or a node that is through before the others."""
        if self._faults.of_job or self._started is None:
            return
        now, plan = self._clock.now(), self._plan
        waited = now - self._progress_at
        where, behind = self._reporter.name, self._reporter.reading  # what came is still to be read
        if not behind and self._steps.is_long(waited) and self._hang.begin(now):
            self._say("phase", "no progress: recording what each rank is doing")
        if now - self._started > plan.timeout_s:
            self._faults.fail("timeout", f"not over within {plan.timeout_s:g} s", where)
        elif behind or self._hang.is_pending(now):
            pass
        elif self._last_iteration is None and waited > plan.start_timeout_s:
            self._faults.fail("no start", f"{where}: no iteration within {plan.start_timeout_s:g} s", where)
        elif self._last_iteration is not None and waited > plan.stall_timeout_s:
            text = f"{where}: nothing for {plan.stall_timeout_s:g} s after iteration {self._last_iteration}"
            self._faults.fail("stall", text, where)
        exits = [(member.exited_at, member.name) for member in self._members if member.exited_at is not None]
        running = [member for member in self._members if member.exited_at is None and not member.reading]
        others = ", ".join(member.name for member in running)
        exited_at, first_exit = min(exits, default=(now, ""))
        if others and now - exited_at > self._timeouts.last_exit_s:
            text = f"{first_exit} had ended, and {self._timeouts.last_exit_s:g} s later these had not: {others}"
            self._faults.fail("early exit", text)

    def _report(self) -> None:
        """Hand on iterations, which only the last global rank prints, and events of devices."""
        for member in self._members:
            while member.devices.waiting:
                at, text = member.devices.waiting.popleft()
                self._on_event_safely(Event("device", f"{member.name}: {text}", member.name, at=at))
            while member.iterations:
                when, iteration = member.iterations.popleft()
                self._last_iteration, self._progress_at = iteration.iteration, max(self._progress_at, when)
                if len(self._iterations) < MAX_ITERATIONS:
                    self._iterations.append((iteration.iteration, round(self._clock.at(when).timestamp(), 3)))
                self._steps.iteration(when)
                self._hang.went_on()
                self._on_event_safely(Event("iteration", "", member.name, iteration))

    def _say(self, kind: str, text: str, node: str | None = None) -> None:
        self._on_event_safely(Event(kind, text, node))  # type: ignore[arg-type]

    def _on_event_safely(self, event: Event) -> None:
        """Show an event. An error in showing it must neither end the supervision nor hide the next event."""
        with contextlib.suppress(Exception):
            self._on_event(event)

    def _result(self) -> JobResult:
        failures, stopped = self._faults.so_far(), self._members[0].stopped_at
        started = None if self._started is None else self._clock.at(self._started)
        finished = self._clock.at(self._clock.now())
        cause = None
        if failures:
            running = [(member.name, member.status.running_at_end) for member in self._members]
            cause = with_culprit(first(failures, self._addresses, self._names), running)
        if not failures and not all(member.status.exit_code == 0 for member in self._members):
            cause = Failure(node=None, kind="exit", text="not every exit code is known", at=finished)
        outcome: Outcome = "failed" if cause else "completed"
        if cause and self._started is None:
            outcome = "not started"
        if cause and cause.kind == "interrupted":
            outcome = "interrupted"
        return JobResult(
            run_id=self._plan.run_id,
            outcome=outcome,
            reason=cause.text if cause else "every leader exited with 0",
            first_failure=cause,
            failures=failures,
            nodes=[member.result() for member in self._members],
            last_iteration=self._last_iteration,
            started_at=started,
            finished_at=finished,
            timing=Timing(
                started_at=None if started is None else started.timestamp(),
                stopped_at=None if stopped is None else self._clock.at(stopped).timestamp(),
                finished_at=finished.timestamp(),
                clocks={member.name: member.node_clock for member in self._members if member.node_clock},
                iterations=self._iterations,
            ),
        )
