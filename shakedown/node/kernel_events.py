"""What the records of a kernel's log come to: each known line with its severity, lines of one event together.

The controller and the agent on a node both use this.
"""

from __future__ import annotations

from .kernel_match import link_device, severity

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List, Optional

    from .kernel_match import Entry, Matcher

NEAR = 200  # records within which a detail belongs to the line that states its severity
BEFORE = 8  # details that may come before that line
FAULTS = ("fatal", "error")
CRITICAL, ERROR = 2, 3  # priorities of the kernel; a smaller number is worse


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
        """Return "fail", "warn", or "ok"."""
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
            earlier.returned = event.number
            if earlier.severity in FAULTS:
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
