"""Records of data on a node, kept in root's or the user's own state folder: the data's may be any user's. Travels as
text (Python 3.8). A record has what shows that a file was touched since. Data that a program has prepared is a
folder of many files; its mark counts only where only root and this user could have made it."""

from __future__ import annotations

import hashlib
import json
import os
import socket
import stat
from typing import Any, Dict, List, Optional

from .safe_files import Folder, Unsafe, sound, state_path, walk

MARK = ".shakedown-prepared"


def signs(found: os.stat_result) -> Dict[str, int]:
    """Return what changes when a file is touched. Only root can set the time of its change back."""
    about = {"size": found.st_size, "mtime_ns": found.st_mtime_ns}
    return dict(about, ctime_ns=found.st_ctime_ns, inode=found.st_ino)


def key_of(folder: Folder, name: str) -> str:
    """Return the name of a file's record: a home that nodes share must not mix their folders up."""
    words = "\0".join((socket.gethostname(), folder.path, name))
    return hashlib.sha256(words.encode("utf-8", "surrogateescape")).hexdigest() + ".json"


def records(make: bool = False) -> Folder:
    return sound(os.path.join(state_path(), "data"), 0o700 if make else None)


def recorded(folder: Folder, name: str) -> Optional[Dict[str, Any]]:
    """Return the record of a file's check, if the file is as it was then; None otherwise."""
    found = folder.look(name)
    if found is None or not stat.S_ISREG(found.st_mode):
        return None
    try:
        record = json.loads((records().read_own(key_of(folder, name)) or b"{}").decode())
    except (OSError, ValueError, RecursionError, Unsafe):
        return None
    same = isinstance(record, dict) and all(record.get(key) == value for key, value in signs(found).items())
    return record if same else None


def record(folder: Folder, name: str, found: os.stat_result, sha256: str, url: str) -> None:
    kept = {"path": os.path.join(folder.path, name), "url": url, "sha256": sha256, **signs(found)}
    records(make=True).write(key_of(folder, name), json.dumps(kept).encode(), 0o600)


def listing(folder: Folder, below: str = "") -> Dict[str, int]:
    """Return each file of a folder by its path there, with its size."""
    found: Dict[str, int] = {}
    for name in sorted(folder.names()):
        info = folder.look(name)
        path = os.path.join(below, name)
        if info is None or path == MARK:
            continue
        if stat.S_ISDIR(info.st_mode):
            inner = folder.down(name)
            found.update(listing(inner, path))
            inner.close()
        else:
            found[path] = info.st_size
    return found


def prepared(path: str) -> str:
    """Return "absent", "prepared" (by Shakedown, whole), or why the folder is neither."""
    try:
        folder = walk(path)
    except FileNotFoundError:
        return "absent"
    except (Unsafe, OSError) as error:
        return str(error)
    if not folder.names():
        return "absent"
    if folder.look(MARK) is None:
        return "exists, and Shakedown did not prepare it: use it as it is, or name another folder"
    if folder.problem:
        return "has a mark that another user could have written: " + folder.problem
    try:
        mark = json.loads((folder.read_own(MARK, 64 << 20) or b"").decode())
        files = mark["files"]
    except (Unsafe, OSError) as error:
        return str(error)
    except (ValueError, KeyError, TypeError, RecursionError):
        return "has a mark that cannot be read: remove the folder and prepare it again"
    if files != listing(folder):
        return "has changed since it was prepared (its files differ from its mark): remove it and prepare it again"
    return "prepared"


def downloaded(path: str, names: List[str]) -> Dict[str, Dict[str, Any]]:
    """Return size and SHA-256 of each file that was checked, and not touched since."""
    try:
        folder = walk(path)
    except (OSError, Unsafe):
        return {}
    records = {name: recorded(folder, name) for name in names}
    return {name: {key: record[key] for key in ("size", "sha256")} for name, record in records.items() if record}
