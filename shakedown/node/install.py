"""Sent to the node as text, after launch.py: take the bundle from standard input, cache it, run the probe. Where the
cache cannot be written (no home, read-only, full, open to others) the bundle lives in a temporary folder."""

import base64
import compileall
import io
import os
import pathlib
import py_compile
import re
import shutil
import sys
import tarfile
import tempfile
import time
import zlib
from typing import List, Optional, Tuple

from .launch import DIGEST, answer, cache_folder, contents, files_digest, home, is_whole, run, sha256
from .owners import place

FORGOTTEN_AFTER_S = 24 * 3600


def receive() -> List[Tuple[str, bytes]]:
    """Return the files of the bundle; refuse a bundle that does not have DIGEST."""
    try:
        data = zlib.decompress(base64.b64decode(sys.stdin.read()))
        with tarfile.open(fileobj=io.BytesIO(data)) as archive:
            opened = [(member.name, archive.extractfile(member)) for member in archive.getmembers()]
            files = sorted((name, file.read()) for name, file in opened if file)
    except Exception as error:
        answer("arrived damaged: {}".format(error))
    if files_digest([(name, sha256(data)) for name, data in files]) != DIGEST:
        answer("arrived with another digest")
    return files


def unpack(files: List[Tuple[str, bytes]], parent: Optional[str]) -> str:
    """Make a folder below `parent` with the files, their byte code, and the seal over both."""
    folder = tempfile.mkdtemp(prefix=".new-", dir=parent)
    try:
        for name, data in files:
            path = pathlib.Path(folder, name)
            os.makedirs(path.parent, mode=0o700, exist_ok=True)
            path.write_bytes(data)
        # Byte code that is never compared with its source: the seal says that neither was changed.
        unchecked = py_compile.PycInvalidationMode.UNCHECKED_HASH
        compileall.compile_dir(folder, quiet=2, ddir="", invalidation_mode=unchecked)
        seal = files_digest(contents(folder))
        pathlib.Path(folder, "SEAL").write_text(seal)
        return folder
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def forget_old(parent: str, current: str) -> None:
    """Remove our other versions, unless they were installed within a day: two controllers may share a node."""
    for name in os.listdir(parent):
        path = os.path.join(parent, name)
        temporary = re.match(r"[0-9a-f]{64}-\w+-\d+$|\.new-\w+$", name)
        if temporary and path != current and time.time() - os.lstat(path).st_mtime > FORGOTTEN_AFTER_S:
            shutil.rmtree(path, ignore_errors=True)


def cache(files: List[Tuple[str, bytes]]) -> str:
    """Put the bundle into the cache. A folder that is there already is replaced unless it is whole: then another
    controller has just installed it, and its probe may be running from it."""
    place(home())
    os.makedirs(cache_folder(), mode=0o700, exist_ok=True)
    parent = place(cache_folder())
    folder = os.path.join(parent, DIGEST + "-" + sys.implementation.cache_tag)
    fresh = unpack(files, parent)
    try:
        if os.path.lexists(folder) and not is_whole(folder):
            aside = tempfile.mkdtemp(prefix=".new-", dir=parent)
            os.rename(folder, os.path.join(aside, "broken"))
            shutil.rmtree(aside, ignore_errors=True)
        os.rename(fresh, folder)  # fails where a folder with files is there
    except OSError:
        shutil.rmtree(fresh, ignore_errors=True)
        if not is_whole(folder):
            raise
    forget_old(parent, folder)
    return folder


def install() -> None:
    os.umask(0o077)
    files = receive()
    temporary = None
    try:
        folder = cache(files)
    except OSError:
        try:
            folder = temporary = unpack(files, None)
            place(folder)
        except OSError as error:
            if temporary:
                shutil.rmtree(temporary, ignore_errors=True)
            answer("found no folder to run in: {}".format(error))
    try:
        run(folder)
    finally:
        if temporary:
            shutil.rmtree(temporary, ignore_errors=True)
