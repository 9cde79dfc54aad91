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
    runs/<id>/trials/NODE/*     of the trials of each node alone
    runs/<id>/pairs/NODE/*      of the rounds between nodes
    runs/latest                 link to the newest

NODE is the node's name as `shakedown.common.text.file_name` spells it. All of it is its owner's alone (0700, 0600).
Files are written whole or not at all (written beside, then renamed), so an interrupted run leaves a record that reads.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import to_json

from shakedown.common import private
from shakedown.common.runs_folder import runs_folder
from shakedown.common.text import file_name, load_json, printable, shallow
from shakedown.desired.models import EACH
from shakedown.logs.kept_logs import KeptLog
from shakedown.runs.isolation import Isolation
from shakedown.runs.records import SCHEMA_VERSION, Evidence, RunRecord
from shakedown.state.node import NodeState

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
            raise ValueError(f"{path}: schema_version {shown}; this shakedown reads {SCHEMA_VERSION}")
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
        return shallow(load_json(content, _DOCUMENT_LIMIT))
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
