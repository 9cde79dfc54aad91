"""The meaning of a kernel log's records: the catalogue's entry of each, lines of one event together, and the verdict
over them. The finding, the gate and the agent all use this."""

from __future__ import annotations

import re
from bisect import bisect_left
from typing import Any, Callable, Collection, Dict, Iterable, List, Optional, Sequence, Set, Tuple

from .kernel_log import ERROR, form
from .known import KNOWN

Entry = Dict[str, Any]  # as shakedown/catalogue/kernel.py compiles it

LONGEST_MATCHED = 2000  # characters of a message that are looked at; the kernel writes at most 1,024
# What any user may choose in a message: names of processes, programs and cgroups. What stands around it is kept.
_CHOSEN = re.compile("|".join(KNOWN["kernel"]["chosen"]), re.IGNORECASE)


class Matcher:
    """Finds the entry of a message. `entries` stand in the order in which they are tried. `search` returns the indexes
    of the anchors and drivers that a text holds; without it each is looked for in turn."""

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
        in_turn = lambda text: [index for index, anchor in enumerate(self._anchors) if anchor in text]  # noqa: E731
        self._search = search(self._anchors) if search else in_turn

    def match(self, message: str, priority: Optional[int] = None) -> Optional[Entry]:
        """Return the first entry that names the message, or None. `priority`: the record's, 0 to 7, where known."""
        message = message[:LONGEST_MATCHED]
        if not self._search(message.lower()):
            return None
        message = _CHOSEN.sub(lambda found: "".join(filter(None, found.groups())), message)
        text = message.lower()
        found, forms = sorted(self._search(text)), len(self._forms)
        drivers = {self._drivers[index - forms] for index in found if index >= forms}
        for place in found[: bisect_left(found, forms)]:
            index, pieces = self._forms[place]
            entry = self.entries[index]
            if _holds(text, pieces, entry, drivers) and _allows(entry, message, priority):
                return entry
        return None


_STATUS = r"(?:STATUS(?:\[[^\]]{0,120}\])?|DESTAT|Bank \d{1,3})\s{0,2}(?:[=:]\s{0,2}|\s)(?:0x)?([0-9a-f]{14,16})\b"
_UNCORRECTED, _CORRUPT, _TASK_CORRUPT, _DEFERRED, _POISON = (1 << bit for bit in (61, 57, 55, 44, 43))


def bank_status(message: str) -> Optional[int]:
    """Return the status register of an error bank that a message holds; None where there is none."""
    found = _search(_STATUS, message)
    return int(found.group(1), 16) if found else None


def bank_severity(status: int, bank: str) -> str:
    """Return the severity that a bank's status stands for. `bank`: "aca" of a GPU, "mce" of a CPU. A GPU's uncorrected
    error is fatal, and its deferred one is not corrected: as the driver's CPER records have it. Bits 43 and 44 are
    AMD's; on other CPUs they count corrected errors."""
    if bank == "aca":
        fatal = status & (_CORRUPT | _UNCORRECTED | _TASK_CORRUPT)
        return "error" if status & (_DEFERRED | _POISON) else "fatal" if fatal else "corrected"
    return "fatal" if status & _CORRUPT else "error" if status & _UNCORRECTED else "corrected"


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
    """Return whether the text has the pieces in their order, and a driver's name before the end of the first one. A
    piece of noise begins a word: "ast_" is no part of "fast_teardown". `drivers`: those whose names the text holds."""
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
    return re.search(r"(?<![^\W_])" + re.escape(driver) + r"(?![^\W\d_])", head) is not None


def _allows(entry: Entry, message: str, priority: Optional[int]) -> bool:
    """Return whether the record's priority and the entry's regular expressions agree with the match."""
    if entry["level"] is not None and priority is not None and priority > entry["level"]:
        return False
    pattern, unless = entry["pattern"], entry["unless"]
    return (pattern is None or bool(_search(pattern, message))) and (unless is None or _search(unless, message) is None)


def _search(pattern: str, message: str) -> Optional[re.Match[str]]:
    return re.search(pattern, message, re.IGNORECASE)


NEAR = 200  # records within which a detail belongs to the line that states its severity
BEFORE = 8  # details that may come before that line
FAULTS = ("fatal", "error")
CRITICAL = 2  # priority; ERROR is the next one
_NAMES = re.compile(r"[\w.:-]+")


# Of a record that no entry names: its priority, as the kernel gave it, says what it means.
_UNKNOWN: Entry = {
    **dict.fromkeys(("name", "severity", "remedy", "bank", "link"), ""),
    "part": "kernel",
    "general": True,
}


