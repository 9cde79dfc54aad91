"""The meaning of a kernel log's records: each known line with its severity, lines of one event together, and the
verdict over them. The finding, the gate and the agent all use this."""

from __future__ import annotations

import re
from typing import Any, Collection, Dict, List, Optional, Sequence

from .kernel_log import ERROR, form
from .kernel_match import Entry, Matcher, link_device, severity

NEAR = 200  # records within which a detail belongs to the line that states its severity
BEFORE = 8  # details that may come before that line
FAULTS = ("fatal", "error")
CRITICAL = 2  # priority; ERROR is the next one
_NAMES = re.compile(r"[\w.:-]+")


class Event:
    """One record that the catalogue knows. Later records may change the severity."""

    __slots__ = ("entry", "message", "number", "part", "priority", "returned", "severity")

    def __init__(self, entry: Entry, number: int, message: str, priority: Optional[int]) -> None:
        self.entry = entry
        self.number = number
        self.message = message
        self.priority = priority
        self.severity = severity(entry, message)
        self.part = str(entry["part"])
        self.returned: Optional[int] = None  # number of the record that says that the link is back

    @property
    def verdict(self) -> str:
        if self.entry["general"] and self.severity != "noise":
            return verdict_unknown(self.priority) if self.priority is not None else "warn"
        return "fail" if self.severity in FAULTS else "warn" if self.severity == "corrected" else "ok"


def verdict_unknown(priority: Optional[int]) -> str:
    """Return what a record means that no entry names: by its priority, as the kernel gave it."""
    if priority is None or priority > ERROR:
        return "ok"
    return "fail" if priority <= CRITICAL else "warn"


class Events:
    """Follows the records of one log in their order."""

    def __init__(self, matcher: Matcher) -> None:
        self._matcher = matcher
        self._stated: Dict[str, Event] = {}  # group -> the last line that stated a severity
        self._details: Dict[str, List[Event]] = {}  # group -> lines that wait for one
        self._lines: Dict[str, List[Event]] = {}  # group -> the lines of the event so far
        self._down: Dict[str, List[Event]] = {}  # device -> lines that say that the link went down

    def take(self, number: int, message: str, priority: Optional[int] = None) -> Optional[Event]:
        """Return what a record is; None where no entry names it. `number`: in the order of the log."""
        entry = self._matcher.match(message, priority)
        if entry is None:
            return None
        event = Event(entry, number, message, priority)
        if entry["link"]:
            self._link(event)
        if entry["group"]:
            self._group(event, entry["group"])
        return event

    def _link(self, event: Event) -> None:
        device = link_device(event.message)
        if event.entry["link"] == "down":
            self._down.setdefault(device, []).append(event)
            return
        for earlier in self._down.pop(device, []):
            if earlier.severity != "fatal":  # a card that left is a fault, though its link is back with the card
                earlier.returned = event.number
                earlier.severity = "corrected"

    def _group(self, event: Event, group: str) -> None:
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
                _follow(event, stated)
            else:
                waiting.append(event)
                del waiting[:-BEFORE]
            return
        for line in waiting:
            if event.number - line.number <= NEAR:
                _follow(line, event)
        del waiting[:]
        self._stated[group] = event


def _follow(detail: Event, stated: Event) -> None:
    detail.severity, detail.part = stated.severity, stated.part


class Line:
    """One record that counts, or that is worth showing. `verdict`: "fail", "warn" or "ok"."""

    __slots__ = ("known", "message", "name", "number", "part", "priority", "raised", "remedy", "verdict")

    def __init__(self, record: Any, event: Optional[Event], verdict: str) -> None:
        self.number: int = record.number
        self.message: str = record.message
        self.priority: Optional[int] = record.priority
        self.verdict = verdict
        self.name = str(event.entry["name"]) if event else ""
        self.part = event.part if event else "kernel"
        self.raised = event is not None and event.severity != event.entry["severity"]  # by another line of its event
        self.remedy = str(event.entry["remedy"]) if event else ""
        # An entry of any message of a driver names the part, and not what happened.
        self.known = event is not None and not event.entry["general"]

    @property
    def form(self) -> str:
        """Return the message without its numbers."""
        return form(self.message)

    def __str__(self) -> str:
        return "{}: {}".format(self.name, self.message) if self.name else self.message


def judge(
    matcher: Matcher, records: Sequence[Any], links: Optional[Collection[str]] = None, settled: bool = False
) -> List[Line]:
    """Return the lines that fail or warn, and those of severity `user`, in the order of the log.

    `records` have a number, a priority (None: not known) and a message. `links`: names and PCI addresses of the network
    ports that are in use; a link that went down on another port does not count; None: all count. `settled`: a link that
    came back does not count either.
    """
    events = Events(matcher)
    taken = [(record, events.take(record.number, record.message, record.priority)) for record in records]
    lines = []
    for record, event in taken:  # when all were taken: a later record may change what an earlier one means
        if event is not None and event.entry["link"] == "down" and _is_over(event, links, settled):
            continue
        verdict = event.verdict if event is not None else verdict_unknown(record.priority)
        if verdict != "ok" or (event is not None and event.severity == "user"):
            lines.append(Line(record, event, verdict))
    return lines


def _is_over(event: Event, links: Optional[Collection[str]], settled: bool) -> bool:
    if settled and event.returned is not None:
        return True
    return links is not None and not any(name.strip(":.") in links for name in _NAMES.findall(event.message))
