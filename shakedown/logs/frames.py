"""Where a traceback passed: its frames, and the entry of the catalogue that knows an exception by them."""

import re
from collections import deque
from dataclasses import dataclass, field
from functools import lru_cache

from shakedown.catalogue import Entry, entries
from shakedown.catalogue.model import holds
from shakedown.common.data import read_toml
from shakedown.logs.known import known_line
from shakedown.logs.lines import FORMS

FRAME = '", line '  # what each frame of Python holds
_FRAME = re.compile(
    r'(?:\s{0,20}File ")?([^"]{1,400})", line \d{1,9}(, in [\w<>.]{1,80})?|'
    r"\u2502 (\S{1,300}\.py):\d{1,9} in( \w{1,80})?|"
    r"(?:File )?(\S{1,300}\.py)(?::\d{1,9},)? in (?:\w{1,60}\.){0,4}(\w{1,80})\("  # of a notebook
)
_SOURCE = re.compile(r"(-{2,12}> ?\d{1,6}|\u2502 \u2771 ?\d{1,6} \u2502)?\s{1,60}([A-Za-z_(\[*].{1,300})")
_PASSING: list[str] = read_toml("shakedown.logs", "signatures.toml")["passing"]
_DRAWN = ("\u2502", "\u256d", "\u2570")  # rich draws a frame around its tracebacks
_BARE = re.compile(r"(?:[A-Za-z_]\w{0,60}\.){0,8}[A-Za-z_]\w{0,60}(?:Error|Exception):\s*$")
_WORDS = re.compile(
    r"\s{0,8}(?!File \"|Traceback |During handling|The above exc|Exception i(?:gnored |n thread )|Error in atexit|"
    r"(?:\w{1,40}\.){0,8}\w{1,60}(?:Error|Exception): )[\w`'\"(\[]"
)
_KEPT = 32  # innermost frames that are kept


@dataclass
class Traceback:
    """A traceback whose exception did not come yet. `headless`: its first lines are not in the log."""

    began: int
    line: str
    behind_words: bool = False
    headless: bool = False
    of_text: bool = False  # what a model wrote: its head stands behind the label of a text
    places: deque[str] = field(default_factory=lambda: deque(maxlen=_KEPT))
    source: str = ""  # of the innermost frame
    flush: bool = False  # the text has lost its indents
    exception: str = ""  # a class whose words begin on the next line

    def take(self, text: str) -> bool:
        """Keep the place of a frame, "path:function"; return whether the line is one of a traceback."""
        if frame := _FRAME.match(text):
            path, function = frame[1] or frame[3] or frame[5], frame[2] or frame[4] or frame[6] or ""
            path = path.replace("\\", "/")  # of Windows
            self.places.append(f"/{path}:{function.rpartition(' ')[2]}")
            self.source, self.flush = "", text.startswith("File ")
        elif (source := _SOURCE.match(text)) and (source[1] or not self.source or source[2].startswith("assert ")):
            self.source = source[2].rstrip(_DRAWN[0] + " \n")
        elif self.flush and not self.source and text.strip() and not FORMS["exception"].match(text):
            self.source = text.strip()
            return True
        return frame is not None or text[:1].isspace() or text.startswith(_DRAWN)

    def holds_back(self, text: str) -> bool:
        """Return whether a line holds the class of an exception alone, and keep that."""
        self.exception = text.strip() if _BARE.match(text) else ""
        return bool(self.exception)

    def joined(self, text: str) -> str:
        """Return the exception that was kept, with the line behind it where that holds its words."""
        return f"{self.exception} {text.strip()}" if _WORDS.match(text) else self.exception

    def words(self, exception: str) -> str:
        """Return the words of the exception; those of an assertion without any are in the source."""
        exception = re.sub(r"(?<=Error)\s{1,8}:", ":", exception, count=1)  # of ranks that write at once
        bare = exception.strip().rstrip(":") == "AssertionError" and self.source.startswith("assert ")
        return f"AssertionError: {self.source}" if bare else exception


def begins(text: str) -> bool:
    """Return whether a line is a frame of a function, which counts also where the head of the traceback is lost."""
    frame = _FRAME.match(text)
    return frame is not None and bool(frame[2])


@lru_cache(128)  # a storm repeats its lines
def wrapped(words: str) -> str | None:
    """Return what the GPU's runtime or the system said, as PyTorch and Python print it, without what is around it."""
    if call := FORMS["gpu_call"].match(words):
        return f"{'HIP' if 'HIP' in call[0].upper() else 'CUDA'} error: {words[call.end() :]}"
    if call := FORMS["system_call"].match(words):
        return f"{type(OSError(int(call[1]), '')).__name__}: {words[call.end() :]}"
    repr_of = FORMS["repr"].match(words)  # an exception that a program printed as Python would write it down
    return f"{repr_of[1]}: {repr_of[2]}" if repr_of else None


def entry_of(traceback: Traceback, exception: str) -> Entry | None:
    """Return the entry that knows the innermost frame, its source, or else the innermost frame that any knows: of those
    around it, none that only passes on."""
    own, *around = reversed(traceback.places) if traceback.places else ("",)
    source = traceback.source.partition("  # ")[0]
    for depth, place in enumerate([own, f"> {source} <", *around]):
        for entry in _entries_at(place, depth > 1):
            if not entry.refuses(exception):
                return entry
    return None


def cut_entry(traceback: Traceback) -> Entry | None:
    """Return the entry of a traceback whose exception is not in the log: an assertion has its words in the source."""
    words = traceback.words("AssertionError").removesuffix("AssertionError")
    found = known_line(words) if words else None
    return entry_of(traceback, words) or found if found is None or found.general else found


@lru_cache(1024)  # the tracebacks of all ranks pass the same places
def _entries_at(place: str, outer: bool) -> list[Entry]:
    if outer and any(holds(place, tuple(form.split("*"))) for form in _PASSING):
        return []
    return [entry for entry in entries("job") if any(holds(place, form) for form in entry.places)]