class Line:
    """One record, with the catalogue's entry. Later records of its event may change severity and part."""

    def __init__(self, entry: Entry, number: int, message: str, priority: Optional[int]) -> None:
        self.entry = entry
        self.number = number
        self.message = message
        self.priority = priority
        self.severity = severity(entry, message)
        self.part = str(entry["part"])
        self.name = str(entry["name"])
        self.remedy = str(entry["remedy"])
        self.known = not entry["general"]  # an entry of any message of a driver names the part, and not what happened
        self.returned: Optional[int] = None  # number of the record that says that the link is back

    @property
    def verdict(self) -> str:
        """Return "fail", "warn" or "ok"."""
        if self.known or self.severity == "noise":
            return "fail" if self.severity in FAULTS else "warn" if self.severity == "corrected" else "ok"
        if self.priority is None:
            return "warn" if self.name else "ok"
        return "fail" if self.priority <= CRITICAL else "warn" if self.priority <= ERROR else "ok"

    @property
    def raised(self) -> bool:
        """Return whether another line of its event has changed the severity."""
        return bool(self.severity != self.entry["severity"])

    @property
    def form(self) -> str:
        """Return the message without its numbers."""
        return form(self.message)

    def __str__(self) -> str:
        return "{}: {}".format(self.name, self.message) if self.name else self.message


class Events:
    """Follows the records of one log in their order."""

    def __init__(self, matcher: Matcher) -> None:
        self._matcher = matcher
        self._stated: Dict[str, Line] = {}  # group -> the last line that stated a severity
        self._details: Dict[str, List[Line]] = {}  # group -> lines that wait for one
        self._lines: Dict[str, List[Line]] = {}  # group -> the lines of the event so far
        self._down: Dict[str, List[Line]] = {}  # device -> lines that say that the link went down

    def take(self, number: int, message: str, priority: Optional[int] = None) -> Optional[Line]:
        """Return what a record is; None where no entry names it. `number`: in the order of the log."""
        entry = self._matcher.match(message, priority)
        if entry is None:
            return None
        event = Line(entry, number, message, priority)
        if entry["link"]:
            self._link(event)
        if entry["group"]:
            self._group(event, entry["group"])
        return event

    def _link(self, event: Line) -> None:
        device = link_device(event.message)
        if event.entry["link"] == "down":
            self._down.setdefault(device, []).append(event)
            return
        for earlier in self._down.pop(device, []):
            if earlier.severity != "fatal":  # a card that left is a fault, though its link is back with the card
                earlier.returned = event.number
                earlier.severity = "corrected"

    def _group(self, event: Line, group: str) -> None:
        if event.entry["begins"]:
            for known in (self._stated, self._details, self._lines):
                known.pop(group, None)
        lines = self._lines.setdefault(group, [])
        lines.append(event)
        del lines[:-NEAR]
        waiting = self._details.setdefault(group, [])
        if event.entry["detail"]:
            stated = self._stated.get(group)
            if stated is not None and event.number - stated.number <= NEAR:
                if event.part != stated.entry["part"]:  # the line names the part of the whole event
                    for line in lines:
                        line.part = event.part
                event.severity, event.part = stated.severity, stated.part
            else:
                waiting.append(event)
                del waiting[:-BEFORE]
            return
        for line in waiting:
            if event.number - line.number <= NEAR:
                line.severity, line.part = event.severity, event.part
        del waiting[:]
        self._stated[group] = event


def judge(
    matcher: Matcher, records: Sequence[Any], links: Optional[Collection[str]] = None, settled: bool = False
) -> List[Line]:
    """Return the lines that fail or warn, and those of severity `user`, in the order of the log. `records` have a
    number, a priority (None: not known) and a message. `links`: names and PCI addresses of the network ports that are
    in use; a link that went down on another port does not count; None: all count. `settled`: a link that came back does
    not count either."""
    events = Events(matcher)
    lines = []
    for record in records:
        about = (record.number, record.message, record.priority)
        lines.append(events.take(*about) or Line(_UNKNOWN, *about))
    # When all were taken: a later record may change what an earlier one means.
    counted = [line for line in lines if line.verdict != "ok" or line.severity == "user"]
    return [line for line in counted if line.entry["link"] != "down" or not _is_over(line, links, settled)]


def _is_over(line: Line, links: Optional[Collection[str]], settled: bool) -> bool:
    if settled and line.returned is not None:
        return True
    return links is not None and not any(name.strip(":.") in links for name in _NAMES.findall(line.message))
