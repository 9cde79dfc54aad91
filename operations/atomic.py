"""Files of ours on a node: written whole or not at all, marked with a header, foreign lines kept."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import PurePosixPath

from pyinfra.api.command import QuoteString, StringCommand

HEADER = "# Written by shakedown. Changes are lost; `pyinfra INVENTORY deploy/rollback.py` removes this file."
MARK = "# Written by shakedown"


def is_ours(lines: Iterable[str] | None) -> bool:
    """True for the lines of a file that carries our header."""
    return any(line.startswith(MARK) for line in lines or ())


def body(lines: Iterable[str] | None) -> list[str]:
    """The lines of a file without our header and without empty ones."""
    return [line for line in lines or () if line.strip() and not line.startswith(MARK)]


def write(path: str, lines: Iterable[str], mode: str = "0644") -> StringCommand:
    """Write a file beside its place and move it there, so that a full disk or a cut connection leaves the old one.

    `env printf`, since dash's own says no more than "I/O error" of a full disk.
    """
    folder = str(PurePosixPath(path).parent)
    return StringCommand(
        f"p={path}; t=$p.shakedown.$$; mkdir -p {folder} && env printf '%s\\n'",
        *(QuoteString(line) for line in lines),
        f'> "$t" && chmod {mode} "$t" && mv -f "$t" "$p" || {{ rm -f "$t"; echo "$p was not written" >&2; exit 1; }}',
    )
