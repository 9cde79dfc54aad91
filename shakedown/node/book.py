"""What a node answered, question by question (a subject of `Tree.ask`): kept while the probe reads the node, and given
again in its place. In a replay the book answers alone: what somebody sent decides about no file and no program here."""

from __future__ import annotations

import re
from typing import Any, Callable, Dict, List, Optional

from .known import KNOWN
from .tree import Part, Unreadable, explain, is_unreadable

RECORD = "record"  # among the names that a probe is asked for
NOWHERE = "/dev/null/capture"  # the root of a replay: no path below it exists
MOST = 12 << 20  # characters of all answers; those of a large node have 2,000,000
# Of files that may hold passwords or the names of people: the lines that a reading uses, and what goes of a line.
_LINES = {begin: re.compile(form) for begin, form in KNOWN["capture"]["lines"].items()}
_KEPT = re.compile(KNOWN["capture"]["properties"])  # properties of a device


def lines_of_use(path: str, text: str) -> str:
    """Return a file's text as it may leave the node."""
    form = next((form for start, form in _LINES.items() if path.startswith(start)), None)
    if form is None:
        return text
    found = [form.fullmatch(line) for line in text.splitlines()]
    return "".join(("".join(match.groups()) or match[0]) + "\n" for match in found if match)


class Book:
    """Keeps answers; gives those of `answers` again where there are some."""

    def __init__(self, answers: Optional[Part] = None) -> None:
        self.taken: Part = {}
        self._answers = answers
        self._room = MOST
        self._inside = False  # a reading whose answer is kept as a whole asks for parts of it

    def answer(self, subject: str, reading: Callable[..., Any], *arguments: Any) -> Any:
        if self._answers is not None:
            return self._again(subject)
        if self._inside:
            return reading(*arguments)
        self._inside = True
        try:
            value = reading(*arguments)
            self._keep(subject, {"is": _as_json(subject, value)})
            return value
        except OSError as error:
            self._keep(subject, {"errno": error.errno or 0, "words": str(error.strerror), "path": str(error.filename)})
            raise
        except Exception as error:
            self._keep(subject, explain(error).as_part())
            raise
        finally:
            self._inside = False

    def _keep(self, subject: str, answer: Part) -> None:
        self._room -= len(subject) + len(str(answer))
        if self._room > 0:
            self.taken[subject] = answer

    def _again(self, subject: str) -> Any:
        answer = (self._answers or {}).get(subject)
        if not isinstance(answer, dict):
            raise Unreadable("missing", "the capture has no answer: " + subject)
        if "errno" in answer:
            raise OSError(int(answer["errno"]), str(answer["words"]), str(answer["path"]))
        if is_unreadable(answer):
            raise Unreadable(str(answer["unreadable"]), str(answer["detail"]))
        value = answer["is"]
        if subject.startswith("program "):
            return NOWHERE + value  # of which the presence counts; no sender chooses what would run here
        return value.encode() if subject.startswith("file ") else value

    def again(self, groups: List[Dict[str, Any]]) -> List[Dict[str, Any]]:
        """Return a probe's readings with those replaced that hung or crashed on the node."""
        lost: Callable[[str], Any] = (self._answers or {}).get
        return [
            {name: (what, most, dict, (lost("reading " + name),)) if lost("reading " + name) else (what, most, *rest)}
            for group in groups
            for name, (what, most, *rest) in group.items()
        ]

    def keep(self, found: Part) -> None:
        """Keep why readings have no value: a child that hung or crashed has brought nothing back."""
        for name, value in found.items():
            if self._answers is None and is_unreadable(value):
                self.taken["reading " + name] = value


def _as_json(subject: str, value: Any) -> Any:
    if isinstance(value, bytes):
        return lines_of_use(subject[len("file ") :], value.decode("utf-8", "replace"))
    if subject.startswith("udev "):  # whose other properties are serial numbers in many forms
        return [(*row, {key: kept for key, kept in known.items() if _KEPT.match(key)}) for *row, known in value]
    return value
