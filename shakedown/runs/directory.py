"""The run directory: everything one run saw, measured and decided, enough to judge it again offline.

    runs/<id>/run.json          the record (schema below, versioned)
    runs/<id>/evidence.json     what the gates of each job were given besides its logs: exit codes, counters before and
                                after, the earlier runs that the figures are compared with, and of each log how much
                                there was on the node, how much was kept, its SHA-256
    runs/<id>/iterations.jsonl  one JSON object per iteration line of the job over all nodes
    runs/<id>/plan.txt          the launch plans as `shakedown plan` prints them
    runs/<id>/states/NODE.json  each node's state before the run
    runs/<id>/isolation.json    the search for bad nodes, round by round (shakedown/isolation), where there was one
    runs/<id>/isolation/*       the logs of its trainings, by round and group, as logs/ has them
    runs/<id>/logs/NODE/*       each node's logs of the job over all nodes, the job's own output (leader.log) first
    runs/<id>/each/NODE/*       the same of the nodes' own jobs
    runs/<id>/trials/NODE/*     of the trials of each node by itself
    runs/<id>/pairs/NODE/*      of the rounds between nodes
    runs/latest                 link to the newest

NODE is the node's name as `shakedown.common.text.file_name` spells it. All of it is its owner's alone (0700, 0600).
Files are written whole or not at all (written beside, then renamed), so an interrupted run leaves a record that reads.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import stat
import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    FailFast,
    ValidationError,
    computed_field,
    field_validator,
    model_validator,
)

from shakedown import gates
from shakedown.common import private
from shakedown.common import secrets as masking
from shakedown.common.runs_folder import runs_folder
from shakedown.common.text import file_name, load_json, printable, shallow
from shakedown.desired import DesiredState
from shakedown.desired.models import EACH, NO_PROMISE, TOGETHER, Benchmark
from shakedown.evidence.diagnosis.model import Diagnosis
from shakedown.evidence.results import Failure
from shakedown.evidence.stragglers.model import Stragglers
from shakedown.evidence.telemetry.summary import NodeTelemetry
from shakedown.evidence.telemetry.timing import Timing
from shakedown.gates import Gate, NodeLog, Observed
from shakedown.gates.alone import Alone
from shakedown.gates.baselines.model import Baseline, Past
from shakedown.gates.benchmark_run import judge as judge_benchmark
from shakedown.gates.benchmark_run import not_run
from shakedown.gates.judgement import Judgement, judge, judge_measured, never_started
from shakedown.gates.model import some
from shakedown.gates.observed import Counters, Expected, JobEnd, LogCopies
from shakedown.jobs.benchmark.plan import REPORT
from shakedown.jobs.benchmark.results import Results, read
from shakedown.jobs.job import job_name
from shakedown.jobs.launch import LaunchPlan
from shakedown.logs.figures import Figures, measure
from shakedown.logs.kept_logs import LEADER, KeptLog
from shakedown.logs.log import Iteration
from shakedown.node.owners import closed
from shakedown.runs import copies
from shakedown.runs.isolation import Isolation
from shakedown.runs.rolling.model import Rolling
from shakedown.state.findings import Finding, Verdict, worst
from shakedown.state.node import NodeState
from shakedown.trials.gates import gates as trial_gates
from shakedown.trials.judge import judge_record
from shakedown.trials.models import FRESH, NODES, Reading, TrialsRecord
from shakedown.trials.reading import read_log

SCHEMA_VERSION = 1
_Model = TypeVar("_Model", bound=BaseModel)
_DOCUMENT_LIMIT = 1 << 28  # bytes of run.json or evidence.json: a hundred thousand iterations are 40 MB


class RunNode(BaseModel):
    """One node's part in the run."""

    model_config = ConfigDict(extra="forbid")

    name: str
    verdict: Verdict  # of its worst finding, and of its part in the job
    part: Literal["trained", "measured", "excluded", "unreached", "examined"]
    why: str = ""  # why it was excluded, or how its part in the job ended
    stopped: bool = False  # its part ended since the failure began on another node: no failure of this one
    node_rank: int | None = None
    exit_code: int | None = None  # of the job's leader on this node; None: it gave none, or the controller stopped it
    changes: list[str] = []  # operations that changed something, in order
    logs: list[str] = []  # relative to the run directory; the job's own output first
    new_host_key: str = ""  # its SSH host key, where it was taken for the first time in this run
    notes: list[str] = []  # what is left on the node, logs that could not be fetched

    @property
    def failed(self) -> bool:
        """Return whether the node was lost, or its part ended badly on the node itself."""
        return self.part in ("excluded", "unreached") or bool(self.why and not self.stopped)

    @field_validator("part", mode="before")
    @classmethod
    def _former_name(cls, part: object) -> object:
        """Older records say "left out"."""
        return "excluded" if part == "left out" else part


