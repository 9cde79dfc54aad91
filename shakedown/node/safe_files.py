"""Files and folders on a node, opened so that no other user can turn a write elsewhere. Travels as text (Python 3.8).

A path is walked one component at a time from `/`, each opened in the one before it: what is swapped later changes
nothing. A link is followed where only root or this user could have made it. A folder is `sound` where that holds for
all the way and for itself; sticky folders such as /tmp count for what root or this user owns in them.
"""

from __future__ import annotations

import fcntl
import os
import pwd
import stat
import time
from contextlib import contextmanager, suppress
from typing import Any, Callable, Iterator, List, Optional

from .owners import closed, trusted

FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
FILE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY  # a FIFO must not be waited for
LINKS = 40
ROOTS_STATE = "/var/lib/shakedown"
ROOTS_LOCKS = "/run/shakedown"


class Unsafe(Exception):
    """Another user could lay something in the way; says where, whose it is, and what to do."""

    kind = "folder"  # of the advice, as assets/words.py has it


class Busy(Exception):
    """A lock that another process holds; says which."""

    kind = "busy"


class Folder:
    """An open folder. `problem` says why it is not sound; empty where it is."""

    def __init__(self, fd: int, path: str, problem: str) -> None:
        self.fd, self.path, self.problem = fd, path, problem

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)

    def look(self, name: str) -> Optional[os.stat_result]:
        """Return what stands under a name, a link as a link; None where there is nothing."""
        try:
            return os.stat(name, dir_fd=self.fd, follow_symlinks=False)
        except FileNotFoundError:
            return None

    def open(self, name: str, flags: int, mode: int = 0o600) -> int:
        """Open a regular file, never through a link. Unsafe for anything else."""
        try:
            fd = os.open(name, flags | FILE, mode, dir_fd=self.fd)
        except OSError:
            found = self.look(name)
            if found is None or stat.S_ISREG(found.st_mode):
                raise
        else:
            found = os.fstat(fd)
            if stat.S_ISREG(found.st_mode):
                return fd
            os.close(fd)
        words = "{}/{} is a {} of {}, not a file: remove it"
        raise Unsafe(words.format(self.path.rstrip("/"), name, kind(found.st_mode), who(found.st_uid)))

    def open_own(self, name: str, flags: int) -> int:
        """Open a file that root or this user made, that no other user may write and that has no other name."""
        fd = self.open(name, flags)
        found = os.fstat(fd)
        if not closed(found) or found.st_nlink != 1:
            os.close(fd)
            words = "belongs to {}, has mode {:04o} and {} name(s), so another user could have written it: remove it"
            fault = words.format(who(found.st_uid), stat.S_IMODE(found.st_mode), found.st_nlink)
            raise Unsafe("{}/{} {}".format(self.path.rstrip("/"), name, fault))
        return fd

    def read_own(self, name: str, limit: int = 1 << 20) -> Optional[bytes]:
        """Return the content of such a file; None where there is none."""
        try:
            fd = self.open_own(name, os.O_RDONLY)
        except FileNotFoundError:
            return None
        with os.fdopen(fd, "rb") as handle:
            return handle.read(limit)

    def write(self, name: str, content: bytes, mode: int = 0o644) -> None:
        """Write beside its place and move it there: a full disk or a cut leaves the old one."""
        with self.fresh(name, mode) as handle:
            handle.write(content)

    @contextmanager
    def fresh(self, name: str, mode: int) -> Iterator[Any]:
        """Open a file that gets its name when it has been written whole."""
        beside = ".{}.{}.new".format(name[:100], os.urandom(8).hex())
        handle = os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | FILE, 0o600, dir_fd=self.fd), "wb")
        try:
            yield handle
            handle.flush()
            os.fchmod(handle.fileno(), mode)
            os.fsync(handle.fileno())
            os.rename(beside, name, src_dir_fd=self.fd, dst_dir_fd=self.fd)
            beside = ""
            self.sync()
        finally:
            if beside:
                self.remove(beside)
            handle.close()

    def remove(self, name: str) -> bool:
        """Remove a file or link; False where there is none."""
        try:
            os.unlink(name, dir_fd=self.fd)
            return True
        except FileNotFoundError:
            return False

    @contextmanager
    def readable(self) -> Iterator[int]:
        """Open the folder itself for reading: `fd` is a mere path (O_PATH)."""
        fd = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=self.fd)
        try:
            yield fd
        finally:
            os.close(fd)

    def sync(self) -> None:
        """Call fsync(2) on the folder: its names are on the disk too."""
        with self.readable() as fd:
            os.fsync(fd)

    def names(self) -> List[str]:
        with self.readable() as fd:
            return os.listdir(fd)

    def down(self, name: str) -> "Folder":
        """Open a folder in this one; never through a link."""
        return Folder(os.open(name, FOLDER, dir_fd=self.fd), os.path.join(self.path, name), self.problem)

    def remove_tree(self, name: str) -> None:
        """Remove a file, a link or a whole folder, without ever leaving this one."""
        found = self.look(name)
        if found is None:
            return
        if not stat.S_ISDIR(found.st_mode):
            os.unlink(name, dir_fd=self.fd)
            return
        inner = self.down(name)
        try:
            for entry in inner.names():
                inner.remove_tree(entry)
        finally:
            inner.close()
        os.rmdir(name, dir_fd=self.fd)

    def lock(self, name: str, patience_s: float, waiting: Callable[[str], Any] = lambda holder: None) -> int:
        """Keep others on this node out, until the descriptor that comes back is closed. Busy names the holder."""
        fd = self.open_own(name, os.O_RDWR | os.O_CREAT)
        deadline, announced = time.monotonic() + patience_s, False
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return fd
            except BlockingIOError:
                holder = holder_of(os.fstat(fd).st_ino)
                if time.monotonic() >= deadline:
                    os.close(fd)
                    raise Busy("{}/{} is held by {}".format(self.path, name, holder)) from None
            if not announced:
                announced = True
                waiting(holder)
            time.sleep(0.2)


