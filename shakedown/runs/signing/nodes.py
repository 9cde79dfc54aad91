"""What a node signed with its SSH host key: kept beside the evidence, and held against it."""

import hashlib
import json
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any

from pydantic import Field, ValidationError

from shakedown.common.frozen import Frozen
from shakedown.common.text import file_name, load_json, load_sound, printable
from shakedown.node.sign import NAMESPACE
from shakedown.runs.directory import SIGNATURES, RunDirectory, read_document
from shakedown.runs.records import RunRecord
from shakedown.runs.signing import sshsig

Keys = Callable[[str, str], str] | None  # node, key -> why the key does not count for the node
_CLOCK_S = 600.0  # by which a node's clock may differ from the controller's


class NodeSignature(Frozen):
    """signatures/NODE.json. `reason`: why there is no signature."""

    text: Annotated[str, Field(max_length=1 << 16)] = ""  # what was signed
    signature: Annotated[str, Field(max_length=1 << 14)] = ""  # as ssh-keygen -Y sign prints it
    host_key: Annotated[str, Field(max_length=1 << 13)] = ""  # public key: type and key
    reason: Annotated[str, Field(max_length=1000)] = ""


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
    """Check what a node answered. `key`: what its connection showed. A node that signs nothing says why. Raises
    WrongSignature."""
    text = str(answer.pop("document", ""))
    try:
        signature = NodeSignature.model_validate(answer)
    except ValidationError:
        raise WrongSignature("its signature is malformed") from None
    if not key or signature.reason:
        return SignedReading(NodeSignature(reason=printable(signature.reason, 300) or "it was not reached over SSH"))
    if signature.host_key != key:
        raise WrongSignature("it signed with another key than its connection showed")
    try:
        _held(signature, nonce, hashlib.sha256(text.encode()).hexdigest())
    except ValueError as error:
        raise WrongSignature(f"the signature on its reading does not hold: {error}") from None
    if json.loads(text) != load_sound(text, len(text)):
        return SignedReading(NodeSignature(reason="its reading had control characters, which are not kept"))
    return SignedReading(signature, zlib.compress(text.encode(), 1))


def _held(signature: NodeSignature, nonce: str, sha256: str) -> dict[str, Any]:
    """Return what was signed. Raises ValueError."""
    sshsig.check(signature.text.encode(), signature.signature, signature.host_key, NAMESPACE)
    signed = load_json(signature.text, 1 << 16)
    if not isinstance(signed, dict) or signed.get("nonce") != nonce:
        raise ValueError("it was signed for another run")
    if signed.get("sha256") != sha256 or signed.get("about") != "reading":
        raise ValueError("the signature is on another reading")
    return signed


def check(
    directory: RunDirectory, record: RunRecord, packed: bool, keys: Keys
) -> tuple[int, dict[str, str], list[str]]:
    """Hold the readings of a run against their nodes' signatures. Return how many hold, the nodes without, each with
    the reason, and what is wrong. `keys`: what known_hosts has against a key of a node; None: the key is to be the
    one that the run's own statement names. `packed`: a copy whose texts may be masked."""
    held, unsigned, wrong = 0, {}, []
    for node in record.nodes:
        name = f"{file_name(node.name)}.json"
        if node.part == "unreached" and _left_nothing(directory, record, node.name):
            continue
        try:
            signature = NodeSignature.model_validate(read_document(directory.path / SIGNATURES / name))
        except (OSError, ValueError):
            signature = NodeSignature(reason="it has no signature")
        if signature.reason:
            unsigned[node.name] = signature.reason
            continue
        try:
            _check_one(directory, record, node.name, signature, packed)
            if keys is None and sshsig.fingerprint(signature.host_key) != node.host_key:
                raise ValueError("it is of another key than the run's record has")
            if keys is not None and (problem := keys(node.name, signature.host_key)):
                raise ValueError(problem)
            held += 1
        except _Masked:
            unsigned[node.name] = "its reading was masked when the archive was made"
        except ValueError as error:
            wrong.append(f"{node.name}: the signature on its reading does not hold: {error}")
    return held, unsigned, wrong


def _left_nothing(directory: RunDirectory, record: RunRecord, node: str) -> bool:
    """Tell whether a run says nothing good of a node, and has no state of it."""
    found = [finding.verdict for finding in record.findings if finding.node == node]
    there = (directory.path / "states" / f"{file_name(node)}.json").exists()
    return bool(found) and not there and not any(verdict.passes for verdict in found)


class _Masked(Exception):
    """A copy that is not what was signed, and need not be."""


def _check_one(directory: RunDirectory, record: RunRecord, node: str, signature: NodeSignature, packed: bool) -> None:
    path = directory.path / "states" / f"{file_name(node)}.json"
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    if packed and load_json(signature.text, 1 << 16).get("sha256") != sha256:
        raise _Masked
    signed = _held(signature, record.nonce, sha256)
    if not record.nonce.startswith(f"{record.run_id}."):
        raise ValueError("it was signed for another run")
    system = directory.load_state(node).system
    if (signed.get("hostname"), signed.get("boot_id")) != (system.hostname, system.boot_id):
        raise ValueError("the signature is on another reading")
    begin = datetime.fromisoformat(record.started_at).timestamp()
    if abs(system.epoch_s - begin) > _CLOCK_S:
        raise ValueError("the node's clock and the run's times are far apart")
