"""A run by its name, or out of an archive, which is unpacked into a folder of its own for as long as it is read."""

import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from shakedown.common import private
from shakedown.common.frozen import first_problem
from shakedown.common.runs_folder import runs_folder
from shakedown.common.text import load_json, shallow
from shakedown.logs.kept_logs import RUN_LIMIT
from shakedown.runs.archive import MANIFEST
from shakedown.runs.archive.tar import MANIFEST_LIMIT, Manifest, Member, Reader, Refused, digest, is_archive
from shakedown.runs.directory import RunDirectory
from shakedown.runs.folder import find_run, own

UNPACKED_LIMIT = RUN_LIMIT + (4 << 30)  # bytes in all
RATIO = 250  # of what it unpacks to and its own size; logs and samples come to 10 to 60
SLACK = 256 << 20  # bytes that are never too much
ROOM = 64 << 20  # bytes that stay free where it is unpacked


APART = "is kept as evidence of {origin}: it changes no node's service and no baseline (shakedown ledger import)"


@dataclass(frozen=True)
class OpenedRun:
    """A run's directory, what a person should know of where it comes from, and what of it was altered since it was
    packed. `archive`: digest of the manifest, as it was printed when the archive was made; empty: it is a directory."""

    directory: RunDirectory
    messages: list[str] = field(default_factory=list)
    altered: list[str] = field(default_factory=list)
    archive: str = ""
    members: list[Member] = field(default_factory=list)  # of the archive, but for the manifest

    def origin(self, run_id: str) -> str:
        """Return whose evidence the run is; empty: this site's own, a run in the folder of its runs, under its own id,
        that nobody else could have written. A directory that holds a manifest was unpacked from an archive."""
        if self.archive:
            return f"archive:{self.archive[:12]}"
        path = self.directory.path.resolve()
        ours = path.parent == runs_folder().resolve() and path.name == run_id and not (path / MANIFEST).exists()
        if ours and not self.messages:
            return ""
        return f"folder:{hashlib.sha256(os.fsencode(path)).hexdigest()[:12]}"


@contextmanager
def opened(path: Path) -> Iterator[OpenedRun]:
    """Unpack an archive for as long as it is used. Raises Refused (a ValueError) and OSError."""
    with tempfile.TemporaryDirectory(prefix="shakedown-") as folder:
        yield _unpack(path, Path(folder))


def _unpack(path: Path, folder: Path) -> OpenedRun:
    try:
        with path.open("rb") as file:
            reader = Reader(file)
            members = reader.members()
            manifest, text = _manifest(reader, next(members, None))
            _bounds(manifest, path.stat().st_size, folder)
            run = folder / manifest.run_id
            private.make_folders(run)
            wanted = {member.path: member for member in manifest.members}
            found: dict[str, str] = {}
            for name, size in members:
                if name in found:
                    raise Refused(f"{name} stands in it twice")
                if name not in wanted:
                    raise Refused(f"{name} is not in its manifest: nothing of it was read")
                if size != wanted[name].size:
                    raise Refused(f"{name} has {size} bytes, and {wanted[name].size} by the manifest")
                found[name] = _write(reader, size, run / name)
    except Refused as error:
        raise Refused(f"{path}: refused: {error}") from None
    altered = [
        f"{name} was altered: its SHA-256 is not that of the manifest"
        for name, sha256 in found.items()
        if sha256 != wanted[name].sha256
    ]
    altered += [f"{name} is missing" for name in wanted if name not in found]
    packed, sha256 = f"packed by shakedown {manifest.shakedown}, judged {manifest.verdict} then", digest(text)
    return OpenedRun(RunDirectory(run), [f"{packed}; manifest sha256 {sha256}"], altered, sha256, manifest.members)


def _manifest(reader: Reader, first: tuple[str, int] | None) -> tuple[Manifest, bytes]:
    if first is None or first[0] != MANIFEST:
        raise Refused(f"its first member is not {MANIFEST}")
    if first[1] > MANIFEST_LIMIT:
        raise Refused(f"its manifest has {first[1]} bytes, where at most {MANIFEST_LIMIT} are read")
    text = b"".join(reader.content(first[1]))
    try:
        manifest = Manifest.model_validate(shallow(load_json(text, MANIFEST_LIMIT)))
    except ValueError as error:
        raise Refused(f"its manifest is none: {first_problem(error)}") from None
    _names(manifest)
    return manifest, text


def _names(manifest: Manifest) -> None:
    """No two members may be one on a file system that does not tell capitals, nor one lie below another."""
    seen: set[str] = set()
    for path in [MANIFEST, *(member.path for member in manifest.members)]:
        if path.lower() in seen:
            raise Refused(f"{path} stands in its manifest twice")
        seen.add(path.lower())
    for path in seen:
        for above in seen.intersection(map(str, PurePosixPath(path).parents)):
            raise Refused(f"{above} is a file, and {path} would lie below it")


def _bounds(manifest: Manifest, packed: int, folder: Path) -> None:
    total = sum(member.size for member in manifest.members)
    if total > UNPACKED_LIMIT:
        raise Refused(f"it would unpack to {total} bytes, where at most {UNPACKED_LIMIT} are taken")
    if total > packed * RATIO + SLACK:
        raise Refused(f"its {packed} bytes would unpack to {total}: no run packs so well")
    free = shutil.disk_usage(folder).free
    if total + ROOM > free:
        raise Refused(f"it unpacks to {total} bytes, and {folder.parent} has {free} free: set TMPDIR to a larger disk")


def _write(reader: Reader, size: int, target: Path) -> str:
    found = hashlib.sha256()
    with private.create(target) as file:
        for part in reader.content(size):
            found.update(part)
            private.write(file, part)
    return found.hexdigest()


def is_packed(name: str) -> bool:
    """Whether this is a file that `shakedown bundle` has made, by how it begins."""
    path = Path(name)
    return path.is_file() and path.stat().st_size > 0 and is_archive(path)  # /proc/kmsg would be waited for


@contextmanager
def opened_run(name: str) -> Iterator[OpenedRun]:
    """Open a run by its name, or out of an archive. Raises ValueError and OSError."""
    if is_packed(name):
        with opened(Path(name)) as run:
            yield run
        return
    path, messages = find_run(name), []
    try:
        own(path, "run.json")
    except (OSError, ValueError) as error:
        messages = [f"others could have written it: {error}"]
    yield OpenedRun(RunDirectory(path), messages)
