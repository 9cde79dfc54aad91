"""Reports written as files. One that cannot be written changes no verdict, and its writer's caller gets the reason."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shakedown.common import private
from shakedown.report.formats import Run, text_of

if TYPE_CHECKING:  # a drift check has no use for all that a run has
    from shakedown.runs.directory import RunDirectory

FILES = {
    "html": "report.html",
    "acceptance": "acceptance.html",
    "junit": "junit.xml",
    "prometheus": "metrics.prom",
    "markdown": "report.md",
}
"""Format -> its file in the run directory."""
SUFFIXES = {
    ".txt": "table",
    ".html": "html",
    ".json": "json",
    ".jsonl": "jsonl",
    ".xml": "junit",
    ".prom": "prometheus",
    ".md": "markdown",
}
"""What the name of a file ends in -> its format."""


def format_for(path: Path, known: Sequence[str]) -> str | None:
    """Return a file's format by its suffix, if `known`; without a suffix (/dev/stdout, a pipe) the first of them."""
    form = SUFFIXES.get(path.suffix.lower()) if path.suffix else known[0]
    return form if form in known else None


def write_reports(directory: RunDirectory, document: Run, wanted: Iterable[str]) -> Iterator[str]:
    """Write the reports of a run into its directory. Yields why one could not be written; raises nothing."""
    for form in dict.fromkeys(wanted):
        try:
            directory.write(FILES[form], text_of(document, form))
        except Exception as error:
            yield f"{directory.path / FILES[form]}: this report could not be written: {type(error).__name__}: {error}"


def write_to(path: Path, document: Any, form: str) -> None:
    """Write a document to a file, whole or not at all. A new file is its owner's alone; one that is there keeps its
    mode, so that a program of another user can be let in once (node_exporter reads metrics). Raises OSError."""
    text = text_of(document, form).encode("utf-8", "backslashreplace")
    target = path.resolve()  # what a link leads to is replaced, and not the link
    mode = 0o600
    if target.exists():
        found = target.stat()
        if not stat.S_ISREG(found.st_mode):  # /dev/stdout, a FIFO: nothing to be replaced
            target.write_bytes(text)
            return
        mode = stat.S_IMODE(found.st_mode)
    private.replace(target, target.with_name(f".{target.name}.{os.getpid()}.part"), text, mode)
