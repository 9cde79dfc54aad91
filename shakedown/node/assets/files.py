"""Runs on a node (python3 >= 3.8, standard library only): every file that an operation makes, moves or removes there.

Reads one JSON object from standard input: `do`, and what that needs:

    write    path, lines or content (base64), mode, once (leave one that is there), folder_mode (of folders that are
             missing), root (what to say to any other user); modes in octal
    keep     path, kept: a copy of what stands at a path, a link as a link, unless one is kept already
    restore  kept, path: the copy back in its place
    remove   paths, marked (only those that begin with it, within their first lines), home (a whole folder),
             folders (those that go if nothing else is in them)
    install  home, digest, archive (base64 of a zlib'd tar), run (the text of the file that starts the program),
             files: path -> [text, mode]: the agent
    forget   path: a whole folder, and the state folder around it where nothing else is in it
    folder   path: have it, and look whether it is safe to work in as this user
    token, see, untoken    folder, name, content: a mark in a folder that may be any user's

A failure is one line on standard error, exit code 1. No link is followed that another user could have made, and nothing
is written where another user could redirect it; only tokens go into folders of others, under a name of their own.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import re
import stat
import subprocess
import sys
import tarfile
import time
import zlib
from contextlib import suppress
from typing import Any, Callable, Dict, List, Tuple

from shakedown.node.assets.words import clean
from shakedown.node.owners import own_file
from shakedown.node.safe_files import Busy, Folder, Unsafe, locks, sound, state_path, walk

PATIENCE_S = 60.0
HEAD = 512  # bytes in which our mark must stand: it is the first or second line
TOKEN = 4096
# The distribution's own, which a user's or a module's is not: what root runs by a timer must not be theirs.
PYTHONS = ("/usr/bin/python3", "/usr/libexec/platform-python")
MORE = tuple("/usr/bin/python3.{}".format(minor) for minor in range(14, 7, -1))
NEW_ENOUGH = "import sys; sys.exit(sys.version_info < (3, 8))"


def split(path: str, make: int = 0o755) -> Any:
    """Return the folder of a path, safe and present, and the name in it."""
    folder, _, name = path.rpartition("/")
    if name in ("", ".", "..") or not path.startswith("/"):
        raise Unsafe("{!r} is not the path of a file".format(path))
    return sound(folder or "/", make), name


def write(job: Dict[str, Any]) -> None:
    folder, name = split(job["path"], int(job.get("folder_mode", "0755"), 8))
    found = folder.look(name)
    if found is not None and stat.S_ISDIR(found.st_mode):
        raise Unsafe("{} is a folder".format(job["path"]))
    if job.get("once") and found is not None:
        folder.read_own(name)  # one that another user could have written is no record
        return
    text = "".join(line + "\n" for line in job.get("lines", []))
    content = base64.b64decode(job["content"]) if "content" in job else text.encode("utf-8", "surrogateescape")
    folder.write(name, content, int(job["mode"], 8))


def keep(job: Dict[str, Any]) -> None:
    here, name = split(job["path"])
    there, kept = split(job["kept"], 0o700)
    if there.look(kept) is None:
        copy(here, name, there, kept)


def restore(job: Dict[str, Any]) -> None:
    there, kept = split(job["kept"], 0o700)
    if there.look(kept) is None:
        return  # restored already, by a run that went no further
    here, name = split(job["path"])
    copy(there, kept, here, name)
    there.remove(kept)


def copy(source: Folder, name: str, target: Folder, new: str) -> None:
    """Copy a link as a link, a file with its mode, owner and times."""
    found = source.look(name)
    if found is not None and stat.S_ISLNK(found.st_mode):
        beside = ".{}.{}.new".format(new[:100], os.urandom(8).hex())
        os.symlink(os.readlink(name, dir_fd=source.fd), beside, dir_fd=target.fd)
        os.rename(beside, new, src_dir_fd=target.fd, dst_dir_fd=target.fd)
        return
    with os.fdopen(source.open(name, os.O_RDONLY), "rb") as handle:
        found = os.fstat(handle.fileno())
        with target.fresh(new, stat.S_IMODE(found.st_mode)) as fresh:
            for block in iter(lambda: handle.read(1 << 20), b""):
                fresh.write(block)
            fresh.flush()
            if os.geteuid() == 0:
                os.fchown(fresh.fileno(), found.st_uid, found.st_gid)
            os.utime(fresh.fileno(), ns=(found.st_atime_ns, found.st_mtime_ns))


def remove(job: Dict[str, Any]) -> None:
    for path in job["paths"]:
        parent, _, name = path.rpartition("/")
        with suppress(FileNotFoundError):
            folder = sound(parent or "/")
            if not job.get("marked") or begins(folder, name, job["marked"]):
                folder.remove(name)
    home = job.get("home")
    for path in [*([home] if home else []), *job.get("folders", [])]:
        above, _, name = path.rpartition("/")
        with suppress(FileNotFoundError):
            parent = sound(above)
            if path == home:
                parent.remove_tree(name)
            elif not sound(path).names():
                os.rmdir(name, dir_fd=parent.fd)


def begins(folder: Folder, name: str, mark: str) -> bool:
    found = folder.look(name)
    if found is None or not stat.S_ISREG(found.st_mode):
        return False
    with os.fdopen(folder.open(name, os.O_RDONLY), "rb") as handle:
        return any(line.startswith(mark.encode()) for line in handle.read(HEAD).splitlines()[:2])


def forget(job: Dict[str, Any]) -> None:
    above = os.path.dirname(job["path"])
    remove({"paths": [], "home": job["path"], "folders": [above] if above == state_path() else []})


def folder(job: Dict[str, Any]) -> None:
    """Check that a folder is safe to work in; a missing one has to come into a safe one."""
    parent, _, name = job["path"].rstrip("/").rpartition("/")
    above = sound(parent or "/", 0o755, or_sticky=True)
    if above.look(name) is not None or above.problem:  # where others may write, we have to be the one who makes it
        sound(job["path"], 0o755)


def token(job: Dict[str, Any]) -> None:
    inside = walk(job["folder"], 0o777)
    if inside.look(job["name"]) is not None:
        raise Unsafe("{}/{} exists already and is not of this run".format(job["folder"], job["name"]))
    fd = inside.open(job["name"], os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    with os.fdopen(fd, "w") as handle:
        handle.write(job["content"] + "\n")


def see(job: Dict[str, Any]) -> None:
    """Wait for a mark: a network file system may take some time to show a new file."""
    deadline = time.monotonic() + job["patience_s"]
    while True:
        with suppress(FileNotFoundError), os.fdopen(walk(job["folder"]).open(job["name"], os.O_RDONLY), "rb") as handle:
            if handle.read(TOKEN).decode("utf-8", "replace").strip() == job["content"]:
                return
        if time.monotonic() > deadline:
            raise FileNotFoundError(2, "not visible after {:g} s".format(job["patience_s"]), job["name"])
        time.sleep(0.5)


def untoken(job: Dict[str, Any]) -> None:
    with suppress(FileNotFoundError):
        walk(job["folder"]).remove(job["name"])


def files_of(job: Dict[str, Any]) -> List[Tuple[str, bytes]]:
    """Return the program's files; refuse files that do not have the digest."""
    data = zlib.decompress(base64.b64decode(job["archive"]))
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        opened = [(member.name, archive.extractfile(member)) for member in archive.getmembers()]
        files = sorted((name, file.read()) for name, file in opened if file)
    lines = "".join("{}  {}\n".format(hashlib.sha256(data).hexdigest(), name) for name, data in files)
    if hashlib.sha256(lines.encode()).hexdigest() != job["digest"]:
        raise Unsafe("the program arrived with another digest")
    return files