def walk(path: str, make: Optional[int] = None, strict: bool = False) -> Folder:
    """Open a folder by its absolute path; missing ones are made with the mode `make`. Raises Unsafe where a link is in
    the way that another user could have made, OSError where there is no such folder. `problem` says that other users
    can write on the way; with `strict` it is Unsafe, and nothing is made."""
    if not path.startswith("/"):
        raise Unsafe("{!r} is not an absolute path".format(path))
    rest, links = parts(path), 0
    here = Folder(os.open("/", FOLDER), "/", "")
    while rest:
        name = rest.pop(0)
        parent, there = os.fstat(here.fd), os.path.join(here.path, name)
        found = here.look(name)
        if name == "..":
            rest = parts(os.path.dirname(here.path)) + rest
            here = Folder(os.open("/", FOLDER), "/", here.problem)
        elif found is None:
            if strict and not closed(parent) and not sticky(parent):
                raise Unsafe(here.problem or open_to_others(here.path, parent))
            if make is None:
                raise FileNotFoundError(2, "no such folder", there)
            with suppress(FileExistsError):  # another process was faster: looked at as any other folder
                os.mkdir(name, make, dir_fd=here.fd)
            rest.insert(0, name)
        elif stat.S_ISLNK(found.st_mode):
            if not closed(parent) or not trusted(found.st_uid):
                words = "{} is a link that another user could have made (its owner is {}): name the folder itself"
                raise Unsafe(words.format(there, who(found.st_uid)))
            links += 1
            if links > LINKS:
                raise OSError(40, "too many links", there)
            rest = parts(os.path.join(here.path, os.readlink(name, dir_fd=here.fd))) + rest
            here = Folder(os.open("/", FOLDER), "/", here.problem)
        else:
            inner = here.down(name)
            inner.problem = here.problem or unsound(here.path, parent, there, os.fstat(inner.fd))
            if strict and inner.problem:
                raise Unsafe(inner.problem)
            here = inner
    now = os.fstat(here.fd)
    here.problem = here.problem or ("" if closed(now) else open_to_others(here.path, now))
    return here


