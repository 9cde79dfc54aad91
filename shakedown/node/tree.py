"""Reading files of the node, and saying why where that cannot be done."""

from __future__ import annotations

import errno
import json
import os
import shutil
from fnmatch import fnmatchcase
from typing import Any, Callable, Dict, Iterable, Optional, Sequence

Part = Dict[str, Any]

_WHY = {errno.EACCES: "not permitted", errno.EPERM: "not permitted", errno.ETIMEDOUT: "timed out"}
_WHY.update(dict.fromkeys((errno.ENOENT, errno.ENOTDIR, errno.ENODEV, errno.ENXIO, errno.EOPNOTSUPP), "missing"))


class Unreadable(Exception):
    """A reading that could not be taken: `reason` is one of state.py's reasons, `detail` names the file or the tool."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(reason, detail)
        self.reason = reason
        self.detail = detail

    def as_part(self) -> Part:
        return {"unreadable": self.reason, "detail": self.detail[:500]}


def explain(error: BaseException) -> Unreadable:
    if isinstance(error, Unreadable):
        return error
    if isinstance(error, OSError):
        words = "{}: {}".format(error.filename, error.strerror) if error.filename else str(error)
        return Unreadable(_WHY.get(error.errno or 0, "failed"), words)
    reason = "malformed" if isinstance(error, (ValueError, KeyError, IndexError, TypeError)) else "failed"
    return Unreadable(reason, "{}: {}".format(type(error).__name__, error))


def attempt(reading: Callable[..., Any], *arguments: Any) -> Any:
    """Return the value of `reading(*arguments)`, or the unreadable part that says why there is none."""
    try:
        return reading(*arguments)
    except Exception as error:  # whatever a broken node makes a reading raise costs that reading only
        return explain(error).as_part()


def attempt_or(default: Any, reading: Callable[..., Any], *arguments: Any) -> Any:
    """Return the value of `reading(*arguments)`; the default where no reason for its absence is needed."""
    try:
        return reading(*arguments)
    except Exception:
        return default


def is_unreadable(value: Any) -> bool:
    return isinstance(value, dict) and "unreadable" in value


def pairs(lines: Iterable[str], separator: str = "=") -> Dict[str, str]:
    """Return what the lines of a file assign; lines of comments begin with #."""
    found = (line.partition(separator) for line in lines if separator in line and not line.lstrip().startswith("#"))
    return {key.strip(): value.strip() for key, _, value in found}


def pick(part: Any, *names: str) -> Any:
    """Return the value below `names` in a part; the reason of an unreadable part is the value's reason too."""
    if is_unreadable(part):
        raise Unreadable(part["unreadable"], part["detail"])
    for name in names:
        part = part[name]
    return part


class Tree:
    """The node's files below `root`: "/" on a node, a recorded or generated tree in a test. What a kernel reports by
    system call only (addresses, room on disks, ...) has no file; a tree that is not the live one holds it in
    `recorded.json`, by the subject of `ask`."""

    book: Any = None  # of the whole process: where a capture keeps the node's answers, or finds them again (book.py)

    def __init__(self, root: str = "/") -> None:
        self.root = root.rstrip("/")
        self.live = self.root == ""
        self._recorded: Part = {}
        if os.path.exists(self.root + "/recorded.json") and not self.live:
            with open(self.root + "/recorded.json", encoding="utf-8") as file:
                self._recorded = json.load(file)

    def path(self, path: str) -> str:
        return self.root + path

    def ask(self, subject: str, reading: Callable[..., Any], *arguments: Any) -> Any:
        """Return the JSON value that a reading of this node gives. A capture takes all that go through here."""
        if subject in self._recorded:
            reading, arguments = self._recorded.get, (subject,)
        return reading(*arguments) if self.book is None else self.book.answer(subject, reading, *arguments)

    def raw(self, path: str, limit: int = 1 << 22) -> bytes:
        """Return the content of a file, at most `limit` bytes of it."""
        return bytes(self.ask("file " + path, self._raw, path, limit))

    def _raw(self, path: str, limit: int) -> bytes:
        content = b""  # in blocks: the kernel refuses a read of 4 MiB from a sysctl (ENOMEM, fs/proc/proc_sysctl.c)
        try:
            with open(self.root + path, "rb") as file:
                while block := file.read(min(1 << 20, limit - len(content))):
                    content += block
        except OSError as error:
            error.filename = path
            raise
        return content

    def text(self, path: str) -> str:
        return self.raw(path).decode("utf-8", "replace").strip()

    def lines(self, path: str) -> list[str]:
        return self.text(path).splitlines()

    def number(self, path: str) -> int:
        return int(self.text(path), 0)

    def names(self, path: str) -> list[str]:
        """Return the names in a folder, sorted; none where there is no such folder."""
        return sorted(self.ask("folder " + path, self._names, path))

    def _names(self, path: str) -> list[str]:
        try:
            return os.listdir(self.root + path)
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            error.filename = path
            raise

    def names_if_permitted(self, path: str) -> list[str]:
        """Return the names; none where this user may not read the folder and the caller has no place for a reason."""
        try:
            return self.names(path)
        except PermissionError:
            return []

    def conf_files(self, folders: Sequence[str], ending: str = ".conf", strict: bool = True) -> list[str]:
        """Return the files of folders such as sysctl.d, by name: of one name that in the first folder. Not `strict`:
        pass by the folders that this user may not read."""
        names = self.names if strict else self.names_if_permitted
        paths = {name: folder + "/" + name for folder in reversed(folders) for name in names(folder)}
        return [path for name, path in sorted(paths.items()) if name.endswith(ending)]

    def matching(self, path: str, pattern: str) -> list[str]:
        """Return the names in a folder that fit a shell pattern, sorted."""
        return [name for name in self.names(path) if fnmatchcase(name, pattern)]

    @property
    def psutil(self) -> Any:
        """psutil, over the files of this tree."""
        import psutil  # not at the top: the boot unit's program has this module, too, and no package

        psutil.PROCFS_PATH = self.path("/proc")
        return psutil

    def exists(self, path: str) -> bool:
        return bool(self.ask("exists " + path, os.path.exists, self.root + path))

    def target(self, path: str) -> Optional[str]:
        """Return what a link names; None where there is no link."""
        found: Optional[str] = self.ask("link " + path, attempt_or, None, os.readlink, self.root + path)
        return found

    def link_name(self, path: str) -> Optional[str]:
        """Return the last name of a link's target: how sysfs names a driver, a device or a NUMA node."""
        target = self.target(path)
        return target and os.path.basename(target)

    def followed(self, path: str) -> str:
        """Return the path in this tree that a path leads to, through all links."""
        begin = len(os.path.realpath(self.root)) if self.root else 0
        return str(self.ask("followed " + path, lambda: os.path.realpath(self.root + path)[begin:]))

    def first(self, *paths: str) -> Optional[str]:
        """Return the first of the paths that exists."""
        return next((path for path in paths if self.exists(path)), None)

    def tool(self, name: str) -> str:
        """Return the path of an executable, by the folders that a non-login shell's PATH may lack."""
        return str(self.ask("program " + name, self._tool, name))

    def _tool(self, name: str) -> str:
        folders = ("/usr/sbin", "/usr/bin", "/usr/local/sbin", "/usr/local/bin", "/sbin", "/bin")
        path = shutil.which(name, path=os.pathsep.join(self.root + folder for folder in folders))
        if path is None:
            raise Unreadable("missing", name)
        return path
