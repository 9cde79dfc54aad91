"""A run, or an archive of one, held against its statement: the signature first, then all files, then the judgement. An
archive of a signed run is signed anew, since packing masks secrets."""

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey, EllipticCurvePublicKey

from shakedown.common import private
from shakedown.common.text import counted, printable
from shakedown.runs.archive.make import Made, make
from shakedown.runs.archive.read import is_packed, opened
from shakedown.runs.directory import STATEMENT, Evidence, RunDirectory, RunRecord
from shakedown.runs.folder import find_run
from shakedown.runs.judging import judged_again
from shakedown.runs.signing import envelope, nodes, statement
from shakedown.runs.signing.envelope import NotSigned
from shakedown.runs.signing.statement import Statement
from shakedown.state.findings import Verdict, worst

_SHOWN = 5  # of many files that differ


@dataclass(frozen=True)
class Verified:
    """A verified run. `again`: the verdict judged anew; `changes`: differences from the statement."""

    statement: Statement
    sha256: str  # of the statement's file
    directory: RunDirectory
    record: RunRecord
    again: Verdict
    judged: bool  # the gates were applied again; a check has none
    changes: list[str]
    held: nodes.Held = field(default_factory=nodes.Held)

    @property
    def verdict(self) -> Verdict:
        """Return the worse one of the two; a statement that its own evidence contradicts has failed."""
        return worst([self.statement.predicate.verdict, self.again, *([Verdict.FAIL] if self.changes else [])])


def file_of(name: str) -> tuple[Path, Path]:
    """Return the run directory or the archive of that name, and the file of its statement. Raises ValueError."""
    path = Path(name) if is_packed(name) else find_run(name)
    return path, path.with_name(path.name + statement.BESIDE) if path.is_file() else path / STATEMENT


@contextmanager
def verified(name: str, key: EllipticCurvePublicKey, keys: nodes.Keys = None) -> Iterator[Verified]:
    """Verify a run or an archive. `keys`: as in `nodes.check`. Raises NotSigned, ValueError, OSError."""
    path, file = file_of(name)
    signed, sha256 = signature(file, key)
    form = "archive" if path.is_file() else "run"
    if signed.predicate.form != form or (form == "archive" and len(signed.subject) != 1):
        raise NotSigned(f"the statement is on another form of the run, its {signed.predicate.form}")
    if form == "archive":
        _compare(path.parent, {path.name: signed.subject[0].digest.sha256})
        with opened(path) as archive:
            if archive.altered:
                raise NotSigned(f"{path}: {'; '.join(archive.altered[:_SHOWN])}")
            members = {member.path: member.sha256 for member in archive.members}
            yield _judged(archive.directory, signed, sha256, keys, members)
        return
    yield _judged(RunDirectory(path), signed, sha256, keys, check_files(path, signed))


def signature(file: Path, key: EllipticCurvePublicKey) -> tuple[Statement, str]:
    """Return a file's statement that the key signed, and the file's digest. Raises NotSigned, OSError."""
    if not file.is_file() or file.is_symlink():
        raise FileNotFoundError(f"{file}: it is not there, or no file: the run is not signed (docs/evidence.md)")
    with envelope.opened(file) as source:
        text = source.read(envelope.LIMIT + 1)
    try:
        return statement.read(envelope.verified(text, key)), hashlib.sha256(text).hexdigest()
    except NotSigned as error:
        raise NotSigned(f"{file}: {error}") from None


def check_files(folder: Path, signed: Statement) -> dict[str, str]:
    """Hold all that a run directory has against the statement. Return the files' SHA-256. Raises NotSigned."""
    try:
        files, folders = statement.contents(folder)
    except ValueError as error:
        raise NotSigned(f"{folder}: {error}, so the statement cannot cover it") from None
    subjects = {subject.name: subject.digest.sha256 for subject in signed.subject}
    there = {*files, *(f"{name}/" for name in folders)}
    listed = {*subjects, *(f"{name}/" for name in signed.predicate.folders)}
    other = [f"{name} is not in the statement" for name in sorted(there - listed)]
    other += [f"{name} is missing" for name in sorted(listed - there)]
    if other or len(subjects) != len(signed.subject):
        raise NotSigned(f"{folder}: {_some(other or ['a file stands twice in the statement'])}")
    _compare(folder, subjects)
    return subjects


