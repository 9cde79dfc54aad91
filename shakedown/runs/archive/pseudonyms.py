"""Pseudonyms for names and addresses: the same one for the same thing in every file, of the same form as what it stands
for, so that whatever reads an address still reads one.

Two kinds are found: what the run's own documents name (nodes, users, homes, serials), and what has the form of an
address. Loopback, unspecified and broadcast addresses stay: they name nobody.
"""

import ipaddress
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import cache, lru_cache
from typing import Any

from shakedown.catalogue import Log, entries
from shakedown.common.command_secrets.forms import Signs, plain
from shakedown.common.data import read_toml
from shakedown.common.text import file_name
from shakedown.node.system import GROUPS
from shakedown.runs.directory import RunRecord

_OCTET = r"(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)"
_FOUR = rf"{_OCTET}(?:\.{_OCTET}){{3}}"
_HEX2, _HEX4 = "[0-9a-fA-F]{2}", "[0-9a-fA-F]{4}"
_MAC = rf"(?<![\w:]){_HEX2}(?P<between>[:-]){_HEX2}(?:(?P=between){_HEX2}){{4,18}}(?![\w:])"
_GUID = rf"(?<![\w:]){_HEX4}(?::{_HEX4}){{3}}(?![\w:])"
_UUID = r"(?<![\w-])[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}(?![\w-])"
_IPV4 = rf"(?<![\w.]){_FOUR}(?!\w|\.\d)"
_IPV6 = rf"(?<![\w:.])(?:[0-9a-fA-F]{{0,4}}:){{2,7}}(?:{_FOUR}|[0-9a-fA-F]{{1,4}}|)(?![\w:]|\.\d)"
_NETWORK = rf"(?<![\w.])(?P<network>{_FOUR})/(?P<bits>3[0-2]|[12]?\d)(?![\w./])"
_FORMS = re.compile("|".join([_UUID, _MAC, _IPV6, _GUID, _NETWORK, _IPV4]))
_HOME = r"(?<=/home/)(?P<home>[A-Za-z0-9_][A-Za-z0-9._-]{0,63})"
_WORD = r"(?<!\w)@?\w[\w.-]*"
_JOINTS = re.compile(r"([@.-]+)")
_V4 = ipaddress.ip_network("198.18.0.0/15")  # for benchmarks of network devices (RFC 2544): nobody's
_NETWORKS = 240 << 24  # where networks are put: 240.0.0.0/4 is reserved (RFC 1112), and has room for those of 4 bits on
_HEX = bytes.maketrans(b"0123456789abcde", b"f" * 15)
_SPACES = bytes.maketrans(b"\n", b" ")
_REMEMBERED = 100_000  # pieces of text that are shorter than _SHORT, of at most some MB
_SHORT = 100  # characters
_FEW = 3  # characters: a shorter name is a word that stands elsewhere by chance
SYSTEM = re.compile(r"/(?:boot|dev|etc|lib(?:64)?|opt|proc|run|sys|usr|var)/")
"""A path whose parts are words of the system."""


@cache
def _hex_signs() -> Signs:
    """Return what stands in each of the forms, with each of its digits as an "f"."""
    groups = ["f" * length for length in range(1, 5)]
    ipv6 = [f":{first}:{second}:{third}:" for first in groups for second in groups for third in groups]
    return Signs([*(f".{octet}." for octet in groups[:3]), "::", *ipv6, "-ff-ff-ff-", ":ffff:ffff:", "-ffff-ffff-"])


