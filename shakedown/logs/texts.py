"""Which lines of a log a model wrote: in a fence of code, between a tag and its end, in the fields of samples.

A text that stands on one line has a label: `code` and `answered` in signatures.toml.
"""

import re

from shakedown.common.data import read_toml
from shakedown.logs.lines import Hosts, unprefixed

_DATA = read_toml("shakedown.logs", "signatures.toml")
_TAGS, _FIELDS, _HEADINGS, _LAST = ("|".join(_DATA[key]) for key in ("tags", "fields", "headings", "last_headings"))
_HEADING = r"(?:^|(?<=[)\]-] ))"  # where a heading begins: behind prefixes or a ruler
MARKS = (
    *("```", "<|im_", *(f"[{name}] " for name in (*_DATA["fields"], "ground_truth", "score"))),
    *(f"{name}:" for name in (*_DATA["headings"], *_DATA["last_headings"])),
    *(f"<{end}{tag}>" for tag in _DATA["tags"] for end in ("", "/")),
)
# A fence or tag that begins a text; one that ends it; a fence that does either; a field, which ends the one before; the
# last field.
_MARK = re.compile(
    rf"(?P<begins>```(?=\w{{1,20}}\s{{0,4}}$)|<(?:{_TAGS})>|<\|im_start\|>)|(?P<ends></(?:{_TAGS})>|<\|im_end\|>)|"
    rf"(?P<either>```)|(?P<field>\[(?:{_FIELDS})\] |{_HEADING}(?:{_HEADINGS}):\s{{0,8}}$)|"
    rf"(?P<last>\[(?:ground_truth|score)\] |{_HEADING}(?:{_LAST}):)"
)
_NOT_OF_THE_NAME = str.maketrans("", "", "</>")
_LONGEST, _MOST = 2000, 1024  # lines of a text; texts that are open at once


class Texts:
    """Finds texts while a log is read; those of several ranks may be mixed.

    One that ends nowhere is none: a job can die while it writes one.
    """

    def __init__(self) -> None:
        self._open: dict[tuple[str, str], int] = {}  # by rank and mark: the line where it began

    def closed(self, number: int, line: str, hosts: Hosts) -> tuple[range, str] | None:
        """Take a line; return the lines of a text that ends here, by their numbers, and its rank.

        A line with words before a text or behind it is not of it.
        """
        own = hosts.own(line)
        if not (marks := list(_MARK.finditer(own))):
            return None
        lines, rank, line = range(0), hosts.rank(line), own
        words, end = 0, len(line)  # where the last words begin that no mark is of
        for mark in reversed(marks):
            if line[mark.end() : end].strip():
                words = mark.end()
                break
            end = mark.start()
        for mark in marks:
            name = mark[0].translate(_NOT_OF_THE_NAME).replace("_end", "_start")
            of_field = mark["field"] or mark["last"]
            key = rank, "field" if of_field else name
            ended = None if mark["begins"] else self._open.pop(key, None)
            if ended is not None and number - ended < _LONGEST:
                behind = not of_field and mark.end() <= words
                lines = range(min([ended, *lines[:1]]), number + (not behind))
            begins = mark["begins"] or mark["field"] or (mark["either"] and ended is None)
            if begins and len(self._open) < _MOST:
                at = min(mark.start(), _LONGEST)  # prefixes are shorter
                before = unprefixed(line[:at] + " ").strip() and not mark["field"]
                self._open[key] = number + bool(before)
        return (lines, rank) if lines else None
