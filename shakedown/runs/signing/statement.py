"""An in-toto Statement v1 over all files of a run, or of an archive of one. The predicate is Shakedown's own."""

import hashlib
import json
import os
import stat
import time
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

import shakedown
from shakedown.common.frozen import Frozen, first_problem
from shakedown.common.text import load_json, printable, shallow
from shakedown.desired.models import DesiredState
from shakedown.runs.archive.read import UNPACKED_LIMIT
from shakedown.runs.directory import STATEMENT, Evidence, RunDirectory, RunRecord, now
from shakedown.runs.folder import run_ids
from shakedown.runs.signing import envelope
from shakedown.runs.signing.envelope import LIMIT, NotSigned, opened
from shakedown.runs.signing.nodes import LogSigner
from shakedown.state.findings import Verdict
from shakedown.state.node import NodeState, is_unreadable
from shakedown.transport.bundle import files_digest

BESIDE = ".sigstore.json"  # behind the name of an archive: the file of its statement
DEEPEST = 8  # folders
MOST_FILES = 400_000  # of a run; their statement has some 100 MiB, near envelope.LIMIT
MOST_S = 3600.0  # for hashing the files of a run: 20 GiB at 6 MB/s
Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class Digest(Frozen):
    """Digests of a file, by the names of their functions."""

    sha256: Sha256


class Subject(Frozen):
    """One file."""

    name: Annotated[str, Field(min_length=1, max_length=4096)]
    digest: Digest


class SignedGate(Frozen):
    """One gate as the run was judged."""

    name: str
    job: str | None
    node: str | None
    verdict: Verdict


class Tool(Frozen):
    """What judged the run: version, and a digest of all files of the package."""

    version: str
    sha256: Sha256


class SignedNode(Frozen):
    """Who a node is. None: not read, or not connected to over SSH."""

    name: str
    board_serial: str | None
    host_key: str | None  # fingerprint of the key that its SSH connection showed, as ssh-keygen -l prints it


class Before(Frozen):
    """Another signed run, by the digest of its statement's file."""

    run_id: str
    sha256: Sha256


class Predicate(Frozen):
    """What is said of the files."""

    schema_version: Literal[1] = 1
    run_id: str
    form: Literal["run", "archive"]
    verdict: Verdict
    gates: list[SignedGate]
    tool: Tool
    inventory: str
    inventory_sha256: Sha256 | None  # of the inventory's file; None: the inventory is no file
    desired_sha256: str  # of the desired states of all nodes: desired_digest of run.json
    baselines_sha256: Sha256 | None  # of the earlier runs that the figures were compared with; None: with none
    waivers_sha256: Sha256 | None  # of the waivers that findings rest on; None: no finding rests on one
    waivers: list[str]
    nodes: list[SignedNode]
    folders: list[str]  # of the run directory
    started_at: str
    finished_at: str | None
    signed_at: str  # by the controller's clock
    previous: Before | None  # the signed run before it in the same folder of runs
    packed: Before | None  # of an archive: the run that was packed


class Statement(Frozen):
    """The statement, as its payload has it."""

    type: Literal["https://in-toto.io/Statement/v1"] = Field("https://in-toto.io/Statement/v1", alias="_type")
    subject: list[Subject]
    predicate_type: Literal["https://shakedown.example/run/v1"] = Field(
        "https://shakedown.example/run/v1", alias="predicateType"
    )
    predicate: Predicate

    def payload(self) -> bytes:
        """Return the bytes that are signed, always the same for the same statement."""
        return canonical(self.model_dump(mode="json", by_alias=True))


def canonical(document: Any) -> bytes:
    """Return a document as JSON with sorted keys, without blanks, in ASCII."""
    return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()


def read(payload: bytes) -> Statement:
    """Read a payload, the signature of which was verified. Raises NotSigned."""
    try:
        statement = Statement.model_validate(shallow(load_json(payload, LIMIT)))
    except ValidationError as error:
        raise NotSigned(f"it is signed, and no statement of this version: {first_problem(error)}") from None
    except ValueError as error:
        raise NotSigned(f"it is signed, and no statement: {first_problem(error)}") from None
    if statement.payload() != payload:  # as with a key that stands in it twice
        raise NotSigned("it is signed, and not as Shakedown writes it")
    return statement


def of_run(
    directory: RunDirectory,
    record: RunRecord,
    evidence: Mapping[str, Evidence],
    states: Iterable[tuple[str, NodeState]],
    inventory: Path | None,
) -> Statement:
    """Make the statement on a finished run directory. Raises OSError; ValueError for what is no file or folder."""
    path = directory.path
    files, folders = contents(path)
    bounds = Bounds()
    earlier = ((run_id, path.parent / run_id / STATEMENT) for run_id in run_ids(path.parent) if run_id < path.name)
    before = next((Before(run_id=run_id, sha256=digest(file)) for run_id, file in earlier if file.is_file()), None)
    more: dict[str, Any] = {"form": "run", "folders": folders, "previous": before, "packed": None}
    more["inventory_sha256"] = digest(inventory) if inventory is not None and inventory.is_file() else None
    digests = {name: digest(directory.path / name, bounds) for name in files}
    return made(digests, record, evidence, states, more)


