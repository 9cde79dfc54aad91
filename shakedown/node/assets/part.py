"""Travels with download.py: one file of a folder that may be shared, and the part as which it grows there:
`.NAME.part-NODE-UID`, which no other user may write, and no other node. The file gets its name when it has been read
and found right."""

from __future__ import annotations

import hashlib
import os
import stat
from contextlib import suppress
from typing import Any, Dict, Optional

from shakedown.node.assets.lease import here
from shakedown.node.assets.words import Failure, say
from shakedown.node.data import record, recorded
from shakedown.node.safe_files import Folder, Unsafe

BLOCK = 1 << 20


class Wanted:
    """One file, and what is there of it."""

    def __init__(self, folder: Folder, file: Dict[str, Any]) -> None:
        self.folder = folder
        self.url: str = file["url"]
        self.name: str = file["name"]
        self.sha256: Optional[str] = file.get("sha256")
        self.size: Optional[int] = file.get("size")
        self.parts = ".{}.part".format(self.name)
        self.part = "{}-{}-{}".format(self.parts, here(), os.geteuid())

    def open_part(self) -> int:
        """Open the part if no other user has ever been able to write it, else make a new one."""
        with suppress(FileNotFoundError, Unsafe):
            fd = self.folder.open(self.part, os.O_RDWR)
            found = os.fstat(fd)
            if found.st_uid == os.geteuid() and found.st_nlink == 1 and not found.st_mode & 0o077:
                return fd
            os.close(fd)
        self.discard()
        fd = self.folder.open(self.part, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        if os.fstat(fd).st_uid != os.geteuid():
            os.close(fd)
            self.discard()
            words = "{} gives root's files to another (root_squash): connect as the folder's owner"
            raise Failure("folder", words.format(self.folder.path))
        return fd

    def have(self) -> int:
        found = self.folder.look(self.part)
        return found.st_size if found is not None and stat.S_ISREG(found.st_mode) else 0

    def discard(self) -> None:
        self.folder.remove_tree(self.part)

    def recorded(self) -> bool:
        """Return whether the file was checked before, and not touched since."""
        result = recorded(self.folder, self.name)
        return result is not None and self.sha256 in (None, result["sha256"]) and self.size in (None, result["size"])

    def check(self, fd: int) -> str:
        """Return the SHA-256 of a whole file. Failure where it is not the requested one."""
        size = os.fstat(fd).st_size
        if self.size is not None and size != self.size:
            raise Failure("other", "{} has {} bytes, not {}".format(self.name, size, self.size))
        digest = hashlib.sha256()
        os.lseek(fd, 0, os.SEEK_SET)
        for block in iter(lambda: os.read(fd, BLOCK), b""):
            digest.update(block)
        found = digest.hexdigest()
        if self.sha256 not in (None, found):
            words = "{} is not the wanted file: wanted sha256 {:.12}..., read {}"
            raise Failure("other", words.format(self.name, self.sha256, found))
        return found

    def keep(self, fd: int, digest: str) -> None:
        """Record what was read through `fd`, if that is what has the name."""
        found, named = os.fstat(fd), self.folder.look(self.name)
        if named is None or (named.st_ino, named.st_dev) != (found.st_ino, found.st_dev):
            raise Failure("other", "{} changed while it was read".format(self.name))
        record(self.folder, self.name, named, digest, self.url)
        known = "as wanted" if self.sha256 else "the desired state names no checksum to compare with"
        say("{}: {} bytes, sha256 {} ({})".format(self.name, found.st_size, digest, known))

    def looked_at(self) -> bool:
        """Check a file that another process put there; it is never overwritten. False where there is none."""
        if self.folder.look(self.name) is None:
            return False
        with os.fdopen(self.folder.open(self.name, os.O_RDONLY), "rb") as handle:
            self.keep(handle.fileno(), self.check(handle.fileno()))
        return True

    def finish(self) -> None:
        """Read the part, and give its name to what was read."""
        fd = self.open_part()
        with os.fdopen(fd, "rb"):
            try:
                digest = self.check(fd)
            except Failure:
                self.discard()
                raise
            mask = os.umask(0)
            os.umask(mask)
            os.fchmod(fd, 0o666 & ~mask)
            os.fsync(fd)
            self.give_name()
            self.folder.sync()
            self.keep(fd, digest)

    def give_name(self) -> None:
        """Give the part its name, never over a file that came there meanwhile."""
        into = {"src_dir_fd": self.folder.fd, "dst_dir_fd": self.folder.fd}
        try:
            os.link(self.part, self.name, follow_symlinks=False, **into)
        except FileExistsError:
            raise Failure("other", "another process made {} meanwhile".format(self.name)) from None
        except OSError:  # a file system without hard links
            os.rename(self.part, self.name, **into)
        self.folder.remove(self.part)
