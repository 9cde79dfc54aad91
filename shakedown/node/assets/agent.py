"""Runs on a node (python3 >= 3.8, standard library only): puts the agent there, or takes it away.

Reads one JSON object from standard input: `do`, and what that needs:

    install    home, digest, archive (base64 of a zlib'd tar), run (the text of the file that starts the program),
               files: path -> [text, mode]
    remove     home, paths: files of ours, folders: those that go if nothing else is in them

A failure is one line on standard error, exit code 1. Everything is root's, below folders that no other user may write,
and is in its place whole or not at all.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import re
import subprocess
import sys
import tarfile
import zlib
from typing import Any, Dict, List, Tuple

from shakedown.node.assets.words import clean
from shakedown.node.owners import closed
from shakedown.node.safe_files import Busy, Folder, Unsafe, locks, sound

PATIENCE_S = 60.0
# The distribution's own, which a user's or a module's is not: what root runs by a timer must not be theirs.
PYTHONS = ("/usr/bin/python3", "/usr/libexec/platform-python")
MORE = tuple("/usr/bin/python3.{}".format(minor) for minor in range(14, 7, -1))
NEW_ENOUGH = "import sys; sys.exit(sys.version_info < (3, 8))"


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
    """Return an interpreter of the distribution that is new enough, and that only root can exchange. The running
    interpreter goes by its real path: a link to it may be another user's."""
    for path in (*PYTHONS, *MORE, os.path.realpath(sys.executable or "/")):
        if not os.path.isfile(path):
            continue
        real = os.path.realpath(path)
        try:
            sound(os.path.dirname(real))
            if closed(os.stat(real)) and not subprocess.call([path, "-I", "-S", "-c", NEW_ENOUGH]):
                return path
        except (Unsafe, OSError):
            continue
    raise Unsafe("no python3 of version 3.8 or newer that root alone can change")


def unpack(job: Dict[str, Any], interpreter: str) -> None:
    """Put the program into a folder named by its digest, with the byte code of its modules."""
    home = sound(job["home"], 0o755)
    if home.look(job["digest"]) is not None:
        home.remove_tree(job["digest"])
    beside = ".new-{}".format(os.urandom(8).hex())
    os.mkdir(beside, 0o755, dir_fd=home.fd)
    try:
        for name, data in files_of(job):
            put(home.down(beside), name, data)
        path = os.path.join(home.path, beside)
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


def put(folder: Folder, name: str, data: bytes) -> None:
    *above, last = name.split("/")
    for part in above:
        if part in ("", ".", ".."):
            raise Unsafe("{!r} is not a path in the program".format(name))
        if folder.look(part) is None:
            os.mkdir(part, 0o755, dir_fd=folder.fd)
        folder = folder.down(part)
    fd = folder.open(last, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    with os.fdopen(fd, "wb") as handle:
        handle.write(data)


def install(job: Dict[str, Any]) -> None:
    unpack(job, python())
    for path, (text, mode) in job["files"].items():
        folder, _, name = path.rpartition("/")
        sound(folder, 0o755).write(name, text.encode(), int(mode, 8))


def remove(job: Dict[str, Any]) -> None:
    for path in job["paths"]:
        folder, _, name = path.rpartition("/")
        try:
            sound(folder).remove(name)
        except FileNotFoundError:
            continue
    for path in [job["home"], *job["folders"]]:
        above, _, name = path.rpartition("/")
        try:
            parent = sound(above)
            if path == job["home"]:
                parent.remove_tree(name)
            elif not sound(path).names():
                os.rmdir(name, dir_fd=parent.fd)
        except FileNotFoundError:
            continue


def main() -> int:
    job = json.load(sys.stdin)
    os.umask(0o022)
    try:
        if os.geteuid() != 0:
            raise Unsafe("the agent is root's: use _sudo=True")
        held = locks().lock("files.lock", PATIENCE_S)
        {"install": install, "remove": remove}[job["do"]](job)
        os.close(held)
        return 0
    except (Unsafe, Busy) as error:
        words = str(error)
    except subprocess.CalledProcessError as error:
        words = "the program cannot be compiled: {} ended with {}".format(error.cmd[0], error.returncode)
    except OSError as error:
        words = "{}{}".format(error.strerror, ": " + str(error.filename) if error.filename else "")
    sys.stderr.write("the agent: not done ({}): {}\n".format(job["do"], clean(words)))
    return 1


if __name__ == "__main__":
    sys.exit(main())
