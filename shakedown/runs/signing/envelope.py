"""A statement's signature file: DSSE v1.0.2 as a Sigstore bundle v0.3 (sigstore/protobuf-specs), by ECDSA on P-256,
since cosign refuses Ed25519 by default (cosign PR 5074, read 2026-08-26). JSON, base64 and signature have one form
each, so a change of any bit is refused."""

import base64
import binascii
import hashlib
import json
import os
import re
import stat
from io import BufferedReader
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature, encode_dss_signature

from shakedown.common.secret_file import SecretError, read_owned
from shakedown.node import owners

TYPE = "application/vnd.in-toto+json"
MEDIA = "application/vnd.dev.sigstore.bundle.v0.3+json"
LIMIT = 128 << 20  # bytes of a file; 10,000 nodes with 20 files each have 40 MB
_ALGORITHM = ec.ECDSA(hashes.SHA256())
_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551  # of P-256: FIPS 186-5, SEC 2
_MAKE = "make a pair with openssl as docs/evidence.md shows"


class NotSigned(ValueError):
    """A file holds no signature that counts; says why."""


_FORM = re.compile(
    rb'\{\n "mediaType": "[^"]*",\n "verificationMaterial": \{\n  "publicKey": \{\n   "hint": "(?P<hint>[0-9a-f]{64})"'
    rb'[^"]*"tlogEntries": \[\]\n \},\n "dsseEnvelope": \{\n  "payload": "(?P<payload>[A-Za-z0-9+/=]*)",'
    rb'\n  "payloadType": "[^"]*",\n  "signatures": \[\n   \{\n    "sig": "(?P<sig>[A-Za-z0-9+/=]*)",'
    rb'\n    "keyid": "[0-9a-f]{64}"\n   \}\n  \]\n \}\n\}\n'
)


def private_key(name: str | Path) -> ec.EllipticCurvePrivateKey:
    """Read a site's private key. Raises SecretError with the file and the remedy, never with the content."""
    content = read_owned(name, "no private key")
    _closed(Path(name).expanduser())
    try:
        key = serialization.load_pem_private_key(content, None)
    except TypeError:
        raise SecretError(f"{name} is encrypted, and nothing asks for its passphrase here: {_MAKE}") from None
    except (ValueError, UnsupportedAlgorithm):
        raise SecretError(f"{name} holds no private key in PEM: {_MAKE}") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey) or not isinstance(key.curve, ec.SECP256R1):
        raise SecretError(f"{name} holds a key that is not ECDSA on P-256: {_MAKE}")
    return key


def _closed(path: Path) -> None:
    """Raise SecretError where others can read the folder of a private key, or put another key in its place."""
    for folder in dict.fromkeys((path.parent, path.resolve().parent)):
        try:
            if Path(owners.place(str(folder))).stat().st_mode & 0o044:
                raise SecretError(f"{path}: others can read its folder: chmod 700 {folder}, or move the key")
        except PermissionError as error:
            why = f"others can write in {error.filename}, and so lay another key there"
            raise SecretError(f"{path}: {why}: move the key to a folder of your own, chmod 700") from None
        except OSError as error:
            raise SecretError(f"{folder} cannot be read: {error.strerror}") from None


def opened(path: Path) -> BufferedReader:
    """Open a file to read it; a FIFO is not waited for. Raises OSError, ValueError for what is no file."""
    file = os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY), "rb")
    if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        return file
    file.close()
    raise ValueError(f"{path}: it is not a file")


def public_key(path: Path) -> ec.EllipticCurvePublicKey:
    """Read a site's public key. Raises ValueError, OSError."""
    with opened(path) as file:
        content = file.read(1 << 14)
    if b"PRIVATE KEY" in content:
        raise ValueError(f"{path} holds a private key: give the public key, and keep the private key at home")
    try:
        key = serialization.load_pem_public_key(content)
    except (ValueError, UnsupportedAlgorithm):
        raise ValueError(f"{path} holds no public key in PEM: {_MAKE}") from None
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
        raise ValueError(f"{path} holds a key that is not ECDSA on P-256: {_MAKE}")
    return key


def hint(key: ec.EllipticCurvePublicKey) -> str:
    """Return the SHA-256 of a public key in DER, hex: what `openssl pkey -pubin -outform DER | sha256sum` prints."""
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    return hashlib.sha256(key.public_bytes(serialization.Encoding.DER, form)).hexdigest()


def signed(payload: bytes, key: ec.EllipticCurvePrivateKey) -> bytes:
    """Return the file with the payload and its signature."""
    r, s = decode_dss_signature(key.sign(_signed_text(payload), _ALGORITHM))
    return _file(payload, encode_dss_signature(r, min(s, _ORDER - s)), hint(key.public_key()))


def verified(text: bytes, key: ec.EllipticCurvePublicKey) -> bytes:
    """Return the payload of a file, if the key signed it. Raises NotSigned. Nothing of the payload is parsed before."""
    found = _FORM.fullmatch(text)  # by its form alone: a JSON parser would take much memory for a stranger's text
    if found is None:
        raise NotSigned("it is no Sigstore bundle with a DSSE envelope, or not as Shakedown writes it")
    try:
        payload, signature = (base64.b64decode(part, validate=True) for part in found.group("payload", "sig"))
    except binascii.Error:
        raise NotSigned("its payload or its signature is no base64") from None
    if found["hint"].decode() != hint(key):
        raise NotSigned(f"it names another key, sha256 {found['hint'].decode()}: give that one's public key")
    if text != _file(payload, signature, hint(key)):
        raise NotSigned("it is not as Shakedown writes it: take the file from its run")
    try:
        r, s = decode_dss_signature(signature)
        if s > _ORDER // 2 or encode_dss_signature(r, s) != signature:
            raise NotSigned("its signature is not in the form that Shakedown writes")
        key.verify(signature, _signed_text(payload), _ALGORITHM)
    except (InvalidSignature, ValueError) as error:
        raise error if isinstance(error, NotSigned) else NotSigned("its signature is not of this key") from None
    return payload


def _signed_text(payload: bytes) -> bytes:
    """Return what is signed: DSSE's pre-authentication encoding."""
    return b"DSSEv1 %d %b %d %b" % (len(TYPE), TYPE.encode(), len(payload), payload)


def _file(payload: bytes, signature: bytes, name: str) -> bytes:
    document: dict[str, Any] = {
        "mediaType": MEDIA,
        "verificationMaterial": {"publicKey": {"hint": name}, "tlogEntries": []},
        "dsseEnvelope": {
            "payload": base64.b64encode(payload).decode(),
            "payloadType": TYPE,
            "signatures": [{"sig": base64.b64encode(signature).decode(), "keyid": name}],
        },
    }
    return json.dumps(document, indent=1).encode() + b"\n"