class JobRecord(BaseModel):
    """One job of the run: over all nodes that were ready, or of one node by itself."""

    model_config = ConfigDict(extra="forbid")

    node: str | None = None  # the node that had the job for itself
    plan: LaunchPlan | None = None  # None: it could not be made
    trials: str = ""  # the kind of a job of trials; empty: it trains
    benchmark: Benchmark | None = None  # what was asked for, where the job is a benchmark: it has gates of its own
    error: str = ""  # why the job was never begun
    ended_by: str = ""  # the kind of the failure that ended it (evidence.results.Failure): it says whose that is
    logs: dict[str, list[str]] = {}  # node -> its logs, relative to the run directory; the job's own output first
    iterations: Annotated[list[Iteration], FailFast()] = []
    figures: Figures | None = None
    baselines: dict[str, Baseline] = {}  # metric -> what earlier runs say of it
    telemetry: dict[str, NodeTelemetry] = {}  # node -> its samples, summed up
    stragglers: Stragglers | None = None  # nodes that need longer than others; None: not compared

    @property
    def name(self) -> str:
        """As its gates and its evidence name it."""
        return job_name(self.node, self.trials)


_OF_THE_JOB = ("plan", "iterations", "figures")


class RunRecord(BaseModel):
    """run.json. Readers must refuse a schema_version they do not know.

    `plan`, `iterations` and `figures` at the top are those of the job over all nodes, as they were before a run could
    have several; a record from then is read as one with that job.
    """

    model_config = ConfigDict(extra="forbid")

    schema_version: int = SCHEMA_VERSION
    run_id: str
    started_at: str  # UTC, ISO 8601
    finished_at: str | None = None  # None: still running, or killed
    inventory: str
    desired_digest: str  # SHA-256 of the desired states of all nodes
    verdict: Verdict = Verdict.UNKNOWN
    nodes: Annotated[list[RunNode], FailFast()] = []
    findings: Annotated[list[Finding], FailFast()] = []
    gates: Annotated[list[Gate], FailFast()] = []
    jobs: Annotated[list[JobRecord], FailFast()] = []  # in the order in which they were begun
    diagnosis: Diagnosis | None = None  # what it died of and where that began; None: it did not, or nobody can say
    kind: Literal["run", "drift"] = "run"  # drift: a check that changed nothing, with no job to be judged
    ended_by: str = ""  # the error that ended the run before its end, where that was none of a node
    not_in_ledger: str = ""  # why the ledger could not be written at the end of the run
    trials: TrialsRecord | None = None
    isolation: Isolation | None = None  # the search for bad nodes, where there was one
    rolling: Rolling | None = None  # how far a run in batches came

    @computed_field  # type: ignore[prop-decorator]
    @property
    def plan(self) -> LaunchPlan | None:
        return self.job(TOGETHER).plan

    @computed_field  # type: ignore[prop-decorator]
    @property
    def iterations(self) -> list[Iteration]:
        return self.job(TOGETHER).iterations

    @computed_field  # type: ignore[prop-decorator]
    @property
    def figures(self) -> Figures | None:
        return self.job(TOGETHER).figures

    def job(self, name: str) -> JobRecord:
        """The job of that name; an empty one where the run has none."""
        return next((job for job in self.jobs if job.name == name), JobRecord())

    @model_validator(mode="before")
    @classmethod
    def _read(cls, document: Any) -> Any:
        if not isinstance(document, dict):
            return document
        own = {key: value for key, value in document.items() if key not in _OF_THE_JOB}
        if "jobs" in own or document.get("plan") is None:
            return own
        nodes = document.get("nodes")
        named = [node for node in nodes if isinstance(node, dict)] if isinstance(nodes, list) else []
        logs = {node["name"]: node["logs"] for node in named if node.get("logs") and isinstance(node.get("name"), str)}
        return {**own, "jobs": [{**{key: document[key] for key in _OF_THE_JOB if key in document}, "logs": logs}]}


