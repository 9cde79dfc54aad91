"""Finds the catalogue's entry for a message of the kernel. The controller and the agent on a node both use this."""

from __future__ import annotations

import re
from bisect import bisect_left
from typing import Any, Callable, Dict, Iterable, List, Optional, Sequence, Set, Tuple

Entry = Dict[str, Any]  # as shakedown/catalogue/kernel.py compiles it

LONGEST = 2000  # characters of a message that are looked at; the kernel writes at most 1,024


class Matcher:
    """Finds the entry of a message. `entries` stand in the order in which they are tried.

    `search` returns the indexes of the anchors and drivers that a text holds; without it each is looked for in turn.
    """

    def __init__(
        self,
        entries: Sequence[Entry],
        search: Optional[Callable[[Sequence[str]], Callable[[str], Iterable[int]]]] = None,
    ) -> None:
        self.entries = entries
        self._forms: List[Tuple[int, Sequence[str]]] = []  # index of the entry, pieces
        for index, entry in enumerate(entries):
            self._forms += [(index, pieces) for pieces in entry["forms"]]
        self._drivers = sorted({driver for entry in entries for driver in entry["drivers"]})
        self._anchors = [max(pieces, key=len) for _, pieces in self._forms] + self._drivers
        self._search = search(self._anchors) if search else self._in_turn

    def _in_turn(self, text: str) -> Iterable[int]:
        return [index for index, anchor in enumerate(self._anchors) if anchor in text]

    def match(self, message: str, priority: Optional[int] = None) -> Optional[Entry]:
        """Return the first entry that names the message, or None. `priority`: the record's, 0 to 7, where known."""
        message = message[:LONGEST]
        text = message.lower()
        found, forms = sorted(self._search(text)), len(self._forms)
        drivers = {self._drivers[index - forms] for index in found if index >= forms}
        for form in found[: bisect_left(found, forms)]:
            index, pieces = self._forms[form]
            entry = self.entries[index]
            if _holds(text, pieces, entry, drivers) and _allows(entry, message, priority):
                return entry
        return None


_STATUS = r"(?:STATUS(?:\[[^\]]{0,120}\])?|DESTAT|Bank \d{1,3})\s{0,2}(?:[=:]\s{0,2}|\s)(?:0x)?([0-9a-f]{14,16})\b"
_VALID, _UNCORRECTED, _CORRUPT, _TASK_CORRUPT, _DEFERRED, _POISON = 63, 61, 57, 55, 44, 43


def bank_status(message: str) -> Optional[int]:
    """Return the status register of an error bank that a message holds; None where there is none."""
    found = _search(_STATUS, message)
    return int(found.group(1), 16) if found else None


def bank_severity(status: int, bank: str) -> str:
    """Return the severity that a bank's status stands for. `bank`: "aca" of a GPU, "mce" of a CPU.

    A GPU's uncorrected error is fatal, and its deferred one is not corrected: as the driver's CPER records have it.
    Bits 43 and 44 are AMD's; on other CPUs they count corrected errors.
    """

    def has(bit: int) -> bool:
        return bool(status >> bit & 1)

    if bank == "aca":
        if has(_DEFERRED) or has(_POISON):
            return "error"
        return "fatal" if has(_CORRUPT) or has(_UNCORRECTED) or has(_TASK_CORRUPT) else "corrected"
    return "fatal" if has(_CORRUPT) else "error" if has(_UNCORRECTED) else "corrected"


def link_device(message: str) -> str:
    """Return which device a line about a link speaks of: as much of the line as the lines of that device share."""
    named = _search(r"for (?:active |backup )?interface ([\w.-]{1,20})", message)
    if named:
        return str(named.group(1))
    address = _search(r"\b(?:[0-9a-f]{4}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]\b", message)
    return str(address.group(0)) if address else message[: message.lower().find("link")].strip(" :")


def severity(entry: Entry, message: str) -> str:
    """Return how severe a message of an entry is: as its error bank states, where the message holds one."""
    status = bank_status(message) if entry["bank"] else None
    return str(entry["severity"]) if status is None else bank_severity(status, entry["bank"])


def _holds(text: str, pieces: Sequence[str], entry: Entry, drivers: Set[str]) -> bool:
    """Return whether the text has the pieces in their order, and a driver's name before the end of the first one.

    A piece of noise begins a word: "ast_" is no part of "fast_teardown". `drivers`: those whose names the text holds.
    """
    at = 0
    if entry["severity"] == "noise" and pieces[0][0].isalnum():
        at = text.find(pieces[0])
        while at > 0 and (text[at - 1].isalnum() or text[at - 1] == "_"):
            at = text.find(pieces[0], at + 1)
        if at < 0:
            return False
    for piece in pieces:
        at = text.find(piece, at)
        if at < 0:
            return False
        at += len(piece)
    if not entry["drivers"]:
        return True
    head = text[: text.find(pieces[0]) + len(pieces[0])]
    return any(_names(head, driver) for driver in drivers.intersection(entry["drivers"]))


def _names(head: str, driver: str) -> bool:
    """Return whether the head has the driver's name as a word: "nvme" in "nvme0:", and not "ice" in "device"."""
    at = head.find(driver)
    while at >= 0:
        end = at + len(driver)
        if not head[at - 1 : at].isalnum() and not head[end : end + 1].isalpha():
            return True
        at = head.find(driver, end)
    return False


def _allows(entry: Entry, message: str, priority: Optional[int]) -> bool:
    """Return whether the record's priority and the entry's regular expressions agree with the match."""
    if entry["level"] is not None and priority is not None and priority > entry["level"]:
        return False
    pattern, unless = entry["pattern"], entry["unless"]
    return (pattern is None or bool(_search(pattern, message))) and (unless is None or _search(unless, message) is None)


def _search(pattern: str, message: str) -> Optional[re.Match[str]]:
    """Return the match of a regular expression, in upper or lower case."""
    return re.search(pattern, message, re.IGNORECASE)