class Pseudonyms:
    """`names` are known words and what they are ("host", "user", "serial", "domain"); `keep` are texts that look like
    an address and are none (versions of firmware), `reserved` words that a log means otherwise, `ambiguous` names that
    are another word as a whole text, too."""

    def __init__(
        self,
        names: Mapping[str, str],
        keep: Iterable[str] = (),
        reserved: Iterable[str] = (),
        ambiguous: Collection[str] = (),
    ) -> None:
        self.mapping: dict[str, str] = {}
        self.spared: list[str] = []  # names that stay where they stand alone in a text
        self._counts: dict[str, int] = {}
        self._keep = set(keep)
        self._known: dict[str, str] = {}
        reserved = {word.lower() for word in (*reserved, *ambiguous)}
        self._ambiguous = ambiguous
        odd = []
        for name, kind in names.items():
            address = self._address(name)
            nobodys = address == name == self._of_ip(name)  # a node behind a tunnel may be called 127.0.0.1
            self._known[name] = address if nobodys or address != name else self._named(name, kind)
            if kind == "host" and (file := file_name(name)) != name:  # what names its folder stays what names it
                self._known[file] = self._known[name]
                odd.append(re.escape(file))
            if len(name) < _FEW or name.lower() in reserved:
                self.spared.append(name)
            elif not re.fullmatch(_WORD, name):
                odd.append(re.escape(name))
        self._spared = set(self.spared)
        self._most = max((len(_JOINTS.split(name)) for name in self._known), default=0)  # parts of the longest name
        self._words = re.compile("|".join([*sorted(odd, key=len, reverse=True), _HOME, _WORD]))
        spaced = "|".join(name for name in sorted(odd, key=len, reverse=True) if re.search(r"\s", name))
        self._spaced = re.compile(f"({spaced})") if spaced else None
        self._short_piece = lru_cache(_REMEMBERED)(self._piece)
        self._signs = Signs(["/home/", *(name for name in self._known if name and not re.search(r"\s", name))])

    def text(self, text: str) -> str:
        """Return the text with every one replaced. No form goes over a space: each piece is worked out once."""
        if self._spaced is None:
            return self._of_pieces(text)
        parts = self._spaced.split(text)  # a name and what is between two, in turn
        return "".join(self._known[part] if at % 2 else self._of_pieces(part) for at, part in enumerate(parts))

    def _of_pieces(self, text: str) -> str:
        flat, made, done = plain(text), [], 0
        spaced = flat.translate(_SPACES)
        for at in sorted(self._signs.begins(flat) | _hex_signs().begins(flat.translate(_HEX))):
            if at >= done:
                begin, end = spaced.rfind(b" ", done, at) + 1 or done, spaced.find(b" ", at)
                end = len(text) if end < 0 else end
                piece = text[begin:end]
                made += [text[done:begin], (self._short_piece if len(piece) < _SHORT else self._piece)(piece)]
                done = end
        return "".join([*made, text[done:]])

    def _piece(self, text: str) -> str:
        return self._words.sub(self._word, _FORMS.sub(self._form, text))

    def _form(self, found: re.Match[str]) -> str:
        if found["network"] is None:
            return self._address(found[0])
        try:
            network = ipaddress.ip_network(found[0])
        except ValueError:  # an address of an interface, with the bits of its network
            return f"{self._address(found['network'])}/{found['bits']}"
        if not 8 <= network.prefixlen < 32 or network.is_loopback or network.is_multicast:
            return f"{self._address(found['network'])}/{found['bits']}"
        size = network.num_addresses
        return self._numbered(
            found[0],
            f"network/{network.prefixlen}",
            lambda n: f"{ipaddress.ip_address(_NETWORKS + n * size % (1 << 28))}/{found['bits']}",
        )

    def of(self, name: str) -> str:
        """Return the pseudonym of a known name."""
        return self._known[name]

    def value(self, text: str) -> str:
        """Return a text of a document, which may be a name as a whole."""
        return self._known[text] if text in self._known and text not in self._ambiguous else self.text(text)

    def _word(self, found: re.Match[str]) -> str:
        word = found[0]
        if (home := found["home"]) is not None:
            return self._known.get(home) or self._named(home, "user")
        if word in self._known:
            return self._known[word] if word not in self._spared or _stands_as_a_name(found) else word
        parts = _JOINTS.split(word)
        return word if len(parts) == 1 else self._of_parts(parts)

    def _of_parts(self, parts: list[str]) -> str:
        """Return a word with dots or dashes, its longest names replaced; the work grows with its length alone."""
        pieces, at = [], 0
        while at < len(parts):
            for end in range(min(len(parts), at + self._most), at, -1):
                part = "".join(parts[at:end])
                if part in self._known and part not in self._spared:
                    pieces.append(self._known[part])
                    at = end
                    break
            else:
                pieces.append(parts[at])
                at += 1
        return "".join(pieces)

    def _address(self, text: str) -> str:
        if text in self._keep:
            return text
        for made in (self._of_ip, self._of_uuid, self._of_hex):
            if (new := made(text)) is not None:
                return new
        return text

    def _of_ip(self, text: str) -> str | None:
        try:
            address = ipaddress.ip_address(text)
        except ValueError:
            return None
        if address.is_loopback or address.is_unspecified or address.is_multicast or text.startswith("255."):
            return text
        if isinstance(address, ipaddress.IPv4Address):
            return self._numbered(str(address), "ipv4", lambda count: str(_V4[count]))
        if address.ipv4_mapped is not None:
            inner = ipaddress.ip_address(self._of_ip(str(address.ipv4_mapped)) or "0.0.0.0")
            new = ipaddress.IPv6Address(f"::ffff:{inner}")
        else:
            begin = "fe80::" if address.is_link_local else "2001:db8::"
            new = ipaddress.IPv6Address(self._numbered(str(address), "ipv6", lambda count: f"{begin}{count:x}"))
        if len(text) == len(new.exploded) and "::" not in text:  # as sysfs writes GIDs
            return new.exploded
        return str(new)

    def _of_uuid(self, text: str) -> str | None:
        if not re.fullmatch(_UUID, text):
            return None
        return self._numbered(text.lower(), "uuid", lambda count: f"00000000-0000-4000-8000-{count:012x}")

    def _of_hex(self, text: str) -> str | None:
        """Return another MAC or GUID of the same form. One of zeros or of "f" alone is nobody's."""
        kind = "mac" if re.fullmatch(_MAC, text) else "guid" if re.fullmatch(_GUID, text) else ""
        if not kind:
            return None
        digits = re.sub("[:-]", "", text).lower()
        if set(digits) in ({"0"}, {"f"}):
            return text
        new = self._numbered(digits, kind, lambda count: f"02{count:0{len(digits) - 2}x}")
        step = 2 if kind == "mac" else 4
        return text[step].join(new[at : at + step] for at in range(0, len(new), step))

    def _named(self, name: str, kind: str) -> str:
        if kind == "serial":
            return self._numbered(name, kind, lambda count: f"{count:0{max(len(name), 4)}x}")
        suffix = ".invalid" if kind == "domain" else ""
        return self._numbered(name, kind, lambda count: f"{kind}-{count:03d}{suffix}")

    def _numbered(self, text: str, kind: str, make: Callable[[int], str]) -> str:
        if text not in self.mapping:
            self._counts[kind] = count = self._counts.get(kind, 0) + 1
            self.mapping[text] = make(count)
        return self.mapping[text]


