"""A run by its name, or out of an archive."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from shakedown.archive.read import opened
from shakedown.archive.tar import is_archive
from shakedown.runs import RunDirectory, find_run


def is_packed(name: str) -> bool:
    """Whether this is a file that `shakedown bundle` has made, by how it begins."""
    path = Path(name)
    return path.is_file() and is_archive(path)


@contextmanager
def opened_run(name: str) -> Iterator[tuple[RunDirectory, list[str], list[str]]]:
    """A run's directory, what a person should know of where it comes from, and what of it was altered since it was
    packed. Raises ValueError and OSError."""
    if not is_packed(name):
        yield RunDirectory(find_run(name)), [], []
        return
    with opened(Path(name)) as archive:
        made = archive.manifest
        told = [f"packed by shakedown {made.shakedown}, judged {made.verdict} then; manifest sha256 {archive.digest}"]
        yield RunDirectory(archive.path), told, archive.altered
