"""One run, across its hosts: pyinfra executes a deploy file once per host, and this is what those executions share.

`session()` is the run of the current pyinfra state. The nodes are examined when the first host gets here, while the
others wait; nothing later reads the inventory or the nodes again unless something was changed.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import gevent
from gevent.lock import RLock
from pyinfra import logger
from pyinfra.api import Host, State
from pyinfra.api.arguments_typed import PyinfraOperation
from pyinfra.api.exceptions import PyinfraError
from pyinfra.context import ctx_state
from pyinfra.operations import python

from shakedown.checks.examination import Examination
from shakedown.common.secrets import masked
from shakedown.evidence.diagnosis.origin import parts_of
from shakedown.evidence.results import NodeResult
from shakedown.jobs.launch import Event, Job, busy_after
from shakedown.ledger.compared import keep
from shakedown.logs.kept_logs import LogQuota
from shakedown.report import terminal
from shakedown.report.files import write_reports
from shakedown.report.formats import Findings, Run
from shakedown.runner.examine import examine, secret_values, show_findings, without_secrets
from shakedown.runner.inventory import hosts_in_limit
from shakedown.runner.progress import HostRun, RunEnd, progress
from shakedown.runner.pyinfra import host_keys
from shakedown.runner.pyinfra.invocation import invocation
from shakedown.runner.repair.scheduler import after_run
from shakedown.runner.run_nodes import keep_check, run_nodes
from shakedown.runs.directory import Evidence, RunDirectory, RunRecord, desired_digest, new_run_id, now
from shakedown.runs.signing.nodes import LogSigner
from shakedown.runs.signing.statement import sign
from shakedown.runs.watch.notes import Notes
from shakedown.state.findings import Finding, Verdict, worst
from shakedown.state.node import NodeState

if TYPE_CHECKING:
    from shakedown.report.preview import Preview

SAVING = 50.0
"""What a save waits for others to come, in what the last one took: it takes a fiftieth of a run at most."""


@dataclass
class Session:
    """What the stages of one run share."""

    state: State
    examination: Examination
    lock: RLock = field(default_factory=RLock)
    out: Any = field(default_factory=lambda: terminal.console(stderr=not invocation.shows))
    remediations: dict[str, PyinfraOperation[...]] = field(default_factory=dict)  # by their names in remedies
    declared: set[tuple[str, str, str]] = field(default_factory=set)  # node, finding, operation
    latest: dict[str, NodeState] = field(default_factory=dict)  # of nodes that have run a job: as they were after it
    states_kept: set[str] = field(default_factory=set)  # nodes whose state before the run is in its directory
    directory: RunDirectory | None = None
    notes: Notes | None = None  # for those who watch
    quota: LogQuota = field(default_factory=LogQuota)  # for the logs of all jobs of this run
    record: RunRecord | None = None
    evidence: dict[str, Evidence] = field(default_factory=lambda: defaultdict(Evidence))  # by the jobs' names
    jobs: list[Job] = field(default_factory=list)  # in the order in which they are begun
    preview: Preview | None = None  # of a dry run
    plans: list[str] = field(default_factory=list)  # of these jobs, as plan.txt has them
    shared: dict[str, object] = field(default_factory=dict)  # what one stage keeps for its hosts, by its name
    done: set[str] = field(default_factory=set)
    saving_s: float = 0.0  # what the last save took
    next_save: gevent.Greenlet | None = None
    closing: list[Callable[[], None]] = field(default_factory=list)  # what the run gives back when it ends
    notices: list[str] = field(default_factory=list)  # what could not be written though the run's verdict stands

    def __post_init__(self) -> None:
        self.quota.signer = self.signer = LogSigner(
            lambda: self.record.nonce if self.record else "",
            lambda: self.directory,
            lambda node: host_keys.shown(self.state.inventory.get_host(node)),
        )

    @property
    def begun(self) -> tuple[RunRecord, RunDirectory]:
        """The record and the directory of a run that keeps something (`open_run`)."""
        assert self.record is not None and self.directory is not None
        return self.record, self.directory

    def say(self, text: str, **how: Any) -> None:
        """Show a text as it is: what looks like rich's markup is none."""
        self.out.print(text, markup=False, **how)

    @property
    def hosts(self) -> list[Host]:
        return hosts_in_limit(self.state)

    @property
    def excluded(self) -> dict[str, str]:
        """The nodes that take no part in what follows, and why."""
        return {name: run.excluded for name, run in progress(self.state).hosts.items() if run.excluded}

    def run_of(self, name: str) -> HostRun:
        """Return the record of what becomes of a host."""
        return progress(self.state).hosts[name]

    def host(self, name: str) -> Host:
        return next(host for host in self.hosts if host.name == name)

    def once(self, name: str, function: Callable[[], None]) -> None:
        """Run a function once, whichever host gets there first; the others wait for it."""
        with self.lock:
            if name not in self.done:
                self.done.add(name)
                function()

    def may_change(self, name: str, as_root: bool = True) -> bool:
        """Return whether operations may change a node: it answered, has not failed, and we are root if need be."""
        state = self.examination.state_of(name)
        return state is not None and not self.run_of(name).excluded and (state.probe.uid == 0 or not as_root)

    def fixable(self, name: str) -> list[Finding]:
        """Return the findings of a node that an operation would fix, as the user that we are there."""
        return [f for f in self.examination.fixable(name) if f.remedy and self.may_change(name, f.remedy.as_root)]

    def open_run(self) -> RunRecord:
        """Return the record of this run, with its directory unless dry. Raise PyinfraError, which ends the run."""
        with self.lock:
            if self.record is None:
                run_id = progress(self.state).run_id or new_run_id()
                try:
                    self.directory = RunDirectory.create(run_id)
                    self.notes = progress(self.state).notes = Notes(self.directory.path, self._unsecret())
                except OSError as error:
                    raise PyinfraError(f"no run directory, so nothing is changed: {error}") from error
                self.record = RunRecord(
                    run_id=run_id,
                    started_at=now(),
                    inventory=invocation.inventory,
                    deploy=invocation.deploys[0].name if invocation.deploys else "",
                    desired_digest=desired_digest(dict(self.examination.desired)),
                    nonce=progress(self.state).nonce,
                )
                self.notes.begin(invocation.inventory, self.examination.all_findings())
                self.save()
            return self.record

    def taking(self, job: str, *takers: Callable[[Event], None]) -> Callable[[Event], None]:
        """Return a function that hands the events of a job to those who show them, and to the run's notes."""
        noted = self.notes.taking(job) if self.notes else None

        def take(event: Event) -> None:
            for taker in (noted, *takers) if noted else takers:
                taker(event)

        return take

    def _unsecret(self) -> Callable[[str], str]:
        """Return a function that masks the secrets of a text: those of the desired state, and those of the jobs."""
        public = self.examination.not_secret()
        desired = secret_values(self.examination)

        def mask(text: str) -> str:
            of_jobs = {value for job in self.jobs for value in job.secrets.values() if value}
            return str(masked(text, public, desired | of_jobs))

        return mask

    def save_soon(self, pause_s: float | None = None) -> None:
        """Write what is known in a while (as soon as this greenlet waits, where that is 0): a save costs as much as
        there are nodes, so one is for all nodes that come until then. The notes of the run do not wait."""
        if self.next_save is None:
            self.next_save = gevent.Greenlet(self.save)
            pause_s = SAVING * self.saving_s if pause_s is None else pause_s
            self.next_save.start_later(pause_s) if pause_s else self.next_save.start()

    def save(self) -> None:
        """Write what is known by now. A record that cannot be written is reported, and stays `unknown` on disk."""
        if self.next_save is not None:
            if self.next_save is not gevent.getcurrent():
                self.next_save.kill(block=False)
            self.next_save = None
        if self.record is None or self.directory is None:
            return
        began = time.monotonic()
        self.record.findings = self.examination.all_findings()
        self.record.nodes = run_nodes(self)
        for job in self.jobs:
            for node in job.result.nodes if job.result else []:
                self.evidence[job.name].logs[node.name] = self.directory.below(node.kept)
        try:
            for name, state in self.examination.states.items():
                if name not in self.states_kept:
                    self.directory.write_state(name, state)
                    if signed := self.examination.readings[name].signed:
                        signed.write(self.directory, name)
                    self.states_kept.add(name)
            if self.plans:
                self.directory.write("plan.txt", "\n".join(self.plans) + "\n")
            self.directory.save(without_secrets(self.record, self.examination), self.evidence)
            invocation.unrecorded = ""
        except (OSError, ValueError) as error:
            invocation.unrecorded = f"{self.directory.path}: the record of this run could not be written: {error}"
            logger.error(invocation.unrecorded)
        self.saving_s = time.monotonic() - began

    def document(self) -> Run | Findings:
        """Return the result of this run for the output formats; only the findings of a run that kept nothing."""
        if self.record is not None and self.directory is not None:
            kept = without_secrets(self.record, self.examination)
            return Run(kept, directory=self.directory.path, secrets=secret_values(self.examination))
        findings, inventory = self.examination.all_findings(), invocation.inventory
        return Findings(self.verdict(), len(self.hosts), findings, inventory=inventory, at=now(), plan=self.preview)

    def write_reports(self) -> None:
        """Write the reports that the desired states ask for. An error becomes a notice, and changes no verdict."""
        wanted = dict.fromkeys(form for state in self.examination.desired.values() for form in state.reports)
        if not wanted or self.directory is None:
            return
        try:
            document = self.document()
        except ValueError as error:  # as of a record that could not be saved
            self.notices.append(f"{self.directory.path}: no report could be written: {error}")
            return
        if isinstance(document, Run):
            self.notices += write_reports(self.directory, document, wanted)

    def publish(self) -> None:
        """Write the reports, and sign the run as the last step. An error becomes a notice, and changes no verdict."""
        self.write_reports()
        if self.record is None or self.directory is None or invocation.unrecorded:
            return
        examination = self.examination
        kept, desired = without_secrets(self.record, examination), examination.desired.values()
        why = sign(self.directory, kept, self.evidence, examination.states, desired, self.signer)
        self.notices += [why] if why else []

    def close(self) -> None:
        """Finish the record, whatever ended the run, then the ledger. A run without its record has failed."""
        if self.record is None or (self.record.finished_at is not None and not invocation.unrecorded):
            return
        self.examination.compare()
        self.record.finished_at = self.record.finished_at or now()
        self.record.verdict = self.verdict()
        self.record.ended_by = invocation.error
        self.save()
        self._remember()
        after_run(self.record, self.examination, [host.name for host in self.state.inventory], self.notices.append)
        if invocation.unrecorded:
            self.record.verdict = Verdict.FAIL
        if self.notes is not None:
            self.notes.note("verdict", self.record.verdict)
            self.notes.close()
        for give_back in self.closing:
            give_back()

    def end(self) -> RunEnd:
        """Close the run, and return what its end shows. A check and a run that reached no node are kept too."""
        kept = progress(self.state)
        if self.record is None and not (invocation.dry or kept.evidence):
            if any(deploy.checks for deploy in invocation.deploys):
                keep_check(self.state, self.examination, self.verdict(), ledger=False)
            elif not self.verdict().passes:
                try:
                    self.open_run()
                except PyinfraError as error:
                    self.notices.append(str(error))
        self.close()
        evidence = "none: the record could not be written" if invocation.unrecorded else ""
        return RunEnd(
            examination=self.examination,
            verdict=self.record.verdict if self.record else self.verdict(),
            record=self.record,
            evidence=evidence or (str(self.directory.path) if self.directory else kept.evidence),
            busy=busy_after(self.jobs),
            notices=self.notices,
            out=self.out,
        )

    def _remember(self) -> None:
        """Keep the run in the ledger; a failure becomes a notice, here and in the record."""
        record, directory = self.begun
        why = keep(directory, without_secrets(record, self.examination), self.examination.states, self.evidence)
        if why != record.not_in_ledger:
            record.not_in_ledger = why
            self.save()
        if why:
            self.notices.append(why)

    def verdict(self) -> Verdict:
        """Return the verdict in which run.json, pyinfra's exit code and that of `shakedown run` agree: a host that
        pyinfra has failed is never less than unknown here, and drift alone fails no host."""
        verdicts = [finding.verdict for finding in self.examination.all_findings()]
        verdicts += [gate.verdict for gate in self.record.gates] if self.record else []
        if self.record and self.record.isolation:
            result = self.record.isolation.result
            verdicts.append(result.verdict if result else Verdict.UNKNOWN)
        runs = [self.run_of(host.name) for host in self.hosts]
        verdicts += [run.verdict or Verdict.FAIL for run in runs if run.fails]
        if self.record and self.record.rolling and not self.record.rolling.complete:
            verdicts.append(Verdict.FAIL)
        judged = {gate.job for gate in self.record.gates} if self.record else set()
        excluded = self.excluded
        begun = [job.name for job in self.jobs if job.node not in excluded]
        if self.record and self.record.soak and invocation.interrupted and not invocation.error:
            verdicts.append(Verdict.UNKNOWN)  # it goes on with the same command
        elif (self.record and not judged.issuperset(begun)) or invocation.interrupted or invocation.error:
            verdicts.append(Verdict.FAIL)
        return worst(verdicts)

    def outcomes(self) -> list[NodeResult]:
        """Every node's part in every job that has ended, in the order of the jobs."""
        return [node for job in self.jobs if job.result for node in job.result.nodes]

    def parts(self) -> dict[str, tuple[Verdict, str]]:
        """Return how the parts of nodes ended in the trainings that did not complete."""
        trainings = [(job.name, job.result) for job in self.jobs if job.result and not job.trials]
        return parts_of(trainings, self.record.diagnosis if self.record else None)

    def exclude(self, name: str, why: str, verdict: Verdict) -> None:
        """Exclude a node from what follows; the first reason counts."""
        if self.notes and not self.run_of(name).excluded:
            self.notes.note("decision", f"goes no further: {why}", node=name, verdict=verdict)
        self.run_of(name).exclude(why, verdict)

    def fail(self, host: Host, why: str, findings: list[Finding] | None = None) -> None:
        """Fail one host for pyinfra, with the reason as its message, and exclude it from what follows."""
        for finding in findings or []:
            host.log_styled(terminal.finding_line(finding), fg="red", log_func=logger.error)
        if not findings:
            host.log_styled(why, fg="red", log_func=logger.error)
        self.exclude(host.name, why, worst([f.verdict for f in findings]) if findings else Verdict.FAIL)
        self.save_soon()
        if host in self.state.active_hosts:
            self.state.fail_hosts({host})


