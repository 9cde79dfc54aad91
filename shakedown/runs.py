"""The run directory: everything one run saw, measured and decided, enough to judge it again offline.

    runs/<id>/run.json          the record (schema below, versioned)
    runs/<id>/evidence.json     what the gates of each job were given besides its logs: exit codes, counters before and
                                after
    runs/<id>/iterations.jsonl  one JSON object per iteration line of the job over all nodes
    runs/<id>/plan.txt          the launch plans as `shakedown plan` prints them
    runs/<id>/states/NODE.json  each node's state before the run
    runs/<id>/logs/*            each node's logs of the job over all nodes: NODE.log, and further ones in NODE/
    runs/<id>/each/*            the same of the nodes' own jobs
    runs/latest                 link to the newest

Files are written whole or not at all (written beside, then renamed), so an interrupted run leaves a record that reads.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, computed_field, model_validator

from shakedown.desired import DesiredState
from shakedown.findings import Finding, Verdict
from shakedown.smoke.figures import Figures
from shakedown.smoke.gates import Gate
from shakedown.smoke.gates.model import TOGETHER
from shakedown.smoke.job import job_name
from shakedown.smoke.judgement import Judgement, judge, never_started
from shakedown.smoke.launch import LaunchPlan
from shakedown.smoke.log import Iteration

SCHEMA_VERSION = 1


class RunNode(BaseModel):
    """One node's part in the run."""

    model_config = ConfigDict(extra="forbid")

    name: str
    verdict: Verdict  # its worst finding
    part: Literal["trained", "left out", "unreached", "examined"]
    why: str = ""  # why it was left out
    node_rank: int | None = None
    exit_code: int | None = None  # of the job's leader on this node; None: it gave none
    changes: list[str] = []  # operations that changed something, in order
    logs: list[str] = []  # relative to the run directory; the job's own output first
    notes: list[str] = []  # what is left on the node, logs that could not be fetched


class JobRecord(BaseModel):
    """One job of the run: over all nodes that were ready, or of one node by itself."""

    model_config = ConfigDict(extra="forbid")

    node: str | None = None  # the node that had the job for itself
    plan: LaunchPlan | None = None  # None: it could not be made
    error: str = ""  # why the job was never begun
    logs: dict[str, list[str]] = {}  # node -> its logs, relative to the run directory; the job's own output first
    iterations: list[Iteration] = []
    figures: Figures | None = None

    @property
    def name(self) -> str:
        """As its gates and its evidence name it."""
        return job_name(self.node)


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
    nodes: list[RunNode] = []
    findings: list[Finding] = []
    gates: list[Gate] = []
    jobs: list[JobRecord] = []  # in the order in which they were begun

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
        nodes = document.get("nodes") or []
        logs = {node["name"]: node["logs"] for node in nodes if isinstance(node, dict) and node.get("logs")}
        return {**own, "jobs": [{**{key: document[key] for key in _OF_THE_JOB if key in document}, "logs": logs}]}


class Evidence(BaseModel):
    """One job's part of evidence.json: the gates' input besides the logs and the plan."""

    model_config = ConfigDict(extra="forbid")

    exit_codes: dict[str, int | None] = {}  # per node
    counters_before: dict[str, dict[str, Any]] = {}  # node -> counter -> value or unreadable
    counters_after: dict[str, dict[str, Any]] = {}
    stopped: str | None = None  # why the job was stopped before its end, with the node and the line that were first


def new_run_id() -> str:
    """Time (UTC) and a short random part: sorts by time, unique across controllers."""
    return f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{secrets.token_hex(3)}"


