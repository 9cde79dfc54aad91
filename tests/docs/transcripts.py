"""Transcripts of pages: commands with what they print, held against what they print today.

`...` in a line stands for any words, a line of its own for any lines. Numbers and ids of runs may be others.
"""

from __future__ import annotations

import re

_CONSOLE = re.compile(r"^```console\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_COMMAND = re.compile(r"^\$ (.+)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)
RUN = re.compile(r"\d{8}T\d{6}-[0-9a-f]{6}")


def transcripts(page: str, kind: str) -> list[tuple[str, list[str]]]:
    """The commands of a page's transcripts of a kind, each with the lines of its answer."""
    parts = re.findall(rf"<!-- {kind}: begin -->(.*?)<!-- {kind}: end -->", page, re.DOTALL)
    found = [pair for part in parts for block in _CONSOLE.findall(part) for pair in _COMMAND.findall(block)]
    return [(command, answer.splitlines()) for command, answer in found]


def first_wrong(lines: list[str], output: str) -> str:
    """The first line of an answer that does not follow the ones before it in the output; empty: all do."""
    text = "".join(f"{_plain(line)}\n" for line in output.splitlines())
    pattern = "^"
    for line in lines:
        pattern += r"(?:.*\n)*?" if line == "..." else ".*".join(map(re.escape, _plain(line).split("..."))) + r"\n"
        if not re.search(pattern, text, re.MULTILINE):
            return line
    return ""


def _plain(line: str) -> str:
    line = re.sub(r"\d+", "0", RUN.sub("RUN", line)).rstrip()
    return re.sub(" {2,}", "  ", line) if not line.startswith(" ") else line