class Evidence(BaseModel):
    """One job's part of evidence.json: the gates' input besides the logs and the plan."""

    model_config = ConfigDict(extra="forbid")

    exit_codes: dict[str, int | None] = {}  # per node
    stopped_nodes: list[str] = []  # which the controller stopped with the job: their exit codes are the stop's
    counters_before: dict[str, dict[str, Any]] = {}  # node -> counter -> value or unreadable
    counters_after: dict[str, dict[str, Any]] = {}
    logs: dict[str, list[KeptLog]] = {}  # per node, the job's own output first; paths relative to the run directory
    stopped: str | None = None  # why the job was stopped before its end, with the node and the line that were first
    started: bool = True  # whether any rank was: of a job that did not start there is one thing to say
    failures: Annotated[list[Failure], FailFast()] = []  # all that the controller saw until then, in the order of time
    running: dict[str, list[str]] = {}  # per node, the processes with their states when it began to end
    past: Past | None = None  # the earlier runs that the figures were compared with; None: with none
    alone: Alone | None = None  # what the nodes did each by itself, where the job is held against it
    left: dict[str, list[str]] = {}  # per node, what of the job was left running there, or may have been
    timing: Timing = Timing()  # when its iterations came, and how the nodes' clocks stand to the controller's


def new_run_id() -> str:
    """Time (UTC) and a short random part: sorts by time, unique across controllers."""
    return f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{secrets.token_hex(3)}"


