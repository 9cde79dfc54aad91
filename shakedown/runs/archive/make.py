"""Making an archive of a run: every file without its secrets, judged again before it is packed."""

import json
import os
import re
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.metadata import version
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO, cast

from shakedown.common import private, secrets
from shakedown.common.text import printable
from shakedown.logs.kept_logs import KeptLog
from shakedown.runs import copies
from shakedown.runs.archive import MANIFEST
from shakedown.runs.archive.pseudonyms import Pseudonyms, names_in_run, own_words, versions, words_of_logs
from shakedown.runs.archive.redact import Redactor, Written, blocks
from shakedown.runs.archive.tar import DEPTH, Manifest, Member, digest, pack, safe_path
from shakedown.runs.directory import SIGNATURES, STATEMENT, RunDirectory, read_document
from shakedown.runs.judging import judged_again
from shakedown.state.findings import Verdict
from shakedown.trials.models import KINDS

DOCUMENTS = ("run.json", "evidence.json", "isolation.json")
TEXTS = ("iterations.jsonl", "events.jsonl", "plan.txt")
# Everything else can be made of these, and of the folders of logs that evidence.json names.
FOLDERS = ("states", "logs", "each", "benchmark", *KINDS, "isolation", SIGNATURES)
_KEPT = set(KeptLog.model_fields)


@dataclass(frozen=True)
class Made:
    """What was made, for the person who made it."""

    path: Path
    manifest: Manifest
    digest: str
    names: Mapping[str, str] = field(default_factory=dict)  # what each pseudonym stands for; it stays at home
    spared: list[str] = field(default_factory=list)


def make(
    directory: RunDirectory,
    output: Path,
    pseudonyms: bool = False,
    sign: Callable[[RunDirectory], None] = lambda copy: None,
) -> Made:
    """Pack a run, then call `sign` with the packed copy. Raises ValueError, OSError; nothing is overwritten."""
    record = directory.load()
    files = [name for name in _files(directory.path) if not (pseudonyms and name.startswith(f"{SIGNATURES}/"))]
    states = [read_document(directory.path / name) for name in files if name.startswith("states/")]
    names = None
    if pseudonyms:
        names = Pseudonyms(names_in_run(record, states), versions(states), words_of_logs())
    own = own_words(_document(directory.path, name) for name in files if name in DOCUMENTS)
    redactor = Redactor(_secrets(directory.path, files, own), names, own)
    with tempfile.TemporaryDirectory(prefix="shakedown-") as folder:
        run = Path(folder) / record.run_id
        private.make_folders(run)
        members = _write(directory.path, files, run, redactor)
        members += [_written(run, "versions.json", _dump(_versions(states)))]
        verdict = _judged_alike(directory, RunDirectory(run), names, redactor)
        manifest = Manifest(
            shakedown=version("shakedown"),
            run_id=record.run_id,
            verdict=verdict,
            pseudonyms=pseudonyms,
            masked=redactor.masked,
            left_out=sorted(_left_out(directory.path, files, redactor)),
            members=sorted(members, key=lambda member: member.path),
        )
        text = manifest.text()
        with private.create(output) as file:
            try:
                pack(cast(Any, file), manifest.run_id, _members(run, manifest, text))
            except OSError:
                output.unlink()
                raise
        sign(RunDirectory(run))
    return Made(output, manifest, digest(text), dict(names.mapping) if names else {}, names.spared if names else [])


def _files(folder: Path) -> Iterator[str]:
    """Yield the paths of what belongs to the evidence, in order. Links and what is no file are not followed."""
    yield from (name for name in (*DOCUMENTS, *TEXTS) if (folder / name).is_file())
    named: set[str] = set()
    with suppress(OSError, ValueError):
        jobs = RunDirectory(folder).load_evidence().values()
        named = {log.path.partition("/")[0] for job in jobs for logs in job.logs.values() for log in logs}
    there = {entry.name for entry in folder.iterdir()}  # nothing outside, whatever a document names
    for top in sorted({*FOLDERS, *named} & there):
        found = []
        for base, folders, files in os.walk(folder / top, followlinks=False):
            if len(Path(base).relative_to(folder).parts) > DEPTH:  # os.walk itself ends at 1,000 with a RecursionError
                raise ValueError(f"{printable(base, 200)} lies more than {DEPTH} folders deep")
            folders.sort()
            found += [str((Path(base) / name).relative_to(folder)) for name in files]
        yield from sorted(found)


def _secrets(folder: Path, files: list[str], own: Collection[str]) -> set[str]:
    """Return the known secrets. What a log calls one, and documents and logs are read by, is masked there alone."""
    known: set[str] = set()
    for name in files:
        with copies.inside(folder, name).open("rb") as file:
            for block in blocks(cast(Any, file)):
                known |= set(secrets.found_in(block.decode("utf-8", "surrogateescape")))
    words = words_of_logs().union(*map(_words, own))
    of_files = {value for value in known if not words.issuperset(_words(value))}
    return of_files.union(value for name, value in os.environ.items() if secrets.is_secret(name)) - {secrets.MASK}


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