def parts(path: str) -> List[str]:
    return [part for part in path.split("/") if part not in ("", ".")]


def unsound(here: str, parent: os.stat_result, there: str, found: os.stat_result) -> str:
    """Return why another user could put something else in the place of a folder; empty where none can."""
    if closed(parent):
        return ""
    if sticky(parent):
        return "" if trusted(found.st_uid) else open_to_others(there, found)
    return open_to_others(here, parent)


def open_to_others(path: str, found: os.stat_result) -> str:
    """Say whose a folder is, and what to do."""
    if trusted(found.st_uid):
        fault, remedy = "has mode {:04o}, so others".format(stat.S_IMODE(found.st_mode)), "chmod go-w"
    else:
        fault, remedy = "belongs to {}, who".format(who(found.st_uid)), "connect as its owner"
    words = "{} {} could redirect what {} writes there: {}, or name another folder"
    return words.format(path, fault, who(os.geteuid()), remedy)


def sticky(found: os.stat_result) -> bool:
    """Return whether all may write there, and no user can touch another's files: /tmp, many a cluster's scratch."""
    return trusted(found.st_uid) and bool(found.st_mode & stat.S_ISVTX)


def sound(path: str, make: Optional[int] = None, or_sticky: bool = False) -> Folder:
    """Walk; Unsafe where another user could write. `or_sticky`: for callers that make a folder of their own there."""
    folder = walk(path, make, strict=True)
    if folder.problem and not (or_sticky and sticky(os.fstat(folder.fd))):
        folder.close()
        raise Unsafe(folder.problem)
    return folder


def who(uid: int) -> str:
    try:
        return "{} (uid {})".format(pwd.getpwuid(uid).pw_name, uid)
    except KeyError:
        return "uid {}".format(uid)


def kind(mode: int) -> str:
    names = {stat.S_IFLNK: "link", stat.S_IFIFO: "FIFO", stat.S_IFDIR: "folder", stat.S_IFSOCK: "socket"}
    return names.get(stat.S_IFMT(mode), "device")


def state_path() -> str:
    """Return where records are kept: root's own place, or the user's."""
    if os.geteuid() == 0:
        return ROOTS_STATE
    return os.path.join(pwd.getpwuid(os.geteuid()).pw_dir, ".local", "state", "shakedown")


def locks() -> Folder:
    """Open the folder of this node's locks. Root's are beside the launcher's, which other users ask about."""
    mask = os.umask(0o022)
    try:
        return sound(ROOTS_LOCKS, 0o755) if os.geteuid() == 0 else sound(state_path(), 0o700)
    finally:
        os.umask(mask)


def holder_pid(place: str) -> str:
    """Return the process that holds the lock of a file whose place (device and inode) in /proc/locks ends so."""
    with suppress(OSError), open("/proc/locks") as handle:
        rows = [line.split() for line in handle]
        return next((row[4] for row in rows if len(row) > 5 and row[1] == "FLOCK" and row[5].endswith(place)), "")
    return ""


def holder_of(inode: int) -> str:
    """Say who holds a lock. Several file systems may have that inode number, so it is a hint."""
    pid = holder_pid(":{}".format(inode))
    if not pid:
        return "another process"
    try:
        with open("/proc/{}/cmdline".format(pid), "rb") as handle:
            name = handle.read(60).replace(b"\0", b" ").decode("ascii", "replace").strip()
        return "process {} ({}) of {}".format(pid, name, who(os.stat("/proc/" + pid).st_uid))
    except OSError:
        return "process {}".format(pid)