def now() -> str:
    """UTC, ISO 8601, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def desired_digest(desired: dict[str, DesiredState]) -> str:
    """SHA-256 over all desired states: the same digest means the same promises. Secrets are left out of it: nobody can
    try them against it. So are reports, batches and how images come, which promise nothing of a node."""
    states = {name: state.model_dump(mode="json", exclude=NO_PROMISE) for name, state in desired.items()}
    text = json.dumps(masking.masked(states), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def why_none_can_be_kept(root: Path | None = None) -> str:
    """What stands in the way of runs in the folder that is to hold them, with the remedy; empty: nothing does. Tried by
    writing where it is, or where it would be made, and leaves nothing there."""
    root = root or runs_folder()
    there = next(folder for folder in (root.absolute(), *root.absolute().parents) if os.access(folder, os.F_OK))
    try:
        with tempfile.TemporaryFile(dir=there):
            return ""
    except OSError as error:
        why = f"nothing can be written in {there} ({error.strerror})"
        return f"no run can be kept in {root}, since {why}: set $SHAKEDOWN_RUNS to another folder"


def find_run(name: str, root: Path | None = None) -> Path:
    """The directory of a run, by its id, by a part that only its id begins with, as `latest`, or by its path (that of
    its run.json too). Raises ValueError that says what there is."""
    root = root or runs_folder()
    path = Path(name)
    found = _runs_in(root)
    if name in found:
        return root / name
    if name == "latest":
        return root / _latest(root, found)
    begin = [run for run in found if name and run.startswith(name)]
    if len(begin) == 1:
        return root / begin[0]
    if begin:
        raise ValueError(f"{name}: {len(begin)} runs in {root} begin so: {some(begin)}")
    if path.name == "run.json" and path.is_file():
        return path.parent
    if (path / "run.json").is_file():
        return path
    if path.is_dir():
        raise ValueError(
            f"{name}: no run directory, for it has no run.json; of logs that lie in it give each. {_there_are(root)}"
        )
    if path.exists():
        raise ValueError(f"{name}: a file and no run; a log is judged with: shakedown judge {name}. {_there_are(root)}")
    raise ValueError(f"{name}: no such file, and no such run. {_there_are(root)}")


def own(path: Path, *names: str) -> None:
    """Raises ValueError where another user could have written these files of a run directory: a run that goes on from
    it would leave out what they say is done. Raises OSError."""
    for each in (path, *(path / name for name in names)):
        found = each.stat() if each is path else each.lstat()
        if not closed(found):
            mode = stat.S_IMODE(found.st_mode)
            why = f"it belongs to uid {found.st_uid} and has mode {mode:04o}, so others than you could have written it"
            raise ValueError(f"{each}: {why}: look at it, and go on from a copy of your own")


def run_ids(root: Path | None = None) -> list[str]:
    """The runs that are kept, the newest first."""
    return _runs_in(root or runs_folder())


def _runs_in(root: Path) -> list[str]:
    """The ids of the runs in a folder, the newest first."""
    try:
        folders = [entry for entry in root.iterdir() if entry.is_dir() and not entry.is_symlink()]
    except OSError:
        return []
    return sorted((folder.name for folder in folders if (folder / "run.json").is_file()), reverse=True)


def _latest(root: Path, found: list[str]) -> str:
    try:
        name = str((root / "latest").readlink())
    except OSError:
        name = found[0] if found else ""
    if name in found:
        return name
    raise ValueError(f"latest: {f'it is {name}, which is no run' if name else 'no such run'}. {_there_are(root)}")


def _there_are(root: Path) -> str:
    try:
        next(root.iterdir(), None)
    except FileNotFoundError:
        pass
    except OSError as error:  # another user's, most likely: a run is its owner's alone
        return f"{root} cannot be read: {error.strerror}"
    found = _runs_in(root)
    return f"In {root} there are {some(found)}" if found else f"In {root} there are none ($SHAKEDOWN_RUNS says where)"


class RunDirectory:
    """The files of one run. Raises OSError with the path when a file cannot be written."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def create(cls, run_id: str, root: Path | None = None, latest: bool = True) -> RunDirectory:
        """Make the directory and, where it is a run and no mere check, point `latest` to it."""
        root = root or runs_folder()
        directory = cls(root / run_id)
        private.make_folders(root)
        directory.path.mkdir(0o700)
        private.make_folders(directory.logs)
        if not latest:
            return directory
        link = root / f".latest-{run_id}"
        link.symlink_to(run_id)
        link.replace(root / "latest")
        return directory

    @property
    def logs(self) -> Path:
        """Of the job over all nodes."""
        return self.path / "logs"

    @property
    def isolation(self) -> Path:
        """Of the trainings of a search for bad nodes."""
        return self.path / "isolation"

    @property
    def logs_of_each(self) -> Path:
        """Of the nodes' own jobs."""
        return self.path / EACH

    def write(self, name: str, text: str) -> None:
        """Write a file whole or not at all."""
        target = self.path / name
        beside = target.with_name(f".{target.name}.part")
        try:
            beside.unlink(missing_ok=True)
            with private.create(beside) as file:
                rest = memoryview(text.encode("utf-8", "backslashreplace"))
                while rest:
                    rest = rest[file.write(rest) :]
                os.fsync(file.fileno())
            beside.replace(target)
        except OSError:
            beside.unlink(missing_ok=True)
            raise

    def save(self, record: RunRecord, evidence: Mapping[str, Evidence] | None = None) -> None:
        """Write run.json, the iterations, and the evidence of each job."""
        self.write("run.json", record.model_dump_json(indent=1) + "\n")
        if record.iterations:
            lines = (iteration.json() for iteration in record.iterations)
            self.write("iterations.jsonl", "".join(f"{line}\n" for line in lines))
        if evidence is not None:
            jobs = {name: each.model_dump(mode="json") for name, each in evidence.items()}
            self.write("evidence.json", json.dumps({"jobs": jobs}, indent=1) + "\n")

    def load(self) -> RunRecord:
        """Read run.json. Raises ValueError for a file that is cut short or of another schema, OSError if unreadable."""
        path = self.path / "run.json"
        return _validated(RunRecord, _versioned(path), path)

    def load_state(self, node: str) -> NodeState:
        """A node's state before the run; the same errors as `load`."""
        path = self.path / "states" / f"{file_name(node)}.json"
        return _validated(NodeState, read_document(path), path)

    def load_isolation(self) -> Isolation:
        """Read isolation.json; the same errors as `load`."""
        path = self.path / "isolation.json"
        return _validated(Isolation, read_document(path), path)

    def load_evidence(self) -> dict[str, Evidence]:
        """Read evidence.json, by the jobs' names; the same errors as `load`. Without jobs it is that of one, over all
        nodes."""
        path = self.path / "evidence.json"
        document = read_document(path)
        jobs = document.get("jobs", {TOGETHER: document}) if isinstance(document, dict) else None
        if not isinstance(jobs, dict):
            raise ValueError(f"{path}: expected the evidence of each job")
        return {name: _validated(Evidence, each, path) for name, each in jobs.items()}

    def lacking(self, record: RunRecord) -> str:
        """Why a run that is over cannot be judged again, though it was judged; empty: it can."""
        if record.finished_at is None or not record.jobs:
            return ""
        try:
            self.load_evidence()
        except (OSError, ValueError) as error:
            return printable(str(error), 500)
        return ""


