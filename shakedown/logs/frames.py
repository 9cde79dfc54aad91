"""Where a traceback passed: its frames, and the entry of the catalogue that knows an exception by them."""

import re
from collections import deque
from dataclasses import dataclass, field
from functools import cache

from shakedown.catalogue import Entry, entries
from shakedown.catalogue.model import holds

FRAME = '", line '  # what each frame of Python holds
_FRAME = re.compile(
    r'(?:\s{0,20}File ")?([^"]{1,400})", line \d{1,9}(, in [\w<>.]{1,80})?|'
    r"\u2502 (\S{1,300}\.py):\d{1,9} in( \w{1,80})?"
)
_ASSERTS = re.compile(r"\s{1,40}(assert .{1,300})")
_DRAWN = ("\u2502", "\u256d", "\u2570")  # rich draws a frame around its tracebacks
_KEPT = 32  # innermost frames that are kept


@dataclass
class Traceback:
    """A traceback whose exception did not come yet. `headless`: its first lines are not in the log."""

    began: int
    line: str
    behind_words: bool = False
    headless: bool = False
    places: deque[str] = field(default_factory=lambda: deque(maxlen=_KEPT))
    asserted: str = ""

    def take(self, text: str) -> bool:
        """Keep the place of a frame, "path:function"; return whether the line is one of a traceback."""
        frame = _FRAME.match(text)
        if frame:
            path, function = frame[1] or frame[3], frame[2] or frame[4] or ""
            self.places.append(f"/{path}:{function.rpartition(' ')[2]}")
        elif asserts := _ASSERTS.match(text):
            self.asserted = asserts[1]
        return text[:1].isspace() or text.startswith(_DRAWN)

    def words(self, exception: str) -> str:
        """Return the words of the exception; those of an assertion without any are in the source."""
        bare = exception.strip() == "AssertionError" and self.asserted
        return f"{exception.strip()}: {self.asserted}" if bare else exception


def begins(text: str) -> bool:
    """Return whether a line is a frame of a function, which counts also where the head of the traceback is lost."""
    frame = _FRAME.match(text)
    return frame is not None and bool(frame[2])


def entry_of(traceback: Traceback, exception: str) -> Entry | None:
    """Return the entry that knows the innermost of the frames that any entry knows."""
    for place in reversed(traceback.places):
        for entry, forms in _entries():
            if any(holds(place, form) for form in forms) and not entry.refuses(exception):
                return entry
    return None


@cache
def _entries() -> list[tuple[Entry, tuple[tuple[str, ...], ...]]]:
    return [(entry, entry.places) for entry in entries("job") if entry.frames]