def _compare(folder: Path, subjects: dict[str, str]) -> None:
    bounds = statement.Bounds()
    other = [
        f"{name} was altered: its SHA-256 is not that of the statement"
        for name, sha256 in subjects.items()
        if statement.digest(folder / name, bounds) != sha256
    ]
    if other:
        raise NotSigned(f"{folder}: {_some(other)}")


def _some(lines: list[str]) -> str:
    more = f"; and {counted(len(lines) - _SHOWN, 'other')}" if len(lines) > _SHOWN else ""
    return printable("; ".join(lines[:_SHOWN]), 2000) + more


def _judged(
    directory: RunDirectory, signed: Statement, sha256: str, keys: nodes.Keys, files: Mapping[str, str]
) -> Verified:
    """Judge a run again, all files of which are as they were signed. `files`: their SHA-256."""
    record, evidence = _documents(directory)
    documents = statement.facts_of(record, evidence)
    changes = [
        f"{name} of the statement is not that of the run's own documents"
        for name, value in documents.items()
        if getattr(signed.predicate, name) != value
    ]
    again, gates = judged_again(directory, record)
    if gates is not None:
        before = {(gate.name, gate.job, gate.node): gate.verdict for gate in record.gates}
        after = {(gate.name, gate.job, gate.node): gate.verdict for gate in gates}
        changes += [
            f"{' '.join(filter(None, key))}: signed as {before.get(key, 'nothing')}, judged {after.get(key, 'not')} now"
            for key in dict.fromkeys([*before, *after])
            if before.get(key) != after.get(key)
        ]
    if worst([again, record.verdict]) != record.verdict:
        changes.append(f"signed as {record.verdict}, and its evidence comes to {again}")
    held = nodes.check(directory, record, evidence, files, signed.predicate.form == "archive", keys)
    return Verified(signed, sha256, directory, record, again, gates is not None, [*changes, *held.wrong], held)


def _documents(directory: RunDirectory) -> tuple[RunRecord, dict[str, Evidence]]:
    """Return a run's record and its evidence, which a check has not, nor a run that was never judged."""
    record = directory.load()
    try:
        return record, directory.load_evidence()
    except OSError:
        return record, {}


def make_signed(directory: RunDirectory, output: Path, pseudonyms: bool, key: EllipticCurvePrivateKey) -> Made:
    """Pack a signed run, and state the archive. Raises as `make`, and NotSigned before anything is packed."""
    _, file = file_of(str(directory.path))
    run, sha256 = signature(file, key.public_key())
    check_files(directory.path, run)
    target = output.with_name(output.name + statement.BESIDE)
    if target.exists():
        raise FileExistsError(17, "it is there already", str(target))

    def sign(copy: RunDirectory) -> None:
        record, evidence = _documents(copy)  # without the names of the site, where those are left out
        states = []
        for node in record.nodes:
            with suppress(FileNotFoundError):  # it was never reached
                states.append((node.name, copy.load_state(node.name)))
        packed = statement.Before(run_id=run.predicate.run_id, sha256=sha256)
        more: dict[str, Any] = {"form": "archive", "folders": [], "previous": None, "packed": packed}
        more["inventory_sha256"] = None if pseudonyms else run.predicate.inventory_sha256
        made = statement.made({output.name: statement.digest(output)}, record, evidence, states, more)
        with private.create(target) as source:
            source.write(envelope.signed(made.payload(), key))

    return make(directory, output, pseudonyms, sign)
