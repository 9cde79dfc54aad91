"""Sent to the node as `python3 -c`: run the probe from the bundle that is cached there, if it is whole.

Prints the node state, or one line of JSON with the key `shakedown_bundle` that says why it did not run. The node
never imports this file: `shakedown/transport/bundle.py` sends its text, without docstrings, comments and annotations,
and with DIGEST filled in. It has to run under Python 3.6, which is too old for the probe and still has to say so.
"""

import gc
import hashlib
import json
import os
import pwd
import sys
from typing import Any, List, Tuple

from .owners import place

DIGEST = "DIGEST"


def answer(word: str) -> Any:
    print(json.dumps({"shakedown_bundle": word}))
    sys.exit(0)


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def contents(folder: str) -> List[Tuple[str, str]]:
    """Return (relative path, sha256) of every file below a folder but the seal."""
    paths = [os.path.join(base, name)[len(folder) + 1 :] for base, _, names in os.walk(folder) for name in names]
    return [(path, sha256(read(folder, path))) for path in paths if path != "SEAL"]


def read(folder: str, path: str) -> bytes:
    with open(os.path.join(folder, path), "rb", buffering=0) as file:
        return file.read()


def files_digest(files: List[Tuple[str, str]]) -> str:
    """Return sha256 over a line for each file, as sha256sum(1) prints them, in the paths' order."""
    return sha256("".join("{}  {}\n".format(digest, path) for path, digest in sorted(files)).encode())


def home() -> str:
    """Return the home by the password database: under sudo, HOME may be another user's."""
    return pwd.getpwuid(os.geteuid()).pw_dir


def cache_folder() -> str:
    return os.path.join(home(), ".cache", "shakedown")


def is_whole(folder: str) -> bool:
    """Return whether a folder has the sources of DIGEST and the byte code that was compiled from them here, and is
    writable by this user alone, so that no other user can exchange it."""
    try:
        info = os.lstat(place(folder))
        if info.st_uid != os.geteuid() or info.st_mode & 0o170077 != 0o040000:
            return False
        files = contents(folder)
        sealed = read(folder, "SEAL").decode("ascii", "replace")
    except OSError:
        return False
    source = [file for file in files if "__pycache__" not in file[0]]
    return files_digest(source) == DIGEST and files_digest(files) == sealed


def run(folder: str) -> None:
    """Run the probe. Collecting garbage does not pay in a process that lives for a moment."""
    gc.disable()
    sys.dont_write_bytecode = True
    sys.path.insert(0, place(folder))
    from shakedown.node.__main__ import main  # not at the top: only now is the bundle on the path

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
