"""What nodes signed with their SSH host keys, of readings and logs: kept beside the evidence, and held against it."""

import hashlib
import json
import re
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, ValidationError

from shakedown.common.frozen import Frozen
from shakedown.common.lists import grouped
from shakedown.common.text import file_name, load_json, load_sound, printable
from shakedown.node.sign import NAMESPACE
from shakedown.runs.directory import SIGNATURES, Evidence, RunDirectory, RunNode, RunRecord, read_document
from shakedown.runs.signing import openssh

Keys = Callable[[str, str], str] | None  # node, key -> why the key does not count for the node
_CLOCK_S = 600.0  # by which a node's clock may differ from the controller's
_OPENED_S = 3600.0  # between a run's id, which is made before nodes are read, and its record


class Signature(Frozen):
    """What a node signed. `reason`: why there is no signature."""

    text: Annotated[str, Field(max_length=1 << 16)] = ""  # what was signed
    signature: Annotated[str, Field(max_length=1 << 14)] = ""  # as ssh-keygen -Y sign prints it
    host_key: Annotated[str, Field(max_length=1 << 13)] = ""  # public key: type and key
    reason: Annotated[str, Field(max_length=1000)] = ""


class NodeSignature(Signature):
    """signatures/NODE.json: the signature on a node's reading, and on its logs by their names in the run directory."""

    logs: dict[str, Signature] = {}


@dataclass(frozen=True)
class SignedReading:
    """A node's signature on its reading, and the reading as the node printed it, compressed."""

    signature: NodeSignature
    document: bytes = b""

    def write(self, directory: RunDirectory, node: str) -> None:
        """Write the signature, and the state as it was signed. Raises OSError."""
        name = f"{file_name(node)}.json"
        (directory.path / SIGNATURES).mkdir(0o700, exist_ok=True)
        directory.write(f"{SIGNATURES}/{name}", self.signature.model_dump_json(indent=1) + "\n")
        if self.document:
            directory.write(f"states/{name}", zlib.decompress(self.document).decode())


class WrongSignature(ValueError):
    """A node answered with a signature that does not hold."""


def taken(answer: dict[str, Any], key: str, nonce: str) -> SignedReading:
    """Check what a node answered on its reading. `key`: what its connection showed. Raises WrongSignature."""
    text = str(answer.pop("document", ""))
    sha256 = hashlib.sha256(text.encode()).hexdigest()
    signature = NodeSignature(**_answered(answer, key, nonce, about="reading", sha256=sha256).model_dump())
    if signature.reason:
        return SignedReading(signature)
    if json.loads(text) != load_sound(text, len(text)):
        return SignedReading(NodeSignature(reason="its reading had control characters, which are not kept"))
    return SignedReading(signature, zlib.compress(text.encode(), 1))


def _answered(answer: Any, key: str, nonce: str, **wanted: str) -> Signature:
    """Return a node's signature, which holds, or the reason why there is none. Raises WrongSignature."""
    try:
        signature = Signature.model_validate(answer)
    except ValidationError:
        raise WrongSignature("its signature is malformed") from None
    if not key or signature.reason:
        return Signature(reason=printable(signature.reason, 300) or "it was not reached over SSH")
    if signature.host_key != key:
        raise WrongSignature("it signed with another key than its connection showed")
    try:
        _held(signature, nonce, **wanted)
    except ValueError as error:
        raise WrongSignature(f"the signature on its {wanted['about']} does not hold: {error}") from None
    return signature


class LogSigner:
    """Has the nodes sign the digests of their logs while a run goes on, and keeps the signatures."""

    def __init__(
        self, nonce: Callable[[], str], directory: Callable[[], RunDirectory | None], key: Callable[[str], str]
    ) -> None:
        """Take what a run has later: its nonce and directory. `key`: what a node's connection showed."""
        self._nonce, self._directory, self._key = nonce, directory, key
        self._signatures: dict[str, dict[str, Signature]] = defaultdict(dict)

    def question(self, node: str, path: Path) -> str:
        """Return what has the node sign the digest of a log; empty: the run is not signed, or the node has no key."""
        nonce, directory = self._nonce(), self._directory()
        if not nonce or directory is None or not (key := self._key(node)):
            return ""
        return f"{nonce}:{key.partition(' ')[0]}:{path.relative_to(directory.path)}"

    def take(self, node: str, path: Path, sha256: str, answer: dict[str, Any] | None) -> None:
        """Keep the node's answer on a log, or why it does not count."""
        if not (question := self.question(node, path)):
            return
        nonce, _, name = question.split(":", 2)
        try:
            signature = _answered(answer or {}, self._key(node), nonce, about="log", log=name, sha256=sha256)
        except WrongSignature as error:
            signature = Signature(reason=str(error))
        self._signatures[node][name] = signature

    def write(self) -> None:
        """Write the signatures to those on the readings. Raises OSError, ValueError."""
        if (directory := self._directory()) is None:
            return
        for node, logs in self._signatures.items():
            kept = _kept(directory, node)
            SignedReading(kept.model_copy(update={"logs": {**kept.logs, **logs}})).write(directory, node)