def now() -> str:
    """UTC, ISO 8601, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def digest_of(desired: dict[str, DesiredState]) -> str:
    """SHA-256 over all desired states: the same digest means the same promises."""
    text = json.dumps({name: state.model_dump(mode="json") for name, state in desired.items()}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def runs_folder() -> Path:
    """Where runs are kept: $SHAKEDOWN_RUNS, or runs/ in the current folder."""
    return Path(os.environ.get("SHAKEDOWN_RUNS", "runs"))


class RunDirectory:
    """The files of one run. Raises OSError with the path when a file cannot be written."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def create(cls, run_id: str, root: Path | None = None) -> RunDirectory:
        """Make the directory and point `latest` to it."""
        root = root or runs_folder()
        directory = cls(root / run_id)
        (directory.path / "logs").mkdir(parents=True)
        link = root / f".latest-{run_id}"
        link.symlink_to(run_id)
        link.replace(root / "latest")
        return directory

    @property
    def logs(self) -> Path:
        return self.path / "logs"

    def write(self, name: str, text: str) -> None:
        """Write a file whole or not at all."""
        target = self.path / name
        target.parent.mkdir(parents=True, exist_ok=True)
        beside = target.with_name(f".{target.name}.part")
        try:
            with beside.open("w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            beside.replace(target)
        except OSError:
            beside.unlink(missing_ok=True)
            raise

    def save(self, record: RunRecord, evidence: Mapping[str, Evidence] | None = None) -> None:
        """Write run.json, the iterations, and the evidence of each job."""
        self.write("run.json", record.model_dump_json(indent=1) + "\n")
        if record.iterations:
            lines = (iteration.model_dump_json() for iteration in record.iterations)
            self.write("iterations.jsonl", "".join(f"{line}\n" for line in lines))
        if evidence is not None:
            jobs = {name: each.model_dump(mode="json") for name, each in evidence.items()}
            self.write("evidence.json", json.dumps({"jobs": jobs}, indent=1) + "\n")

    def load(self) -> RunRecord:
        """Read run.json. Raises ValueError for a file that is cut short or of another schema, OSError if unreadable."""
        return RunRecord.model_validate(_versioned(self.path / "run.json"))

    def load_evidence(self) -> dict[str, Evidence]:
        """Read evidence.json, by the jobs' names; the same errors as `load`. Without jobs it is that of one, over all
        nodes."""
        document = _document(self.path / "evidence.json")
        jobs = document.get("jobs", {TOGETHER: document}) if isinstance(document, dict) else None
        if not isinstance(jobs, dict):
            raise ValueError(f"{self.path / 'evidence.json'}: expected the evidence of each job")
        return {name: Evidence.model_validate(each) for name, each in jobs.items()}


def judge_run(directory: RunDirectory, record: RunRecord, evidence: Mapping[str, Evidence]) -> list[Gate]:
    """Apply the gates of every job of a run again to what the run directory holds.

    Raises ValueError for a run that ended before any plan was made.
    """
    if not record.jobs:
        raise ValueError(f"{directory.path}: the run ended before its plan was made")
    judgements = [judge_job(directory, job, evidence.get(job.name, Evidence())) for job in record.jobs]
    return [gate for judgement in judgements for gate in judgement.gates]


def judge_job(directory: RunDirectory, job: JobRecord, evidence: Evidence) -> Judgement:
    """Apply the gates to one job: at its end, and again whenever somebody asks."""
    if job.plan is None:
        judgement = never_started(job.error or "its plan was never made")
    else:
        judgement = judge(
            job.plan,
            {name: directory.path / logs[0] for name, logs in job.logs.items() if logs},
            evidence.exit_codes,
            evidence.counters_before,
            evidence.counters_after,
            evidence.stopped,
        )
    of_this = {"job": job.name, "node": job.node}
    return replace(judgement, gates=[gate.model_copy(update=of_this) for gate in judgement.gates])


def _document(path: Path) -> Any:
    try:
        return json.loads(path.read_text("utf-8"))
    except json.JSONDecodeError as error:
        raise ValueError(f"{path}: not a whole JSON document ({error})") from error


def _versioned(path: Path) -> Any:
    document = _document(path)
    version = document.get("schema_version") if isinstance(document, dict) else None
    if version != SCHEMA_VERSION:
        raise ValueError(f"{path}: schema_version {version!r}; this shakedown reads {SCHEMA_VERSION}")
    return document