def judge_run(
    directory: RunDirectory,
    record: RunRecord,
    evidence: Mapping[str, Evidence],
    judgements: Sequence[Judgement] | None = None,
) -> list[Gate]:
    """Apply the gates of every job of a run again to what the run directory holds. `judgements`: those of its jobs,
    from who has them already.

    Raises ValueError for a run that ended before any plan was made.
    """
    of_jobs = judge_jobs(directory, record, evidence) if judgements is None else judgements
    judged = [gate for judgement in of_jobs for gate in judgement.gates]
    return [*judged, *(trial_gates(trials) if (trials := judge_trials(directory, record, evidence)) else [])]


def judge_jobs(directory: RunDirectory, record: RunRecord, evidence: Mapping[str, Evidence]) -> list[Judgement]:
    """The gates of each job, with what they rest on; the same errors as `judge_run`."""
    if record.kind == "drift":
        raise ValueError(f"{directory.path}: a drift check has no job to be judged: shakedown report shows it")
    if not record.jobs and record.isolation is not None:
        raise ValueError(f"{directory.path}: a search for bad nodes is judged as it goes: shakedown report shows it")
    if not record.jobs:
        raise ValueError(f"{directory.path}: it has no plan yet, or ended before it had one: shakedown report shows it")
    return [judge_job(directory, job, evidence.get(job.name, Evidence())) for job in record.jobs]


def judge_trials(directory: RunDirectory, record: RunRecord, evidence: Mapping[str, Evidence]) -> TrialsRecord | None:
    """The trials of a run, read again from its logs and judged; None where it has none."""
    if record.trials is None:
        return None
    readings: list[Reading] = []
    incomplete: dict[str, dict[str, str]] = defaultdict(dict)
    for job in record.jobs:
        kept = evidence.get(job.name, Evidence())
        if not job.trials or job.plan is None:
            continue
        for node in job.plan.nodes:
            logs = {log.name: log for log in kept.logs.get(node.name, [])}
            text, why = copies.text_of(directory.path, logs.get(LEADER))
            found = read_log(node.name, (text or "").splitlines())
            fresh = job.trials in FRESH and record.trials.confirm
            readings += [each.model_copy(update={"fresh": fresh}) for each in found.readings]
            why = why or found.wrong or ("" if found.over else kept.stopped or "its program did not come to its end")
            if why:
                incomplete[job.trials][node.name] = why
    whole = record.trials.model_copy(update={"readings": readings, "incomplete": dict(incomplete)})
    return judge_record(whole, past_by_node(record, evidence))


def past_by_node(record: RunRecord, evidence: Mapping[str, Evidence]) -> dict[str, Past]:
    """What the ledger knew of each node's trials by itself when the run ended."""
    kept = {job.node: evidence[job.name] for job in record.jobs if job.trials == NODES and job.name in evidence}
    return {node: each.past for node, each in kept.items() if node and each.past}


def verdict_of(record: RunRecord, judged: Sequence[Gate]) -> Verdict:
    """What a run comes to by its gates, as they are judged now, and by what its record says of the nodes. One that took
    no part, and a run that nobody finished, are never better than unknown."""
    verdicts = [finding.verdict for finding in record.findings] + [gate.verdict for gate in judged]
    verdicts += [Verdict.UNKNOWN for node in record.nodes if node.part in ("excluded", "unreached")]
    if record.finished_at is None or not judged:
        verdicts.append(Verdict.UNKNOWN)
    return worst(verdicts)


def judge_job(directory: RunDirectory, job: JobRecord, evidence: Evidence) -> Judgement:
    """Apply the gates to one job: at its end, and again whenever somebody asks."""
    if job.benchmark is not None:
        judgement = _judge_benchmark(directory, job, job.benchmark, evidence)
    elif job.plan is None:
        judgement = never_started(job.error or "its plan was never made")
    elif job.trials:
        judgement = judge_measured(
            job.plan,
            _logs_of(directory, job, evidence),
            _end(evidence),
        )
    else:
        judgement = judge(
            job.plan,
            LogCopies(_logs_of(directory, job, evidence), copies.changed(directory.path, evidence.logs)),
            _end(evidence),
            Counters(evidence.counters_before, evidence.counters_after),
            Expected(past=evidence.past, alone=evidence.alone),
            copies.watched(directory.path, evidence.logs, evidence.timing),
        )
    of_this = {"job": job.name, "node": job.node}
    judged = list(judgement.gates)
    if any(evidence.left.values()) or (
        evidence.left and len(judged) > 1
    ):  # of what never ran there is one thing to say
        judged += gates.judge(Observed(end=JobEnd(left=evidence.left)))
    return replace(judgement, gates=[gate.model_copy(update=of_this) for gate in judged])


