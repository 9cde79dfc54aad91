"""Which nodes of a run a line of a log names: by an address, a host name with a port, or a launcher's words."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from ipaddress import IPv6Address, ip_address
from typing import Protocol

from shakedown.common.data import read_toml
from shakedown.logs.lines import unprefixed

_ADDRESS = re.compile(
    r"(?<![\w.-])(\d{1,3}(?:\.\d{1,3}){3})(?![\w-])"
    r"|(?<![0-9a-fA-F:.])((?:[0-9a-fA-F]{0,4}:){2,7}(?:\d{1,3}(?:\.\d{1,3}){3}|[0-9a-fA-F]{0,4}))(?![\w:.])"
)
# A name with a port: "node2<45678>" (RCCL), "(node1, 29500)" and "[node1]:29500" (the store).
_HOST = re.compile(r"(?<![\w.-])([A-Za-z0-9][\w.-]{0,252})\]?(?:[:<]\d{1,5}(?![\w.])|, \d{1,5}\))")


class Node(Protocol):
    """A node of a job, with all the names under which the logs of a job know it."""

    @property
    def name(self) -> str: ...
    @property
    def address(self) -> str: ...
    @property
    def names(self) -> Iterable[str]: ...


def names_in(nodes: Iterable[Node]) -> dict[str, str]:
    """Return the node of each name and address in a job."""
    return known_names((name, node.name) for node in nodes for name in (node.name, node.address, *node.names))


def known_names(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return the node of each name or address as `named` looks for it. What several nodes have in common names none,
    nor does an address that each machine has."""
    known: dict[str, set[str]] = defaultdict(set)
    short: dict[str, set[str]] = defaultdict(set)
    for name, node in pairs:
        address = _address(name)
        known[name.lower() if address is None else address].add(node)
        if address is None:
            short[name.lower().partition(".")[0]].add(node)
    every = {**short, **known}
    return {name: nodes.pop() for name, nodes in every.items() if len(nodes) == 1 and not name.isdigit() and name}


def named(line: str, names: Mapping[str, str], speaker: str | None = None) -> tuple[str, ...]:
    """Return the nodes that a line names beside the one that wrote the line."""
    found = (_node(word, names) for word in _words(line))
    return tuple(dict.fromkeys(node for node in found if node is not None and node != speaker))


def of_another(line: str, names: Mapping[str, str], speaker: str) -> bool:
    """Return whether a launcher writes here how another node ended, or a node that is not known."""
    hosts = [host for form in _forms("launcher") for host in form.findall(unprefixed(line))]
    return any(_node(host, names) != speaker for host in hosts)


def _words(line: str) -> Iterator[str]:
    text = unprefixed(line)
    for form in _forms("speaker"):
        text = form.sub("", text)
    for found in _ADDRESS.findall(text):
        yield found[0] or found[1]
    for form in (_HOST, *_forms("launcher")):
        yield from form.findall(text)


def _node(word: str, names: Mapping[str, str]) -> str | None:
    address = _address(word)
    if address is not None:
        return names.get(address)
    host = word.lower().rstrip(".")
    return names.get(host) or names.get(host.partition(".")[0])


def _address(text: str) -> str | None:
    """Return an address in the one form in which it is known; empty: each machine has it. None: it is no address."""
    try:
        address = ip_address(text.partition("%")[0])
    except ValueError:
        return None
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return "" if address.is_loopback or address.is_unspecified else str(address)


@cache
def _forms(kind: str) -> tuple[re.Pattern[str], ...]:
    return tuple(re.compile(form["pattern"]) for form in read_toml("shakedown.catalogue", "names.toml")[kind])
