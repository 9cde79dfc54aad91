"""The catalogue's entries of the kernel's log, compiled for the matcher that controller and nodes share, and what the
registers of an error bank state."""

import re
from collections.abc import Callable, Iterable, Sequence
from functools import cache, lru_cache
from typing import Any

from ahocorasick_rs import AhoCorasick, Implementation

from shakedown.catalogue.model import entries
from shakedown.common.data import read_toml
from shakedown.node.kernel_verdict import Matcher, bank_severity, bank_status

_IPID = re.compile(r"\bIPID(?:=|: |\s)\s{0,4}(?:0x)?([0-9a-f]{9,16})\b", re.IGNORECASE)
_FLAGS = {62: "overflow", 61: "uncorrected", 57: "context corrupt", 55: "task context corrupt"}
_AMD_FLAGS = {46: "corrected by ECC", 45: "ECC failed", 44: "deferred", 43: "poison"}
_WORDS = {"fatal": "fatal", "error": "not corrected", "corrected": "corrected"}


@cache
def _units() -> tuple[dict[tuple[int, int], str], dict[int, str]]:
    document = read_toml("shakedown.catalogue", "banks.toml")
    units = {(unit["hwid"], mcatype): unit["name"] for unit in document["units"] for mcatype in unit["mcatype"]}
    return units, {instance["id"]: instance["name"] for instance in document["smu_instances"]}


def describe(message: str, bank: str) -> str:
    """Return what the registers on a line state; empty where the line holds none. `bank`: "aca" or "mce"."""
    parts = []
    status = bank_status(message)
    if status is not None:
        flags = _FLAGS | (_AMD_FLAGS if bank == "aca" else {})
        names = [name for bit, name in flags.items() if status >> bit & 1]
        parts.append(", ".join([_WORDS[bank_severity(status, bank)], *names]))
    if found := _IPID.search(message):
        parts.append(f"unit: {_unit(int(found[1], 16), bank)}")
    return "; ".join(parts)


def _unit(ipid: int, bank: str) -> str:
    """Return the unit of an IPID, with socket and die of a GPU's bank."""
    units, instances = _units()
    hwid, mcatype, low, high = ipid >> 32 & 0xFFF, ipid >> 48 & 0xFFFF, ipid & 0xFFFFFFFF, ipid >> 44 & 0xF
    name = units.get((hwid, mcatype), f"HardwareID {hwid:#x}, McaType {mcatype:#x}")
    if bank != "aca":
        return name
    if (hwid, mcatype) == (0x01, 0x1):
        name = instances.get(low & ~1, name)
    return f"{name}, socket {(low & 1) << 2 | high & 3}, die {high >> 2}"


@cache
def matcher() -> Matcher:
    found = Matcher(compiled(), _search)
    found.match = lru_cache(128)(found.match)  # type: ignore[method-assign]  # a storm repeats its lines
    return found


def compiled() -> list[dict[str, Any]]:
    """Return the entries as `Matcher` takes them, and as a node's agent carries them."""
    return [
        {
            **entry.model_dump(include=_FIELDS),
            "forms": [list(form) for form in entry.forms],
            "drivers": [driver.lower() for driver in entry.drivers],
        }
        for entry in entries("kernel")
    ]


_FIELDS = {
    *("name", "part", "severity", "pattern", "unless", "level"),
    *("link", "bank", "group", "detail", "begins", "general", "remedy"),
}


def _search(anchors: Sequence[str]) -> Callable[[str], Iterable[int]]:
    """Return a function that finds all anchors of a text in one pass."""
    indexes: dict[str, list[int]] = {}
    for index, anchor in enumerate(anchors):
        indexes.setdefault(anchor, []).append(index)
    distinct = list(indexes)
    automaton = AhoCorasick(distinct, implementation=Implementation.ContiguousNFA)

    def find(text: str) -> Iterable[int]:
        found = {pattern for pattern, _, _ in automaton.find_matches_as_indexes(text, overlapping=True)}
        return [index for pattern in found for index in indexes[distinct[pattern]]]

    return find
