"""Sent to the node as `python3 -c`: run the probe from the bundle that is cached there, if it is whole.

Prints the node state, or one line of JSON with the key `shakedown_bundle` that says why it did not run. The node
never imports this file: `shakedown/transport/bundle.py` sends its text, without docstrings, comments and annotations,
and with DIGEST filled in. It has to run under Python 3.6, which is too old for the probe and still has to say so.
"""

import marshal
import os
import pwd
import sys
from _frozen_importlib_external import MAGIC_NUMBER
from typing import Any, Dict, List, Tuple

from .owners import place

DIGEST = "DIGEST"


def answer(word: str) -> Any:
    import json

    print(json.dumps({"shakedown_bundle": word}))
    sys.exit(0)


def sha256(data: bytes) -> str:
    import hashlib  # loads OpenSSL: 4 ms of CPU, which the steady state does without

    return hashlib.sha256(data).hexdigest()


def contents(folder: str) -> List[Tuple[str, str]]:
    """(relative path, sha256) of every file below a folder but the seal."""
    paths: List[str] = []
    for base, _, names in os.walk(folder):
        paths.extend(os.path.join(base, name)[len(folder) + 1 :] for name in names)
    return [(path, sha256(read(folder, path))) for path in paths if path != "SEAL"]


def read(folder: str, path: str) -> bytes:
    with open(os.path.join(folder, path), "rb", buffering=0) as file:
        return file.read()


def files_digest(files: List[Tuple[str, str]]) -> str:
    """The digest of a set of files: sha256 over a line for each, as sha256sum(1) prints them, in the paths' order."""
    return sha256("".join("{}  {}\n".format(digest, path) for path, digest in sorted(files)).encode())


def home() -> str:
    """Of whom the password database says we are: under sudo, HOME may be another's."""
    return pwd.getpwuid(os.geteuid()).pw_dir


def cache_folder() -> str:
    return os.path.join(home(), ".cache", "shakedown")


def listing(folder: str) -> str:
    """Every file and folder below a folder, with all by which a change of one shows: type and mode, size, times of the
    last write and the last change, number. Nobody can set the time of the last change but by setting the clock."""
    found = [("", os.lstat(folder))]
    folders = [folder]
    while folders:
        for entry in os.scandir(folders.pop()):
            found.append((entry.path[len(folder) :], entry.stat(follow_symlinks=False)))
            if entry.is_dir(follow_symlinks=False):
                folders.append(entry.path)
    return "\n".join(
        "{} {:o} {} {} {} {}".format(path, info.st_mode, info.st_size, info.st_mtime_ns, info.st_ctime_ns, info.st_ino)
        for path, info in sorted(found)
    )


def stamp_of(folder: str) -> str:
    """The file with the listing of a folder that was whole, since this boot: after a crash, files may be cut short
    that looked whole before. Where several nodes share a home, each has its own."""
    with open("/proc/sys/kernel/random/boot_id") as file:
        return folder + "." + file.read().strip().replace("/", "")


def is_stamped(folder: str, listed: str) -> bool:
    """Whether nothing was changed since the folder was whole. The stamp lies where nobody else can write."""
    try:
        handle = os.open(stamp_of(folder), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        with open(handle, "rb") as file:
            info = os.fstat(handle)
            own = info.st_uid == os.geteuid() and info.st_mode & 0o170077 == 0o100000
            return own and file.read(len(listed) + 1) == os.fsencode(listed)
    except OSError:
        return False


def put_stamp(folder: str, listed: str) -> None:
    """Have the next launch find the folder whole without reading it. Where that cannot be written, each reads it."""
    try:
        path = stamp_of(folder)
        handle = os.open(path + ".new", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with open(handle, "wb") as file:
            file.write(os.fsencode(listed))
        os.rename(path + ".new", path)
    except OSError:
        pass


def is_whole(folder: str) -> bool:
    """Writable by this user alone, so that nobody else can put another there, with the very sources of DIGEST, and
    with the byte code that was compiled from them here."""
    try:
        info = os.lstat(place(folder))
        if info.st_uid != os.geteuid() or info.st_mode & 0o170077 != 0o040000:
            return False
        listed = listing(folder)  # before they are read: what is changed meanwhile differs from it
        if is_stamped(folder, listed):
            return True
        files = contents(folder)
        sealed = read(folder, "SEAL").decode("ascii", "replace")
    except OSError:
        return False
    source = [file for file in files if "__pycache__" not in file[0] and file[0] != "modules"]
    whole = files_digest(source) == DIGEST and files_digest(files) == sealed
    if whole:
        put_stamp(folder, listed)
    return whole


def run(folder: str) -> None:
    """The probe. Its modules come out of one file where that was made by this very Python, else from their sources."""
    sys.dont_write_bytecode = True
    here = place(folder)
    sys.path.insert(0, here)
    data = read(here, "modules")
    if data.startswith(MAGIC_NUMBER):
        reader, found = marshal.loads(memoryview(data)[len(MAGIC_NUMBER) :])
        names: Dict[str, Any] = {}
        exec(reader, names)
        names["use"](here, found)
    from shakedown.node.__main__ import main

    main(["--digest", DIGEST, "--ask", " ".join(sys.argv[1:])])


def launch() -> None:
    folder = os.path.join(cache_folder(), DIGEST + "-" + sys.implementation.cache_tag)
    if is_whole(folder):
        run(folder)
        sys.stdout.flush()
        os._exit(0)  # nothing is left to be tidied up
    else:
        answer("missing")


if sys.version_info < (3, 8):
    sys.exit(97)
