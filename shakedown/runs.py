"""The run directory: everything one run saw, measured and decided, enough to judge it again offline.

    runs/<id>/run.json          the record (schema below, versioned)
    runs/<id>/evidence.json     what the gates were given besides the logs: exit codes, counters before and after
    runs/<id>/iterations.jsonl  one JSON object per iteration line
    runs/<id>/plan.txt          the launch plan as `shakedown plan` prints it
    runs/<id>/states/NODE.json  each node's state before the run
    runs/<id>/logs/NODE/*       each node's logs
    runs/latest                 link to the newest

Files are written whole or not at all (written beside, then renamed), so an interrupted run leaves a record that reads.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from shakedown.desired import DesiredState
from shakedown.findings import Finding, Verdict
from shakedown.smoke.figures import Figures
from shakedown.smoke.gates import Gate
from shakedown.smoke.judgement import Judgement, judge
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


class RunRecord(BaseModel):
    """run.json. Readers must refuse a schema_version they do not know."""

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
    plan: LaunchPlan | None = None
    gates: list[Gate] = []
    iterations: list[Iteration] = []
    figures: Figures | None = None


class Evidence(BaseModel):
    """evidence.json: the gates' input besides the logs and the plan."""

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

    def save(self, record: RunRecord, evidence: Evidence | None = None) -> None:
        """Write run.json, the iterations and the evidence."""
        self.write("run.json", record.model_dump_json(indent=1) + "\n")
        if record.iterations:
            lines = (iteration.model_dump_json() for iteration in record.iterations)
            self.write("iterations.jsonl", "".join(f"{line}\n" for line in lines))
        if evidence is not None:
            self.write("evidence.json", evidence.model_dump_json(indent=1) + "\n")

    def load(self) -> RunRecord:
        """Read run.json. Raises ValueError for a file that is cut short or of another schema, OSError if unreadable."""
        return RunRecord.model_validate(_versioned(self.path / "run.json"))

    def load_evidence(self) -> Evidence:
        """Read evidence.json; the same errors as `load`."""
        return Evidence.model_validate_json((self.path / "evidence.json").read_text("utf-8"))


def judge_run(directory: RunDirectory, record: RunRecord, evidence: Evidence) -> Judgement:
    """Apply the gates to what the run directory holds: at the end of the run, and again whenever somebody asks.

    Raises ValueError for a run that ended before it had a plan.
    """
    if record.plan is None:
        raise ValueError(f"{directory.path}: the run ended before its plan was made")
    logs = {node.name: directory.path / node.logs[0] for node in record.nodes if node.logs}
    return judge(
        record.plan,
        logs,
        evidence.exit_codes,
        evidence.counters_before,
        evidence.counters_after,
        evidence.stopped,
    )


def _versioned(path: Path) -> Any:
    try:
        document = json.loads(path.read_text("utf-8"))
    except json.JSONDecodeError as error:
        raise ValueError(f"{path}: not a whole JSON document ({error})") from error
    version = document.get("schema_version") if isinstance(document, dict) else None
    if version != SCHEMA_VERSION:
        raise ValueError(f"{path}: schema_version {version!r}; this shakedown reads {SCHEMA_VERSION}")
    return document
