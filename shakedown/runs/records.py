"""The records of a run: what run.json and evidence.json hold."""

import hashlib
import json
import secrets
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, FailFast, computed_field, model_validator

from shakedown.common import secrets as masking
from shakedown.desired.models import NO_PROMISE, TOGETHER, DesiredState
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