def _end(evidence: Evidence) -> JobEnd:
    return JobEnd(
        exit_codes=evidence.exit_codes,
        stopped=evidence.stopped,
        started=evidence.started,
        stopped_nodes=evidence.stopped_nodes,
    )


def results_of(directory: RunDirectory, job: JobRecord, evidence: Evidence) -> tuple[Results, str]:
    """What a benchmark's log and report say, and why they are not whole."""
    node = job.node or ""
    kept = {log.name: log for log in evidence.logs.get(node, [])}
    if [log.path for log in kept.values()] != job.logs.get(node, []):
        return Results(), "run.json and evidence.json do not name the same logs of it"
    log, why = copies.text_of(directory.path, kept.get(LEADER))
    report, why_report = copies.text_of(directory.path, kept.get(REPORT))
    return read(log, report), "; ".join(filter(None, (why, why_report)))


def _judge_benchmark(directory: RunDirectory, job: JobRecord, wanted: Benchmark, evidence: Evidence) -> Judgement:
    node = job.node or ""
    if job.error:
        judged = not_run(node, job.error)
    else:
        results, incomplete = results_of(directory, job, evidence)
        judged = judge_benchmark(node, results, evidence.exit_codes.get(node), wanted, incomplete)
        judged = [*not_run(node, evidence.stopped), *judged] if evidence.stopped else judged
    return Judgement(judged, [], measure([]), [])


def _logs_of(directory: RunDirectory, job: JobRecord, evidence: Evidence) -> dict[str, NodeLog | None]:
    return {node.name: log_of(directory, node.name, job, evidence) for node in job.plan.nodes} if job.plan else {}


def log_of(directory: RunDirectory, node: str, job: JobRecord, evidence: Evidence) -> NodeLog | None:
    """The job's own output on a node. None: there was none; one that is not what was fetched says so."""
    named, kept = job.logs.get(node, []), evidence.logs.get(node, [])
    if not named and not kept:
        return None
    if [log.path for log in kept] != named:
        return NodeLog(incomplete="run.json and evidence.json do not name the same logs of it")
    return copies.read_kept(directory.path, kept[0])


_EVIDENCE = "without it (exit codes, counters) nothing can be judged again; shakedown report shows what is recorded"
_WITHOUT = {  # what it means that a file of a run is not there
    "evidence.json": f"the run was never judged, or this is no whole copy of it: {_EVIDENCE}",
    "isolation.json": "the run has no search for bad nodes, or this is no whole copy of it",
    "states": "the node was never reached, or this is no whole copy of the run",
}
_RESTORE = "take it from an archive (shakedown bundle) or from another copy of the run"


def read_document(path: Path) -> Any:
    """A JSON document of a run directory. Raises ValueError, OSError (FileNotFoundError) with its path, what that means
    and the remedy."""
    if not path.is_file():
        try:
            path.stat()
        except FileNotFoundError:
            why = _WITHOUT.get(path.name) or _WITHOUT.get(path.parent.name) or "this is no whole copy of the run"
            raise FileNotFoundError(f"{path}: it is not there: {why}") from None
        raise ValueError(f"{path}: it is no file: {_RESTORE}")
    with path.open("rb") as file:
        content = file.read(_DOCUMENT_LIMIT + 1)
    try:
        return shallow(load_json(content, _DOCUMENT_LIMIT))
    except ValueError as error:
        raise ValueError(f"{path}: not a whole JSON document ({error}): {_RESTORE}") from error


def _validated(model: type[_Model], document: Any, path: Path) -> _Model:
    """The document as a model. Raises ValueError with the first thing that is wrong: a file from elsewhere may hold
    millions, and names that would move a terminal."""
    try:
        return model.model_validate(document)
    except ValidationError as error:
        first, *others = error.errors(include_input=False, include_url=False)
        where = printable(".".join(map(str, first["loc"])), 200)
        more = f" (and {len(others)} more)" if others else ""
        raise ValueError(f"{path}: {where}: {printable(first['msg'], 200)}{more}") from None


def _versioned(path: Path) -> Any:
    document = read_document(path)
    version = document.get("schema_version") if isinstance(document, dict) else None
    if version != SCHEMA_VERSION:
        said = printable(repr(version), 80)
        raise ValueError(f"{path}: schema_version {said}; this shakedown reads {SCHEMA_VERSION}")
    return document
