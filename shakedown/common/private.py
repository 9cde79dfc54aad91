"""Files of the controller that are nobody else's: 0700 folders and 0600 files, whatever the umask.

Logs, states and plans of a run hold host names, paths and variables, and `runs/` may lie in a home that others read.
"""

import os
import tempfile
from contextlib import suppress
from io import FileIO
from pathlib import Path


def why_unwritable(folder: Path) -> str:
    """Return why nothing can be written in a folder, or in the nearest that is there above it; empty: it can. A trial
    write leaves nothing."""
    there = next(path for path in (folder.absolute(), *folder.absolute().parents) if os.access(path, os.F_OK))
    try:
        with tempfile.TemporaryFile(dir=there):
            return ""
    except OSError as error:
        return f"nothing can be written in {there} ({error.strerror})"


def make_folders(path: Path) -> None:
    """Make a folder and what is missing above it, each for its owner alone. Folders that are there stay as they are.
    Raises OSError, also where a file stands in the way."""
    missing = []
    while not path.is_dir():
        missing.append(path)
        path = path.parent
    for folder in reversed(missing):
        try:
            folder.mkdir(0o700)
            folder.chmod(0o700)  # the umask may have taken bits of the owner away
        except FileExistsError:  # another run was faster
            if not folder.is_dir():
                raise


def create(path: Path) -> FileIO:
    """Create a new file for its owner alone, in a folder that is made where it is missing. Raises FileExistsError for
    one that is there (a link too), and OSError. It has no buffer: a write that fails says so itself."""
    make_folders(path.parent)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    os.fchmod(descriptor, 0o600)
    return FileIO(descriptor, "wb")


def write(file: FileIO, content: bytes) -> None:
    """Write all of the content: one write of a file without a buffer may take a part of it. Raises OSError."""
    rest = memoryview(content)
    while rest:
        rest = rest[file.write(rest) :]


def replace(target: Path, beside: Path, content: bytes, mode: int = 0o600) -> None:
    """Write a file whole or not at all, by way of the one `beside` it. Raises OSError."""
    try:
        beside.unlink(missing_ok=True)
        with create(beside) as file:
            write(file, content)
            os.fchmod(file.fileno(), mode)
            os.fsync(file.fileno())
        beside.replace(target)
    except OSError:
        with suppress(OSError):
            beside.unlink(missing_ok=True)
        raise
