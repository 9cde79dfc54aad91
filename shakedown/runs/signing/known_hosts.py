"""Host keys of nodes in a known_hosts file, with the patterns, hashed names and markers that sshd(8) describes."""

import base64
import hmac
import re
from collections import defaultdict
from fnmatch import translate
from pathlib import Path

from shakedown.runs.signing.envelope import opened

_LIMIT = 64 << 20  # bytes; 100,000 nodes with three keys have some 40 MiB


class KnownHosts:
    """The host keys that count for nodes, and the keys that are revoked."""

    def __init__(self, file: Path) -> None:
        """Read the file. Raises OSError; ValueError for a file without any key."""
        with opened(file) as source:
            content = source.read(_LIMIT + 1)
        if len(content) > _LIMIT:
            raise ValueError(f"{file}: it has more than {_LIMIT} bytes: give a known_hosts file with the nodes alone")
        self._names: dict[str, dict[str, bool]] = defaultdict(dict)  # name or patterns -> key -> whether it is revoked
        for words in (line.split() for line in content.decode("utf-8", "replace").splitlines()):
            marker = words.pop(0) if words and words[0].startswith("@") else ""
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
        return "" if found else "it is of a key that known_hosts does not have for the node"


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