def _stands_as_a_name(found: re.Match[str]) -> bool:
    """Whether a word that may mean something else is a name here: behind an at, a path's slash, before a colon."""
    text, word = found.string, found[0]
    before, after = text[max(found.start() - 1, 0) : found.start()], text[found.end() : found.end() + 1]
    in_path = before == "/" and not SYSTEM.match(text)
    return in_path or before == "@" or (len(word) < _FEW and after == ":")


_USERS = {"user", "owner", *GROUPS}  # a group's key has its members
_PLACES = {"device", "tags", "digests", "reference", "registry"}  # whose values may begin with the name of a server
_SERVER = re.compile(r"([A-Za-z][\w.-]*)(?=:\d*/)|([A-Za-z][\w-]*(?:\.[\w-]+)+)(?=/)|//([A-Za-z][\w.-]*)(?=/)")
PUBLIC = {"docker.io", "ghcr.io", "quay.io", "nvcr.io", "huggingface.co", "github.com", "repo.radeon.com", "localhost"}
_SERIALS = {"serial", "board_serial", "uuid", "unique_id", "machine_id", "host_key"}
_NAMES = {"name", "node", "verdict", "part", "kind", "stage", "recipe", "metric", "run_id", "missing", "scope", "title"}
_VERSIONS = {"firmware", "version", "driver", "fw", "rocm_version", "gpu_tool", "kernel", "bios"}
_EVERYBODYS = {"root", "nobody", "daemon", ""}