def _kept(directory: RunDirectory, node: str) -> NodeSignature:
    try:
        return NodeSignature.model_validate(read_document(directory.path / SIGNATURES / f"{file_name(node)}.json"))
    except (OSError, ValueError):
        return NodeSignature(reason="it has no signature")


def _held(signature: Signature, nonce: str, **wanted: str) -> None:
    """Raise ValueError where a signature does not hold, or what was signed has not the wanted values."""
    openssh.check(signature.text.encode(), signature.signature, signature.host_key, NAMESPACE)
    signed = load_json(signature.text, 1 << 16)
    if not isinstance(signed, dict) or signed.get("nonce") != nonce:
        raise ValueError("it was signed for another run")
    if any(signed.get(name) != value for name, value in wanted.items()):
        raise ValueError(f"the signature is on another {wanted['about']}")


@dataclass
class Held:
    """A run's node signatures. `unsigned`: readings and logs without one, with reasons; `wrong`: invalid signatures."""

    readings: int = 0
    logs: int = 0
    unsigned: dict[str, str] = field(default_factory=dict)
    unsigned_logs: dict[str, str] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)


def check(
    directory: RunDirectory,
    record: RunRecord,
    evidence: Mapping[str, Evidence],
    files: Mapping[str, str],
    packed: bool,
    keys: Keys,
) -> Held:
    """Verify the nodes' signatures on readings and logs. `files`: compared SHA-256 digests. `keys`: known_hosts'
    objections; None: keys are those of the run's statement. `packed`: a copy with masked texts."""
    held, logs = Held(), _logs(record, evidence, files)
    praised = {finding.node for finding in record.findings if finding.verdict.passes}
    blamed = {finding.node for finding in record.findings} - praised
    for node in record.nodes:
        kept, state = _kept(directory, node.name), f"states/{file_name(node.name)}.json"
        about: list[tuple[str, str, Signature, dict[str, str]]] = [
            (name, name, kept.logs.get(name, Signature(reason="it has no signature")), {"about": "log", "log": name})
            for name in logs.pop(node.name, [])
        ]
        if node.part != "unreached" or node.name not in blamed or state in files:
            about.append((node.name, state, kept, {"about": "reading"}))  # the run says something good of the node
        for name, file, signature, wanted in about:
            reading, sha256 = signature is kept, files.get(file, "")
            try:
                signed = load_json(signature.text or "{}", 1 << 16)
                masked = packed and isinstance(signed, dict) and signed.get("sha256") != sha256
                if reason := signature.reason or ("it was masked when the archive was made" if masked else ""):
                    (held.unsigned if reading else held.unsigned_logs)[name] = reason
                    continue
                _held(signature, record.nonce, sha256=sha256, **wanted)
                if reading:
                    system = directory.load_state(node.name).system
                    read = (system.hostname, system.boot_id, system.epoch_s)
                    if tuple(map(signed.get, ("hostname", "boot_id", "epoch_s"))) != read:
                        raise ValueError("the signature is on another reading")
                _check_key(record, node, signature, keys)
                _check_time(record, signed.get("epoch_s"))
                held.readings, held.logs = held.readings + reading, held.logs + (not reading)
            except ValueError as error:
                held.wrong.append(f"{name}: the node's signature on its {wanted['about']} does not hold: {error}")
    held.unsigned_logs |= {name: "no node of the run has it" for names in logs.values() for name in names}
    return held


def _check_key(record: RunRecord, node: RunNode, signature: Signature, keys: Keys) -> None:
    """Raise ValueError where a signature is of a key that does not count for the node, or of another run's nonce."""
    if keys is None and openssh.fingerprint(signature.host_key) != node.host_key:
        raise ValueError("it is of another key than the run's record has")
    if keys is not None and (problem := keys(node.name, signature.host_key)):
        raise ValueError(problem)
    if not record.nonce.startswith(f"{record.run_id}."):
        raise ValueError("it was signed for another run")


def _logs(record: RunRecord, evidence: Mapping[str, Evidence], files: Iterable[str]) -> dict[str, list[str]]:
    """Return the logs of each node: what lies in its folders, and what the evidence names, wherever that lies."""
    names = {file_name(node.name): node.name for node in record.nodes}
    found = {path: names.get(path.split("/")[-2], "") for path in files if path.count("/") > 1}
    found |= {log.path: node for job in evidence.values() for node, logs in job.logs.items() for log in logs}
    return grouped((node, path) for path, node in found.items())


def _check_time(record: RunRecord, epoch_s: Any) -> None:
    """Raise ValueError where a node did not sign while the run lasted, from the moment in its id to its end."""
    id_begins = re.match(r"\d{8}T\d{6}-", record.run_id)
    begins = f"{id_begins[0][:-1]}Z" if id_begins else record.started_at
    times = (begins, record.started_at, record.finished_at or record.started_at)
    begin, started, end = (datetime.fromisoformat(text).timestamp() for text in times)
    signed = epoch_s if isinstance(epoch_s, int | float) else -1.0
    if abs(started - begin) > _OPENED_S or not begin - _CLOCK_S <= signed <= end + _CLOCK_S:
        raise ValueError("the node's clock and the run's times are far apart")