def _write(source: Path, files: list[str], run: Path, redactor: Redactor) -> list[Member]:
    """Every file, redacted. The logs come first: evidence.json says of each how long it is."""
    logs: dict[str, Written] = {}
    members = []
    for name in sorted(files, key=lambda name: name in DOCUMENTS):
        path = safe_path(redactor.path(name))
        document = _document(source, name)
        if document is not None:
            if name == "evidence.json":
                _renew(source, document, logs)
            original, redacted = copies.inside(source, name), redactor.document(document)
            content = original.read_bytes() if original.parent.name in ("states", SIGNATURES) else b""
            # Byte for byte as it was, where it has no secrets and nothing was renewed.
            same = content and json.loads(content) == redacted
            members.append(_written(run, path, content if same else _dump(redacted)))
            logs[name] = Written(members[-1].size, members[-1].sha256)
            continue
        with copies.inside(source, name).open("rb") as file, private.create(run / path) as target:
            logs[name] = redactor.copy(cast(Any, file), target.write, name)
        members.append(Member(path=path, size=logs[name].size, sha256=logs[name].sha256))
    return members


def _document(source: Path, name: str) -> Any:
    """Return a file of JSON; None where it is none. A node's file of that name is a log where it is no JSON."""
    if not name.endswith(".json"):
        return None
    try:
        return read_document(source / name)
    except ValueError:
        if name in DOCUMENTS:
            raise
        return None


def _renew(source: Path, value: Any, logs: Mapping[str, Written]) -> None:
    """Make evidence.json say of each copy what it says of the log; one that was changed keeps what is said of it."""
    if isinstance(value, dict) and value.keys() >= {"path", "kept", "sha256"} and value.keys() <= _KEPT:
        kept = KeptLog.model_validate(value)
        written = logs.get(kept.path)
        if written is not None and not copies.why_changed(source, kept):
            value["size"] = written.size if kept.size == kept.kept else kept.size
            value["kept"], value["sha256"] = written.size, written.sha256
        return
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        _renew(source, inner, logs)


def _judged_alike(directory: RunDirectory, copy: RunDirectory, names: Pseudonyms | None, redactor: Redactor) -> Verdict:
    """Return what the run comes to, if its copy comes to the same. Raises ValueError with lines that were masked."""
    with copies.read_once():
        before, after = _judgement(directory), _judgement(copy)
    alias = names.value if names else lambda name: name
    wanted = [(name, alias(node) if node else node, verdict) for name, node, verdict in before[1]]
    if (before[0], wanted) != (after[0], after[1]):
        other = [name for (name, *_), now in zip(wanted, after[1], strict=False) if (name, *_) != now]
        where = [f"{name} line {', '.join(map(str, lines))}" for name, lines in redactor.lines.items() if lines]
        raise ValueError(
            "without what has to be left out the run would be judged otherwise: "
            f"{before[0]} became {after[0]} ({', '.join(other) or 'other gates'}). Nothing was written. "
            f"Masked as secrets: {'; '.join(where[:5]) or 'nothing in its logs'}"
        )
    return before[0]


def _judgement(directory: RunDirectory) -> tuple[Verdict, list[tuple[str, str | None, Verdict]]]:
    verdict, judged = judged_again(directory, directory.load())
    return verdict, [(gate.name, gate.node, gate.verdict) for gate in judged or []]


def _members(run: Path, manifest: Manifest, text: bytes) -> Iterator[tuple[str, BinaryIO, int]]:
    yield MANIFEST, BytesIO(text), len(text)
    for member in manifest.members:
        with (run / member.path).open("rb") as content:
            yield member.path, content, member.size


def _written(run: Path, path: str, text: bytes) -> Member:
    with private.create(run / path) as file:
        private.write(file, text)
    return Member(path=path, size=len(text), sha256=digest(text))


def _left_out(folder: Path, files: list[str], redactor: Redactor) -> list[str]:
    """Return what lies in the run's folder besides, by its first name."""
    tops = {name.partition("/")[0] for name in files} | {*FOLDERS, STATEMENT}
    return [redactor.text(printable(entry.name, 200)) for entry in folder.iterdir() if entry.name not in tops]


def _versions(states: list[Any]) -> dict[str, Any]:
    """Return what ran where: of the controller, and of the nodes how many had which."""
    nodes: dict[str, Counter[str]] = defaultdict(Counter)
    for state in states:
        system = state.get("system") if isinstance(state, dict) else None
        about = {**(system if isinstance(system, dict) else {}), **(state if isinstance(state, dict) else {})}
        for name in ("kernel", "rocm_version", "gpu_tool"):
            value = about.get(name)
            nodes[name][value if isinstance(value, str) else "not read"] += 1
    return {"controller": {name: version(name) for name in ("shakedown", "pyinfra", "pydantic")}, "nodes": nodes}


def _dump(document: Any) -> bytes:
    return json.dumps(document, indent=1).encode() + b"\n"