def python() -> str:
    """Return a new enough interpreter that only root can exchange. A link to the running one may be another user's."""
    for path in (*PYTHONS, *MORE, os.path.realpath(sys.executable or "/")):
        with suppress(OSError):
            if not subprocess.call([own_file(path), "-I", "-S", "-c", NEW_ENOUGH]):
                return path
    raise Unsafe("no python3 of version 3.8 or newer that root alone can change")


def unpack(job: Dict[str, Any], interpreter: str) -> None:
    """Put the program into a folder named by its digest, with the byte code of its modules."""
    home = sound(job["home"], 0o755)
    if home.look(job["digest"]) is not None:
        home.remove_tree(job["digest"])
    beside = ".new-{}".format(os.urandom(8).hex())
    os.mkdir(beside, 0o755, dir_fd=home.fd)
    try:
        path = os.path.join(home.path, beside)
        for name, data in files_of(job):
            file = os.path.abspath(os.path.join(path, name))
            if not file.startswith(path + os.sep):
                raise Unsafe("{!r} is not a path in the program".format(name))
            os.makedirs(os.path.dirname(file), exist_ok=True)
            with open(file, "xb") as handle:
                handle.write(data)
        # By the very Python that will read it.
        words = [interpreter, "-I", "-S", "-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash", "."]
        subprocess.run(words, cwd=path, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        run = "#!{} -IS\n{}".format(interpreter, job["run"])
        home.down(beside).write("run", run.encode(), 0o755)
        os.rename(beside, job["digest"], src_dir_fd=home.fd, dst_dir_fd=home.fd)
    except BaseException:
        home.remove_tree(beside)
        raise
    for name in home.names():
        if name != job["digest"] and re.match(r"[0-9a-f]{64}$|\.new-[0-9a-f]{16}$", name):
            home.remove_tree(name)


def install(job: Dict[str, Any]) -> None:
    unpack(job, python())
    for path, (text, mode) in job["files"].items():
        folder, _, name = path.rpartition("/")
        sound(folder, 0o755).write(name, text.encode(), int(mode, 8))


ACTS: Dict[str, Callable[[Dict[str, Any]], None]] = {
    act.__name__: act for act in (write, keep, restore, remove, install, forget, folder, token, see, untoken)
}
UNLOCKED = ("folder", "token", "see", "untoken")


def main() -> int:
    job = json.load(sys.stdin)
    os.umask(0o022)
    what = job.get("path") or job.get("folder") or job.get("home") or ", ".join(job.get("paths", []))
    try:
        if job.get("root") and os.geteuid() != 0:
            raise Unsafe(job["root"])
        held = -1 if job["do"] in UNLOCKED else locks().lock("files.lock", PATIENCE_S)
        ACTS[job["do"]](job)
        if held >= 0:
            os.close(held)
        return 0
    except (Unsafe, Busy) as error:
        words = str(error)
    except subprocess.CalledProcessError as error:
        words = "the program cannot be compiled: {} ended with {}".format(error.cmd[0], error.returncode)
    except OSError as error:
        words = "{}{}".format(error.strerror, ": " + str(error.filename) if error.filename else "")
    sys.stderr.write("{}: not done ({}): {}\n".format(clean(what), job["do"], clean(words)))
    return 1


if __name__ == "__main__":
    sys.exit(main())
