"""The run directory: everything one run saw, measured and decided, enough to judge it again offline; and its records,
which are what run.json and evidence.json hold.

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
    runs/<id>/trials/NODE/*     of the trials of each node alone
    runs/<id>/pairs/NODE/*      of the rounds between nodes
    runs/<id>/soak/STAGE/NODE/* of the stages of a burn-in
    runs/latest                 link to the newest

NODE is the node's name as `shakedown.common.text.file_name` spells it. All of it is its owner's alone (0700, 0600).
Files are written whole or not at all (written beside, then renamed), so an interrupted run leaves a record that reads.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, FailFast, ValidationError, computed_field, model_validator
from pydantic_core import to_json

from shakedown.common import private
from shakedown.common import secrets as masking
from shakedown.common.runs_folder import runs_folder
from shakedown.common.text import file_name, load_json, printable, shallow
from shakedown.desired.models import EACH, NO_PROMISE, TOGETHER, DesiredState
from shakedown.evidence.diagnosis.model import Diagnosis
from shakedown.evidence.diagnosis.origin import STOPPED
from shakedown.evidence.results import Failure, Timing
from shakedown.evidence.stragglers.model import Stragglers
from shakedown.evidence.telemetry.summary import NodeTelemetry
from shakedown.gates import Gate
from shakedown.gates.baselines.model import Baseline, Past
from shakedown.gates.observed import Alone
from shakedown.jobs.launch import LaunchPlan, job_name
from shakedown.logs.figures import Figures
from shakedown.logs.iterations import Iteration
from shakedown.logs.kept_logs import KeptLog
from shakedown.runs.isolation import Isolation
from shakedown.runs.rolling import Rolling
from shakedown.state.findings import Finding, Verdict
from shakedown.state.node import NodeState
from shakedown.trials.models import TrialsRecord
from shakedown.trials.soak import SoakRecord

SCHEMA_VERSION = 1


class RunNode(BaseModel):
    """One node's part in the run."""

    model_config = ConfigDict(extra="forbid", defer_build=True)

    name: str
    group: str = ""  # the group of the inventory that it is compared within, as a rack
    verdict: Verdict  # of its worst finding, and of its part in the job
    part: Literal["trained", "measured", "excluded", "unreached", "examined"]
    why: str = ""  # why it was excluded, or how its part in the job ended
    stopped: bool = False  # its part ended since the failure began on another node: no failure of this one
    node_rank: int | None = None
    exit_code: int | None = None  # of the job's leader on this node; None: it gave none, or the controller stopped it
    changes: list[str] = []  # operations that changed something, in order
    logs: list[str] = []  # relative to the run directory; the job's own output first
    host_key: str = ""  # fingerprint of the SSH host key that it showed in this run, where runs are signed
    new_host_key: str = ""  # its SSH host key, where it was taken for the first time in this run
    notes: list[str] = []  # what is left on the node, logs that could not be fetched

    @property
    def failed(self) -> bool:
        """Return whether the node was lost, or its part ended badly on the node itself."""
        return self.part in ("excluded", "unreached") or bool(self.why and not self.stopped and not self.undecided)

    @property
    def undecided(self) -> bool:
        """Return whether the controller stopped the node's part, and the diagnosis does not say on which node the
        failure began."""
        return self.why == STOPPED and not self.stopped


