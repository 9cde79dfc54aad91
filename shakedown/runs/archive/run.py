"""A run by its name, or out of an archive."""

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from shakedown.common.runs_folder import runs_folder
from shakedown.runs.archive import MANIFEST
from shakedown.runs.archive.read import opened
from shakedown.runs.archive.tar import is_archive
from shakedown.runs.directory import RunDirectory
from shakedown.runs.folder import find_run


def is_packed(name: str) -> bool:
    """Whether this is a file that `shakedown bundle` has made, by how it begins."""
    path = Path(name)
    return path.is_file() and path.stat().st_size > 0 and is_archive(path)  # /proc/kmsg would be waited for


@dataclass(frozen=True)
class OpenedRun:
    """A run's directory, what a person should know of where it comes from, and what of it was altered since it was
    packed. `archive`: digest of the manifest; empty: it is a directory."""

    directory: RunDirectory
    messages: list[str] = field(default_factory=list)
    altered: list[str] = field(default_factory=list)
    archive: str = ""

    def origin(self, run_id: str) -> str:
        """Return whose evidence the run is; empty: this site's own, a run in the folder of its runs and under its own
        id. A directory that holds a manifest was unpacked from an archive."""
        if self.archive:
            return f"archive:{self.archive[:12]}"
        path = self.directory.path.resolve()
        if path.parent == runs_folder().resolve() and path.name == run_id and not (path / MANIFEST).exists():
            return ""
        return f"folder:{hashlib.sha256(os.fsencode(path)).hexdigest()[:12]}"


@contextmanager
def opened_run(name: str) -> Iterator[OpenedRun]:
    """Open a run by its name, or out of an archive. Raises ValueError and OSError."""
    if not is_packed(name):
        yield OpenedRun(RunDirectory(find_run(name)))
        return
    with opened(Path(name)) as archive:
        made = archive.manifest
        messages = [
            f"packed by shakedown {made.shakedown}, judged {made.verdict} then; manifest sha256 {archive.digest}"
        ]
        yield OpenedRun(RunDirectory(archive.path), messages, archive.altered, archive.digest)