_sessions: WeakKeyDictionary[State, Session] = WeakKeyDictionary()
_opening = RLock()


def session() -> Session:
    """Return the session of the current pyinfra state; examine all nodes the first time."""
    state: State = ctx_state.get()
    with _opening:
        if (current := _sessions.get(state)) is None:
            current = enter(Session(state, examine(state)))
            invocation.examined = bool(current.hosts)
            fixable = {host.name: current.fixable(host.name) for host in current.hosts}
            show_findings(current.out, current.examination, fixable)
        return current


def call_once(
    name: str,
    work: Callable[[Session], None],
    passes: Callable[[Session, Host], bool] = lambda current, host: True,
) -> None:
    """Declare a call: the first host to get there does the `work`, once, and a host fails that does not pass then."""

    def function(state: State, host: Host) -> bool:
        current = session()
        current.once(name, lambda: work(current))
        return passes(current, host)

    python.call(name=name, function=function)


def opened(state: State) -> Session | None:
    """Return the session of a pyinfra state; None: its nodes were not examined."""
    return _sessions.get(state)


def enter(current: Session) -> Session:
    """Make a session that of its pyinfra state, and have the run end through it."""
    _sessions[current.state] = current
    kept = progress(current.state)
    kept.jobs, kept.close, kept.write_reports = current.jobs, current.end, current.publish
    return current