class JobRecord(BaseModel):
    """One job of the run: over all nodes that were ready, or of one node by itself."""

    model_config = ConfigDict(extra="forbid", defer_build=True)

    node: str | None = None  # the node that had the job for itself
    plan: LaunchPlan | None = None  # None: it could not be made
    trials: str = ""  # the kind of a job of trials; empty: it trains
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

    `plan`, `iterations` and `figures` at the top are those of the job over all nodes, and stand in `jobs` too.
    """

    model_config = ConfigDict(extra="forbid", defer_build=True)

    schema_version: int = SCHEMA_VERSION
    run_id: str
    started_at: str  # UTC, ISO 8601
    finished_at: str | None = None  # None: still running, or killed
    inventory: str
    inventory_path: str = ""  # of its file, which tells it from another of that name
    desired_digest: str  # SHA-256 of the desired states of all nodes
    verdict: Verdict = Verdict.UNKNOWN
    nodes: Annotated[list[RunNode], FailFast()] = []
    findings: Annotated[list[Finding], FailFast()] = []
    gates: Annotated[list[Gate], FailFast()] = []
    jobs: Annotated[list[JobRecord], FailFast()] = []  # in the order in which they were begun
    diagnosis: Diagnosis | None = None  # what it died of and where that began; None: it did not, or nobody can say
    deploy: str = ""  # the deploy of plain pyinfra, "pytorch_training"; nothing: a command of shakedown
    kind: Literal["run", "drift"] = "run"  # drift: a check that changed nothing, with no job to be judged
    ended_by: str = ""  # the error that ended the run before its end, where that was none of a node
    not_in_ledger: str = ""  # why the ledger could not be written at the end of the run
    trials: TrialsRecord | None = None
    soak: SoakRecord | None = None  # the burn-in, where there was one
    isolation: Isolation | None = None  # the search for bad nodes, where there was one
    rolling: Rolling | None = None  # how far a run in batches came
    nonce: str = ""  # what nodes' signatures on their readings hold, where runs are signed; begins with the run's id
    simulated: bool = False  # played by `shakedown demo`: nothing of it was measured

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
        """Return the job of that name; an empty one where the run has none."""
        return next((job for job in self.jobs if job.name == name), JobRecord())

    @model_validator(mode="before")
    @classmethod
    def _read(cls, document: Any) -> Any:
        if not isinstance(document, dict):
            return document
        return {key: value for key, value in document.items() if key not in _OF_THE_JOB}


class Evidence(BaseModel):
    """One job's part of evidence.json: the gates' input besides the logs and the plan."""

    model_config = ConfigDict(extra="forbid", defer_build=True)

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


def new_run_id(at: datetime | None = None) -> str:
    """Time (UTC, `at` or now) and a short random part: sorts by time, unique across controllers."""
    return f"{at or datetime.now(UTC):%Y%m%dT%H%M%S}-{secrets.token_hex(3)}"


def now() -> str:
    """UTC, ISO 8601, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def desired_digest(desired: dict[str, DesiredState]) -> str:
    """SHA-256 over all desired states: the same digest means the same promises. Secrets are left out of it: nobody can
    try them against it. So are reports, batches and how images come, which promise nothing of a node."""
    states = {id(state): state.model_dump(mode="json", exclude=NO_PROMISE) for state in distinct(desired.values())}
    values = masking.values_of(list(states.values()))
    texts = {key: json.dumps(masking.masked(state, (), values), sort_keys=True) for key, state in states.items()}
    rows = (f"{json.dumps(name)}: {texts[id(state)]}" for name, state in sorted(desired.items()))
    return hashlib.sha256(f"{{{', '.join(rows)}}}".encode()).hexdigest()


def distinct(desired: Iterable[DesiredState]) -> Iterable[DesiredState]:
    """Return the desired states once each: most nodes of a rack share one."""
    return {id(state): state for state in desired}.values()


