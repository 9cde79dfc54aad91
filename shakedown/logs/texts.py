"""Which lines of a log a model wrote: in a fence of code, between a tag and its end, in the fields of verl's samples.

A text that stands on one line has a label: `code` and `answered` in signatures.toml.
"""

import re
from collections.abc import Callable

from shakedown.common.data import read_toml
from shakedown.logs.lines import Marks

_DATA = read_toml("shakedown.logs", "signatures.toml")
_TAGS, _FIELDS = "|".join(_DATA["tags"]), "|".join(_DATA["fields"])
MARKS = (
    *("```", "<|im_", *(f"[{name}] " for name in (*_DATA["fields"], "ground_truth", "score"))),
    *(f"<{end}{tag}>" for tag in _DATA["tags"] for end in ("", "/")),
)
_SIGNS = Marks(MARKS)
# A fence or tag that begins a text; one that ends it; a fence that does either; a field, which ends the one before; the
# last field.
_MARK = re.compile(
    rf"(?P<begins>```(?=\w{{1,20}}\s{{0,4}}$)|<(?:{_TAGS})>|<\|im_start\|>)|(?P<ends></(?:{_TAGS})>|<\|im_end\|>)|"
    rf"(?P<either>```)|(?P<field>\[(?:{_FIELDS})\] )|(?P<last>\[(?:ground_truth|score)\] )"
)
_NOT_OF_THE_NAME = str.maketrans("", "", "</>")
_LONGEST, _MOST = 2000, 1024  # lines of a text; texts that are open at once


class Texts:
    """Finds texts while a log is read; those of several ranks may be mixed.

    One that ends nowhere is none: a job can die while it writes one.
    """

    def __init__(self) -> None:
        self._open: dict[tuple[str, str], int] = {}  # by rank and mark: the line where it began

    def closed(self, number: int, line: str, rank_of: Callable[[str], str]) -> tuple[int, str] | None:
        """Take a line; return the number of the line where a text began that ends on this one, and its rank."""
        if not _SIGNS.within(line):
            return None
        began, rank = number + 1, ""
        for mark in _MARK.finditer(line):
            rank = rank or rank_of(line)
            name = mark[0].translate(_NOT_OF_THE_NAME).replace("_end", "_start")
            key = rank, "field" if mark["field"] or mark["last"] else name
            ended = None if mark["begins"] else self._open.pop(key, None)
            if ended is not None and number - ended < _LONGEST:
                began = min(began, ended)
            begins = mark["begins"] or mark["field"] or (mark["either"] and ended is None)
            if begins and len(self._open) < _MOST:
                self._open[key] = number
        return (began, rank) if began <= number else None
