"""What the records of a kernel's log mean for the verdict. The finding, the gate and the agent all use this."""

from __future__ import annotations

import re

from .kernel_events import Events, verdict_unknown
from .kernel_log import form

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Collection, List, Optional, Sequence

    from .kernel_events import Event
    from .kernel_match import Matcher

_NAMES = re.compile(r"[\w.:-]+")


class Line:
    """One record that counts, or that is worth showing. `verdict`: "fail", "warn" or "ok"."""

    __slots__ = ("known", "message", "name", "number", "part", "priority", "remedy", "verdict")

    def __init__(self, record: Any, event: Optional[Event], verdict: str) -> None:
        self.number: int = record.number
        self.message: str = record.message
        self.priority: Optional[int] = record.priority
        self.verdict = verdict
        self.name = str(event.entry["name"]) if event else ""
        self.part = event.part if event else "kernel"
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
