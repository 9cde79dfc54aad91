"""OpenSSH's forms: signatures by PROTOCOL.sshsig, verified here, and host keys of known_hosts as in sshd(8)."""

import base64
import hashlib
import hmac
import re
import struct
from collections import defaultdict
from fnmatch import translate
from pathlib import Path

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

from shakedown.runs.signing.envelope import opened

_BEGIN, _END = "-----BEGIN SSH SIGNATURE-----", "-----END SSH SIGNATURE-----"
_DIGESTS = {b"sha256": hashlib.sha256, b"sha512": hashlib.sha512}
_CURVES: dict[int, hashes.HashAlgorithm] = {256: hashes.SHA256(), 384: hashes.SHA384(), 521: hashes.SHA512()}
_RSA: dict[bytes, hashes.HashAlgorithm] = {b"rsa-sha2-256": hashes.SHA256(), b"rsa-sha2-512": hashes.SHA512()}
_LIMIT = 16 << 10  # characters


def fingerprint(key: str) -> str:
    """Return a public key's fingerprint as `ssh-keygen -l` prints it: "ssh-ed25519 SHA256:...". Raises ValueError."""
    kind, _, blob = key.partition(" ")
    digest = hashlib.sha256(base64.b64decode(blob, validate=True)).digest()
    return f"{kind} SHA256:{base64.b64encode(digest).decode().rstrip('=')}"


def check(text: bytes, armour: str, key: str, namespace: str) -> None:
    """Raise ValueError where this is no signature of the key ("ssh-ed25519 AAAA...") on the text in the namespace."""
    lines = armour.removesuffix("\n").split("\n")  # CR LF, blanks around it: not as ssh-keygen has it
    if len(armour) > _LIMIT or len(lines) < 3 or lines[0] != _BEGIN or lines[-1] != _END:
        raise ValueError("it is no signature of ssh-keygen")
    try:
        blob = base64.b64decode("".join(lines[1:-1]), validate=True)
        if blob[:10] != b"SSHSIG" + struct.pack(">I", 1):
            raise ValueError("it is no signature of ssh-keygen")
        public, space, reserved, name, signature = _strings(blob[10:], 5)
        algorithm, raw = _strings(signature, 2)
        if base64.b64decode(key.partition(" ")[2], validate=True) != public:
            raise ValueError("it is a signature of another key")
        if space != namespace.encode() or name not in _DIGESTS:
            raise ValueError("it is a signature for another purpose")
        parts = (space, reserved, name, _DIGESTS[name](text).digest())
        _verify(key, algorithm, raw, b"SSHSIG" + b"".join(struct.pack(">I", len(part)) + part for part in parts))
    except (InvalidSignature, UnsupportedAlgorithm, struct.error):
        raise ValueError("it is not the signature of this key on this text") from None


def _verify(key: str, algorithm: bytes, raw: bytes, data: bytes) -> None:
    public = serialization.load_ssh_public_key(key.encode())
    if isinstance(public, ed25519.Ed25519PublicKey) and algorithm == b"ssh-ed25519":
        public.verify(raw, data)
    elif isinstance(public, ec.EllipticCurvePublicKey) and algorithm == key.partition(" ")[0].encode():
        r, s = (int.from_bytes(number, "big") for number in _strings(raw, 2))
        public.verify(encode_dss_signature(r, s), data, ec.ECDSA(_CURVES[public.curve.key_size]))
    elif isinstance(public, rsa.RSAPublicKey) and algorithm in _RSA and public.key_size >= 2048:
        public.verify(raw, data, padding.PKCS1v15(), _RSA[algorithm])
    else:
        raise ValueError("its key is of a kind that does not count")


def _strings(data: bytes, count: int) -> list[bytes]:
    """Return so many strings of SSH's wire format, and nothing behind them."""
    found = []
    for _ in range(count):
        (size,) = struct.unpack(">I", data[:4])
        found.append(data[4 : 4 + size])
        if len(found[-1]) != size:
            raise struct.error
        data = data[4 + size :]
    if data:
        raise struct.error
    return found


_LARGEST_FILE = 64 << 20  # bytes; 100,000 nodes with three keys have some 40 MiB


class KnownHosts:
    """The host keys that count for nodes, and the keys that are revoked."""

    def __init__(self, file: Path) -> None:
        """Read the file. Raises OSError; ValueError for a file without any key."""
        with opened(file) as source:
            content = source.read(_LARGEST_FILE + 1)
        if len(content) > _LARGEST_FILE:
            more = f"it has more than {_LARGEST_FILE} bytes"
            raise ValueError(f"{file}: {more}: give a known_hosts file with the nodes alone")
        self._names: dict[str, dict[str, bool]] = defaultdict(dict)  # name or patterns -> key -> whether it is revoked
        for line in content.decode("utf-8", "replace").split("\n"):
            words = re.split("[ \t]+", line.strip(" \t\r"))  # as ssh has it: no other blank divides or ends a line
            marker = words.pop(0) if words[0].startswith("@") else ""
            if len(words) < 3 or words[0].startswith("#") or marker not in ("", "@revoked"):
                continue  # @cert-authority: no node's key
            names = [words[0]] if re.search(r"[|*?!]", words[0]) else words[0].lower().split(",")
            for name in names:
                key, known = f"{words[1]} {words[2]}", self._names[name]
                known[key] = known.get(key, False) or bool(marker)
        if not self._names:
            raise ValueError(f"{file}: it is no known_hosts file: no line has a node's key")
        self._patterns = [name for name in self._names if re.search(r"[|*?!]", name)]

    def problem(self, node: str, key: str) -> str:
        """Return why a key ("ssh-ed25519 AAAA...") does not count for a node; empty: it does."""
        name = node.lower()
        places = [name, *(names for names in self._patterns if key in self._names[names] and _fits(name, names))]
        found = [self._names[place][key] for place in places if key in self._names.get(place, ())]
        if any(found):
            return "it is of a key that known_hosts has as revoked"
        return "" if found else "it is of a key that known_hosts does not have under the node's name"


def _fits(node: str, names: str) -> bool:
    """Tell whether a node's name is the hashed name, or fits one of the patterns and no pattern with a "!"."""
    if names.startswith("|1|"):
        _, _, salt, digest = (names + "|").split("|")[:4]
        try:
            return hmac.digest(base64.b64decode(salt), node.encode(), "sha1") == base64.b64decode(digest)
        except ValueError:
            return False
    fitting = (
        part for part in names.lower().split(",") if re.match(translate(part.lstrip("!").replace("[", "[[]")), node)
    )
    found = [not part.startswith("!") for part in fitting]
    return bool(found) and all(found)
