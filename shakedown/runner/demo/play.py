"""The whole path over a simulated rack, through the product's own checks, plan, supervision, gates and report."""

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Literal

from shakedown import ledger as memory
from shakedown.checks.examination import Examination, Reading
from shakedown.common.lists import grouped
from shakedown.evidence.diagnosis.origin import parts_of as ends_of
from shakedown.evidence.results import JobResult
from shakedown.isolation import NEEDS_NUMPY
from shakedown.jobs.launch import Event, Job
from shakedown.jobs.plan import PlanError, render
from shakedown.jobs.supervise import run_job
from shakedown.runner.demo.nodes import Rack, Turns, parts_of
from shakedown.runner.demo.scenario import INVENTORY, SIMULATED, Scenario
from shakedown.runner.training import plan_of, take_result
from shakedown.runs.diagnosis import diagnose
from shakedown.runs.directory import Evidence, JobRecord, RunDirectory, RunNode, RunRecord, desired_digest, new_run_id
from shakedown.runs.isolation import Group, Isolation, Problem, Training
from shakedown.runs.judging import judge_job, verdict_of
from shakedown.runs.watch.notes import Notes
from shakedown.state.findings import Finding, Verdict, worst

_TRAINING_S = 180.0  # what a training of the search is said to take


@dataclass
class Demo:
    """One simulated run in its directory, below `folder`."""

    scenario: Scenario
    folder: Path
    seed: int
    on_event: Callable[[Event], None] = lambda event: None
    examination: Examination = field(init=False)
    evidence: dict[str, Evidence] = field(default_factory=dict)
    repaired: dict[str, list[str]] = field(default_factory=dict)  # node -> findings
    problem: str = ""  # why there was no job

    def __post_init__(self) -> None:
        self.examination = Examination(self.scenario.desired(), dict.fromkeys(self.scenario.nodes, "rack"))

    def examine(self) -> list[Finding]:
        """Read the simulated nodes and return all findings."""
        for node, state in self.scenario.states(self.repaired).items():
            silent = Reading(why="no answer for 10 s: no route to host", tried=node)
            self.examination.keep(node, Reading(state) if state else silent)
        self.examination.judge()
        return self.examination.all_findings()

    def repair(self) -> dict[str, list[str]]:
        """Take away the drift that an operation would repair; return the nodes of each finding."""
        for node in self.scenario.nodes:
            self.repaired[node] = [finding.name for finding in self.examination.fixable(node)]
        self.examine()
        return grouped((name, node) for node in self.scenario.nodes for name in self.repaired[node])

    def train(self) -> RunRecord:
        """Run the job over the nodes that are fit, and judge it."""
        turns = Turns()
        record = RunRecord(
            run_id=f"{SIMULATED}-{new_run_id(turns.at(turns.now()))}",
            simulated=True,
            started_at=_text(turns),
            inventory=INVENTORY,
            desired_digest=desired_digest(dict(self.examination.desired)),
            findings=self.examination.all_findings(),
        )
        directory = RunDirectory.create(record.run_id, self.folder)
        for node, state in self.examination.states.items():
            directory.write_state(node, state)
        record.nodes = [self._node(node, record, None) for node in self.scenario.nodes]
        directory.save(record)
        with closing(Notes(directory.path, clock=turns.day)) as notes:
            notes.begin(record.inventory, record.findings)
            result = self._job(record, directory, notes, turns)
            record.finished_at = _text(turns)
            self._conclude(record, directory, result)
            notes.gates(record.gates)
            notes.note("verdict", record.verdict)
        return record

    def _job(self, record: RunRecord, directory: RunDirectory, notes: Notes, turns: Turns) -> JobResult | None:
        kept = JobRecord()
        record.jobs.append(kept)
        try:
            plan = plan_of(self.examination, record.run_id)
        except PlanError as error:
            kept.error = self.problem = str(error)
            return None
        kept.plan = plan
        notes.plan(kept.name, plan)
        noted = notes.taking(kept.name)

        def take(event: Event) -> None:
            noted(event)
            self.on_event(event)

        directory.write("plan.txt", f"{SIMULATED}\n{render(plan, kept.name)}\n")
        rack = Rack(turns, parts_of(plan, self.scenario, self.seed))
        job = Job(lambda: plan, directory.logs, plan=plan, on_event=take)
        result = turns.run(partial(run_job, job, rack, scheduler=turns, clock=turns))
        self.evidence[kept.name] = Evidence()
        take_result(kept, self.evidence[kept.name], result, directory)
        return result

    def _conclude(self, record: RunRecord, directory: RunDirectory, result: JobResult | None) -> None:
        for kept in record.jobs:
            judgement = judge_job(directory, kept, self.evidence.get(kept.name, Evidence()))
            record.gates += judgement.gates
            kept.iterations, kept.figures = judgement.iterations, judgement.figures
            kept.telemetry, kept.stragglers = judgement.telemetry, judgement.stragglers
        record.diagnosis = diagnose(record, self.evidence, directory)
        ends = ends_of([(kept.name, result) for kept in record.jobs if result], record.diagnosis)
        record.nodes = [self._node(node, record, ends.get(node)) for node in self.scenario.nodes]
        self._search(record)
        record.verdict = verdict_of(record, record.gates)
        directory.save(record, self.evidence)
        try:
            entry = memory.entry.entry_of(record, self.examination.states, directory, self.evidence)
        except memory.LedgerError as error:  # an extra: the rest of the run shows the same without it
            self.on_event(Event("phase", f"not in the ledger: {error}"))
        else:
            memory.store.open_ledger(self.folder / "ledger.sqlite").put(entry)

    def _node(self, node: str, record: RunRecord, end: tuple[Verdict, str] | None) -> RunNode:
        blockers = [finding.name for finding in self.examination.blockers(node)]
        part = "unreached" if node not in self.examination.states else "excluded" if blockers else "trained"
        why = f"failed before the job: {', '.join(blockers)}" if blockers else end[1] if end else ""
        kept = record.jobs[0] if record.jobs else JobRecord()
        plan, logs = kept.plan, kept.logs.get(node, [])
        trained = part == "trained" and plan is not None and bool(logs)
        return RunNode(
            name=node,
            group=self.examination.groups[node],
            verdict=worst([self.examination.verdict_of(node), *([end[0]] if end else [])]),
            part=part if part != "trained" or trained else "examined",
            why=why,
            stopped=end is not None and end[0] == Verdict.OK and bool(end[1]),
            changes=self.repaired.get(node, []),
            logs=logs,
        )

    def _search(self, record: RunRecord) -> None:
        """Search for the bad node where the run has failed and nothing names one."""
        plan, found = record.jobs[0].plan, record.diagnosis
        faults = [(node, fault) for node in self.scenario.nodes for fault in self.scenario.of_node(node)]
        bad = {node for node, fault in faults if fault.in_job and not fault.loss}
        named = found is not None and bool(found.origin or found.common)
        if plan is None or named or not bad or verdict_of(record, record.gates) == Verdict.OK:
            return
        try:
            from shakedown.isolation.strategy import search  # numpy, an extra
        except ModuleNotFoundError:
            self.on_event(Event("phase", NEEDS_NUMPY))
            return

        def train(groups: Sequence[Group]) -> list[Training]:
            outcomes: list[Literal["fail", "pass"]] = ["fail" if bad & {*group.nodes} else "pass" for group in groups]
            pairs = zip(groups, outcomes, strict=True)
            return [Training(group=group, outcome=outcome, seconds=_TRAINING_S) for group, outcome in pairs]

        nodes = [node.name for node in plan.nodes]
        record.isolation = search(Isolation(problem=Problem(nodes=nodes, failed=True)), train)


def _text(turns: Turns) -> str:
    return turns.at(turns.now()).isoformat(timespec="seconds")