def facts_of(record: RunRecord, evidence: Mapping[str, Evidence]) -> dict[str, Any]:
    """Return what a statement repeats of the run's documents, for comparison by who verifies it."""
    past = {name: job.past.model_dump(mode="json") for name, job in evidence.items() if job.past is not None}
    resting = [[finding.node, finding.name, finding.waiver] for finding in record.findings if finding.waiver]
    return {
        "run_id": record.run_id,
        "verdict": record.verdict,
        "gates": [
            SignedGate(name=gate.name, job=gate.job, node=gate.node, verdict=gate.verdict) for gate in record.gates
        ],
        "inventory": record.inventory,
        "desired_sha256": record.desired_digest,
        "baselines_sha256": hashlib.sha256(canonical(past)).hexdigest() if past else None,
        "waivers_sha256": hashlib.sha256(canonical(resting)).hexdigest() if resting else None,
        "waivers": sorted({str(waiver) for _, _, waiver in resting}),
        "started_at": record.started_at,
        "finished_at": record.finished_at,
    }


def made(
    digests: Mapping[str, str],
    record: RunRecord,
    evidence: Mapping[str, Evidence],
    states: Iterable[tuple[str, NodeState]],
    more: Mapping[str, Any],
) -> Statement:
    """Make the statement on files, by their digests. `more`: fields of the predicate beside those of the run."""
    read = {name: state.system.board_serial for name, state in states}
    serials = {name: str(serial) for name, serial in read.items() if not is_unreadable(serial)}
    nodes = [
        SignedNode(name=node.name, board_serial=serials.get(node.name), host_key=node.host_key or None)
        for node in record.nodes
    ]
    tool = Tool(version=version("shakedown"), sha256=source_digest())
    predicate = Predicate(**facts_of(record, evidence), tool=tool, nodes=nodes, signed_at=now(), **more)
    return Statement(
        subject=[Subject(name=name, digest=Digest(sha256=sha256)) for name, sha256 in digests.items()],
        predicate=predicate,
    )


def contents(folder: Path) -> tuple[list[str], list[str]]:
    """Return a run's files but for the statement, and folders, in order. Raises ValueError for others, as a link."""
    files, folders = [], []
    for count, (name, mode) in enumerate(_entries(folder, "", 0), 1):
        if count > MOST_FILES:
            raise ValueError(f"{printable(name, 200)} is one of more than {MOST_FILES} files and folders")
        if stat.S_ISDIR(mode):
            folders.append(name)
        elif not stat.S_ISREG(mode):
            raise ValueError(f"{printable(name, 200)} is neither a file nor a folder")
        elif name != STATEMENT:
            files.append(name)
    return sorted(files), sorted(folders)


def _entries(folder: Path, above: str, depth: int) -> Iterator[tuple[str, int]]:
    if depth > DEEPEST:
        raise ValueError(f"{printable(above, 200)} lies more than {DEEPEST} folders deep")
    for entry in folder.iterdir():
        mode = entry.lstat().st_mode
        yield above + entry.name, mode
        if stat.S_ISDIR(mode):
            yield from _entries(entry, f"{above}{entry.name}/", depth + 1)


class Bounds:
    """What may still be read of the files of a run: a stranger's run can hold files without end."""

    def __init__(self) -> None:
        self._bytes, self._end = UNPACKED_LIMIT, time.monotonic() + MOST_S

    def take(self, path: Path, size: int) -> None:
        """Take bytes of a file. Raises NotSigned where the run has had its bytes or its time."""
        self._bytes -= size
        if self._bytes < 0:
            raise NotSigned(f"{path}: with it the files have more than {UNPACKED_LIMIT} bytes: it is not hashed")
        if time.monotonic() > self._end:
            raise NotSigned(f"{path}: hashing the files took more than {MOST_S:.0f} s: copy the run to a faster disk")


def digest(path: Path, bounds: Bounds | None = None) -> str:
    """Return the SHA-256 of a file. Raises NotSigned as `Bounds.take`, OSError, ValueError."""
    bounds, found = bounds or Bounds(), hashlib.sha256()
    with opened(path) as file:
        bounds.take(path, rest := os.fstat(file.fileno()).st_size)  # a sparse file is refused at once
        while part := file.read(1 << 20):
            found.update(part)
            bounds.take(path, max(len(part) - rest, 0))  # what was written to it since
            rest -= min(len(part), rest)
    return found.hexdigest()


@cache
def source_digest() -> str:
    """Return a digest of the package's files: SHA-256 over a line for each, as sha256sum(1) prints them."""
    package = Path(shakedown.__file__).parent
    folders = (package, package / "facts", package / "operations")  # the last two may be links, which rglob passes by
    paths = {path for folder in folders for path in folder.rglob("*") if path.is_file()}
    sources = {path for path in paths if "__pycache__" not in path.parts}
    return files_digest({str(path.relative_to(package)): path.read_bytes() for path in sources})


def sign(
    directory: RunDirectory,
    record: RunRecord,
    evidence: Mapping[str, Evidence],
    states: Mapping[str, NodeState],
    desired: Iterable[DesiredState],
    logs: LogSigner | None = None,
) -> str:
    """Sign a run where the inventory names a key. `logs`: signed by nodes. Return why a wanted signature is missing."""
    signing = next((state.signing for state in desired if state.signing), None)
    if signing is None:
        return ""
    try:
        if logs is not None:
            logs.write()
        key = envelope.private_key(signing.key_file)
        statement = of_run(directory, record, evidence, states.items(), Path(record.inventory))
        directory.write(STATEMENT, envelope.signed(statement.payload(), key).decode())
    except (OSError, ValueError) as error:
        return f"{directory.path}: the run is not signed: {error}"
    return ""