def names_in_run(record: RunRecord, states: Iterable[Any]) -> dict[str, str]:
    """Each name with what it is of: "host", "user", "serial" or "domain"."""
    plans = [job.plan for job in record.jobs if job.plan]
    hosts = [node.name for node in record.nodes]
    hosts += [name for plan in plans for name in (*(node.name for node in plan.nodes), *plan.missing)]
    found = dict.fromkeys([*hosts, *(finding.node for finding in record.findings)], "host")
    found |= dict.fromkeys(filter(None, (node.host_key for node in record.nodes)), "serial")
    found = with_names_in(states, found)
    found.pop("fleet", None)  # what all nodes have in common is a finding of none of them
    return found


def with_names_in(documents: Iterable[Any], found: dict[str, str]) -> dict[str, str]:
    """Return the known names, and those that documents have under their keys; of each host its short name, too."""
    found = dict(found)
    for document in documents:
        for key, value in _texts(document):
            if key == "hostname":
                found.setdefault(value, "host")
            elif key in _USERS and value not in _EVERYBODYS:
                found.setdefault(value, "user")
            elif key in _SERIALS and len(value) > 3:
                found.setdefault(value, "serial")
            elif key in _PLACES and (server := _SERVER.match(value)) and server[server.lastindex or 0] not in PUBLIC:
                found.setdefault(server[server.lastindex or 0], "host")
    hosts = [name for name, kind in found.items() if kind == "host"]
    for host in hosts:
        first, _, domain = host.partition(".")
        if domain and re.search("[A-Za-z]", domain):
            found.setdefault(first, "host")
            found.setdefault(domain, "domain")
            while domain.count(".") > 1:  # the names above it, which an address of mail has
                domain = domain.partition(".")[2]
                found.setdefault(domain, "domain")
    return found


def own_words(documents: Iterable[Any]) -> set[str]:
    """Return the keys of a run's own documents and the names in them, of which no log makes a secret."""
    found: set[str] = set()
    for document in documents:
        found.update(keys(document))
        found.update(text for key, text in _texts(document) if key in _NAMES)
    return found


def keys(value: Any) -> Iterator[str]:
    """Yield every key of a document."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    if isinstance(value, dict):
        yield from value
    for part in inner:
        yield from keys(part)


def versions(states: Iterable[Any]) -> set[str]:
    """Texts of four numbers that are versions of something."""
    return {value for state in states for key, value in _texts(state) if key in _VERSIONS}


@cache
def words_of_logs() -> frozenset[str]:
    """Words that are read out of logs: a node that has such a name keeps it where it may mean the other thing."""
    logs: tuple[Log, ...] = ("job", "rccl", "kernel")
    known = [text for log in logs for entry in entries(log) for text in (*entry.text, entry.pattern or "")]
    fields = read_toml("shakedown.logs", "fields.toml")
    text = " ".join([*known, *(value for _, value in _texts(fields))])
    return frozenset(word.lower() for word in re.findall(r"[A-Za-z_]{2,}", f"iteration rank node logs {text}"))


def _texts(value: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """Every text of a document with the key that it stands under; below a key of versions, with that."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _texts(inner, key if key in _VERSIONS else str(name))
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner, key)
    elif isinstance(value, str):
        yield key, value
