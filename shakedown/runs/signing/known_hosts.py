"""Host keys of nodes in a known_hosts file, with the patterns, hashed names and markers that sshd(8) describes."""

import base64
import hmac
import re
from collections import defaultdict
from collections.abc import Iterator
from fnmatch import translate
from pathlib import Path

from shakedown.runs.signing.statement import opened

_LIMIT = 64 << 20  # bytes; 100,000 nodes with three keys have some 40 MiB
_REVOKED, _AUTHORITY = "@revoked", "@cert-authority"


class KnownHosts:
    """The host keys that count for nodes, and the keys that are revoked."""

    def __init__(self, file: Path) -> None:
        """Read the file. Raises OSError; ValueError for a file without any key."""
        with opened(file) as source:
            content = source.read(_LIMIT + 1)
        if len(content) > _LIMIT:
            raise ValueError(f"{file}: it has more than {_LIMIT} bytes: give a known_hosts file with the nodes alone")
        self._names: dict[str, list[tuple[bool, str]]] = defaultdict(list)
        self._patterns: list[tuple[str, bool, str]] = []
        for words in (line.split() for line in content.decode("utf-8", "replace").splitlines()):
            marker = words.pop(0) if words and words[0].startswith("@") else ""
            if len(words) < 3 or words[0].startswith("#") or marker not in ("", _REVOKED):
                continue  # a certificate authority's key is no node's
            entry = marker == _REVOKED, f"{words[1]} {words[2]}"
            if re.search(r"[|*?!]", words[0]):
                self._patterns.append((words[0], *entry))
            else:
                for name in words[0].lower().split(","):
                    self._names[name].append(entry)
        if not self._names and not self._patterns:
            raise ValueError(f"{file}: it is no known_hosts file: no line has a node's key")

    def problem(self, node: str, key: str) -> str:
        """Return why a key ("ssh-ed25519 AAAA...") does not count for a node; empty: it does."""
        found = [revoked for revoked, known in self._entries(node.lower()) if known == key]
        if any(found):
            return "it is of a key that known_hosts has as revoked"
        return "" if found else "it is of a key that known_hosts does not have for the node"

    def _entries(self, node: str) -> Iterator[tuple[bool, str]]:
        yield from self._names.get(node, ())
        yield from ((revoked, key) for names, revoked, key in self._patterns if _fits(node, names))


def _fits(node: str, names: str) -> bool:
    """Tell whether a node's name is the hashed name, or fits one of the patterns and no pattern with a "!"."""
    if names.startswith("|1|"):
        _, _, salt, digest = (names + "|").split("|")[:4]
        try:
            return hmac.digest(base64.b64decode(salt), node.encode(), "sha1") == base64.b64decode(digest)
        except ValueError:
            return False
    found = [pattern[:1] != "!" for pattern in names.lower().split(",") if _pattern(pattern.lstrip("!"), node)]
    return bool(found) and all(found)


def _pattern(pattern: str, node: str) -> bool:
    return re.fullmatch(translate(pattern.replace("[", "[[]")), node) is not None