_Model = TypeVar("_Model", bound=BaseModel)
STATEMENT, SIGNATURES = "statement.sigstore.json", "signatures"  # shakedown/runs/signing
_DOCUMENT_LIMIT = 1 << 28  # bytes of run.json or evidence.json: a hundred thousand iterations are 40 MB


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

    def relative(self, path: Path) -> str:
        """Return the name of a file of the directory, as its record has it."""
        return str(path.relative_to(self.path)) if path.is_relative_to(self.path) else str(path)

    def below(self, logs: Iterable[KeptLog]) -> list[KeptLog]:
        """Return fetched logs with their paths as the record has them."""
        return [log.model_copy(update={"path": self.relative(Path(log.path))}) for log in logs]

    def write_state(self, node: str, state: NodeState) -> None:
        """Write the state that a node had before anything was changed."""
        self.write(f"states/{file_name(node)}.json", state.model_dump_json(indent=1) + "\n")

    def write(self, name: str, text: str | bytes) -> None:
        """Write a file whole or not at all."""
        target = self.path / name
        content = text.encode("utf-8", "backslashreplace") if isinstance(text, str) else text
        private.replace(target, target.with_name(f".{target.name}.part"), content)

    def save(self, record: RunRecord, evidence: Mapping[str, Evidence] | None = None) -> None:
        """Write run.json, the iterations, and the evidence of each job."""
        self.write("run.json", record.__pydantic_serializer__.to_json(record, indent=1) + b"\n")
        if record.iterations:
            lines = (iteration.json() for iteration in record.iterations)
            self.write("iterations.jsonl", "".join(f"{line}\n" for line in lines))
        if evidence is not None:
            self.write("evidence.json", to_json({"jobs": dict(evidence)}, indent=1).decode() + "\n")

    def load(self) -> RunRecord:
        """Read run.json. Raises ValueError for a file that is cut short or of another schema, OSError if unreadable."""
        path = self.path / "run.json"
        document = read_document(path)
        version = document.get("schema_version") if isinstance(document, dict) else None
        if version != SCHEMA_VERSION:
            shown = printable(repr(version), 80)
            raise ValueError(f"{path}: schema_version {shown}; this shakedown reads {SCHEMA_VERSION}: {_OTHER}")
        return _validated(RunRecord, document, path)

    def load_state(self, node: str) -> NodeState:
        """Read a node's state before the run; the same errors as `load`."""
        path = self.path / "states" / f"{file_name(node)}.json"
        return _validated(NodeState, read_document(path), path)

    def load_isolation(self) -> Isolation:
        """Read isolation.json; the same errors as `load`."""
        path = self.path / "isolation.json"
        return _validated(Isolation, read_document(path), path)

    def load_evidence(self) -> dict[str, Evidence]:
        """Read evidence.json, by the jobs' names; the same errors as `load`."""
        path = self.path / "evidence.json"
        document = read_document(path)
        jobs = document.get("jobs") if isinstance(document, dict) else None
        if not isinstance(jobs, dict):
            raise ValueError(f"{path}: expected the evidence of each job")
        return {name: _validated(Evidence, job, path) for name, job in jobs.items()}

    def lacking(self, record: RunRecord) -> str:
        """Why a run that is over cannot be judged again, though it was judged; empty: it can."""
        if record.finished_at is None or not record.jobs:
            return ""
        try:
            self.load_evidence()
        except (OSError, ValueError) as error:
            return printable(str(error), 500)
        return ""


_EVIDENCE = "without it (exit codes, counters) nothing can be judged again; shakedown report shows what is recorded"
_WITHOUT = {  # what it means that a file of a run is not there
    "evidence.json": f"the run was never judged, or this copy of it is incomplete: {_EVIDENCE}",
    "isolation.json": "the run has no search for bad nodes, or this copy of it is incomplete",
    "states": "the node was never reached, or this copy of the run is incomplete",
}
_OTHER = "read it with the version that wrote it, or judge its logs with: shakedown judge LOGS"
_RESTORE = "take it from an archive (shakedown bundle) or from another copy of the run"


def read_document(path: Path) -> Any:
    """Read a JSON document of a run directory. Raises ValueError, OSError (FileNotFoundError) with its path, what that
    means and the remedy."""
    if not path.is_file():
        try:
            path.stat()
        except FileNotFoundError:
            why = _WITHOUT.get(path.name) or _WITHOUT.get(path.parent.name) or "this copy of the run is incomplete"
            raise FileNotFoundError(f"{path}: it is not there: {why}") from None
        raise ValueError(f"{path}: it is not a file: {_RESTORE}")
    with path.open("rb") as file:
        content = file.read(_DOCUMENT_LIMIT + 1)
    try:
        document = load_json(content, _DOCUMENT_LIMIT)
        if b"\\ud" in content or b"\\uD" in content:  # half a character, which no output can have, becomes "?"
            content = json.dumps(document, ensure_ascii=False).encode("utf-8", "replace")
            document = load_json(content, len(content))
        return shallow(document)
    except ValueError as error:
        raise ValueError(f"{path}: not a whole JSON document ({error}): {_RESTORE}") from error


def _validated(model: type[_Model], document: Any, path: Path) -> _Model:
    """Validate the document as a model. Raises ValueError with the first thing that is wrong: a file from elsewhere may
    hold millions, and names that would move a terminal."""
    try:
        return model.model_validate(document)
    except ValidationError as error:
        first, *others = error.errors(include_input=False, include_url=False)
        where = printable(".".join(map(str, first["loc"])), 200)
        more = f" (and {len(others)} more)" if others else ""
        raise ValueError(f"{path}: {where}: {printable(first['msg'], 200)}{more}") from None
