"""Which lines of a log a model wrote: in a fence of code, or between a tag and its end. A text that a line cites alone
has a label, `code` and `answered` in signatures.toml."""

import re

from shakedown.common.data import read_toml

_TAGS = read_toml("shakedown.logs", "signatures.toml")["tags"]
MARKS = ("```", *(f"<{slash}{tag}>" for tag in _TAGS for slash in ("", "/")), "<|im_start|>", "<|im_end|>")
_MARK = re.compile(rf"(```\w{{1,20}}\s{{0,4}}$)|(```)|<(/?)({'|'.join(_TAGS)})>|<\|im_(start|end)\|>")
_LONGEST, _MOST = 2000, 1024  # lines of a text; texts that are open at once


class Texts:
    """Finds texts while a log is read; those of several ranks may be mixed.

    One that ends nowhere is none: a job can die while it writes one.
    """

    def __init__(self) -> None:
        self._open: dict[tuple[str, str], int] = {}  # by rank and mark: the line where it began

    def closed(self, number: int, rank: str, line: str) -> int | None:
        """Take a line; return the number of the line where a text began that ends on this one."""
        began = []
        for mark in _MARK.finditer(line):
            key = rank, mark[4] or (mark[5] and "im") or "`"
            if mark[1] or not ((mark[2] and key in self._open) or mark[3] or mark[5] == "end"):
                if len(self._open) < _MOST:
                    self._open[key] = number
            elif number - (first := self._open.pop(key, -_LONGEST)) < _LONGEST:
                began.append(first)
        return min(began, default=None)
