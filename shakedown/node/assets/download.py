"""Runs on a node (python3 >= 3.8, standard library only): download files, whole and proved, or not at all.

Reads one JSON object from standard input: folder, files (url, name, and optionally sha256 and size), tries, stall_s,
timeout_s (for all of it), room_bytes (to be left free). Progress goes to standard output. It fails as `run_script`
does. A file grows beside its place (part.py); what was checked is recorded away from
the folder (shakedown/node/data.py).
"""

from __future__ import annotations

import json
import os
import time
import urllib.error
import urllib.request
from functools import partial
from http.client import HTTPException
from typing import Any, Dict, Optional

from shakedown.node.assets.lease import leftovers, sole
from shakedown.node.assets.part import BLOCK, Wanted
from shakedown.node.assets.web import Redirects, public
from shakedown.node.assets.words import Failure, persist, run_script, say
from shakedown.node.data import key_of, records
from shakedown.node.safe_files import Folder, Unsafe, walk

EVERY_S = 10.0
WAIT_S = 0.5  # before another try
LOCK = ".shakedown.lock"


def broken(file: Wanted, words: object) -> Failure:
    """Return the failure of a connection; another try may get further."""
    return Failure("transport", "{}: {}".format(file.name, words))


def in_time(file: Wanted, deadline: float) -> None:
    if time.monotonic() > deadline:
        raise Failure("time", "{}: the download did not end in time".format(file.name))


def ask(file: Wanted, begin: int, validator: Optional[str], stall_s: float) -> Any:
    """Return the server's answer from that byte on. Failure, of the kind "transport" for what may pass."""
    request = urllib.request.Request(file.url, headers={"Accept-Encoding": "identity"})
    if begin:
        request.add_header("Range", "bytes={}-".format(begin))
        if validator:
            request.add_header("If-Range", validator)
    try:
        return urllib.request.build_opener(Redirects()).open(request, timeout=stall_s)
    except urllib.error.HTTPError as error:
        if error.code in (408, 416, 425, 429) or error.code >= 500:
            if error.code == 416:  # the part is not of this file
                file.discard()
            raise broken(file, "the server answers {} {}".format(error.code, error.reason)) from None
        raise Failure("refused", "{}: {} {}".format(public(file.url), error.code, error.reason)) from None
    except (OSError, HTTPException) as error:
        raise broken(file, getattr(error, "reason", error) or type(error).__name__) from None


def total_of(answer: Any) -> Optional[int]:
    """Return the length of the whole file, if the server reports it."""
    span = answer.headers.get("Content-Range")
    length = span.rpartition("/")[2] if span else answer.headers.get("Content-Length")
    return int(length) if length and length.isascii() and length.isdigit() and len(length) < 19 else None


def begins_at(file: Wanted, answer: Any, begin: int) -> int:
    """Return where the answer goes on: another version, or a server that cannot resume, begins again."""
    if answer.status != 206:
        return 0
    span = str(answer.headers.get("Content-Range", "")).split()[-1:]
    if span and span[0].partition("-")[0] == str(begin):
        return begin
    raise broken(file, "the server answers with another part of the file than requested")


def origin_name(file: Wanted) -> str:
    return "part-" + key_of(file.folder, file.part)


def resumable(file: Wanted, fd: int) -> Optional[str]:
    """Return what names the part's version to the server; "" where only the checksum can tell; None: begin again."""
    try:
        origin = json.loads((records(make=True).read_own(origin_name(file)) or b"{}").decode())
        if origin.get("url") != file.url or origin.get("inode") != os.fstat(fd).st_ino:
            return None
    except (OSError, ValueError, AttributeError, Unsafe):
        return None
    validator = str(origin.get("validator") or "")
    return validator if validator or file.sha256 else None


def fetch(file: Wanted, stall_s: float, deadline: float, room: int) -> None:
    """Try once, from where the last try broke. Failure when the file is not complete at the end."""
    in_time(file, deadline)
    fd = file.open_part()
    with os.fdopen(fd, "r+b") as handle:
        validator = resumable(file, fd)
        begin = os.fstat(fd).st_size if validator is not None else 0
        if begin and begin == file.size:
            return
        with ask(file, begin, validator, stall_s) as answer:
            whole = total_of(answer)
            begin = begins_at(file, answer, begin) if begin else 0
            expect(file, whole)
            etag = answer.headers.get("ETag")
            strong = etag if etag and not etag.startswith("W/") else answer.headers.get("Last-Modified")
            origin = {"url": file.url, "validator": strong, "inode": os.fstat(fd).st_ino}
            records(make=True).write(origin_name(file), json.dumps(origin).encode(), 0o600)
            wanted = file.size if file.size is not None else whole
            handle.seek(begin)
            handle.truncate()
            receive(file, answer, handle, deadline, wanted, room)
            handle.flush()
            os.fsync(fd)
        have = os.fstat(fd).st_size
    if wanted is not None and have < wanted:
        raise broken(file, "the connection ended after {} of {} bytes".format(have, wanted))


def receive(file: Wanted, answer: Any, handle: Any, deadline: float, wanted: Optional[int], room: int) -> None:
    """Write what comes: no more than was said, and never the room that is to be left."""
    shown = time.monotonic()
    while True:
        in_time(file, deadline)
        try:
            block = answer.read1(BLOCK)
        except (OSError, HTTPException) as error:
            handle.write(getattr(error, "partial", b""))
            raise broken(file, str(error) or type(error).__name__) from None
        if not block:
            return
        handle.write(block)
        if wanted is not None and handle.tell() > wanted:
            raise Failure("other", "{}: more than {} bytes came".format(file.name, wanted))
        if wanted is None and free(file.folder) < room:
            raise Failure("space", "{}: its length is unknown and the disk is full".format(file.name))
        if time.monotonic() - shown > EVERY_S:
            shown = time.monotonic()
            say("{}: {} of {} bytes".format(file.name, handle.tell(), wanted or "?"))


def expect(file: Wanted, whole: Optional[int]) -> None:
    """Compare the server's length with the expected one. Without lengths and checksum nothing could be proved."""
    if whole is None and file.size is None and file.sha256 is None:
        raise Failure("other", "{}: the server gives no length: give size or sha256".format(public(file.url)))
    if None not in (whole, file.size) and whole != file.size:
        raise Failure("other", "{}: the server has {} bytes, not {}".format(public(file.url), whole, file.size))


def missing_bytes(file: Wanted, stall_s: float, deadline: float) -> int:
    """Return how many bytes are still to come, as the server reports."""
    in_time(file, deadline)
    with ask(file, 0, None, stall_s) as answer:
        whole = total_of(answer)
        expect(file, whole)
        return max(0, (whole or file.size or 0) - file.have())


def free(folder: Folder) -> int:
    """Return the bytes that this user may still write on the folder's own file system."""
    disk = os.statvfs("/proc/self/fd/{}".format(folder.fd))
    return disk.f_bavail * disk.f_frsize


def work(job: Dict[str, Any], folder: Folder, deadline: float) -> None:
    files = [Wanted(folder, file) for file in job["files"]]
    missing = [file for file in files if not file.recorded() and not file.looked_at()]
    stall_s, tries, spare = job["stall_s"], job["tries"], job["room_bytes"]
    room = sum(persist(partial(missing_bytes, file, stall_s, deadline), tries, WAIT_S, file.have) for file in missing)
    if missing and room + spare > free(folder):
        words = "{} bytes are needed and {} to be left, {} are free in {}"
        raise Failure("space", words.format(room, spare, free(folder), folder.path))
    for file in missing:
        left = [name for name in leftovers(folder, file.parts) if name != file.part]
        if left:
            words = "{}: runs on other nodes have left {}, removed when the file is whole"
            say(words.format(file.name, ", ".join(left)))
        persist(partial(fetch, file, stall_s, deadline, spare), tries, WAIT_S, file.have)
        file.finish()
        for name in left:
            folder.remove_tree(name)


def main(job: Dict[str, Any]) -> None:
    deadline = time.monotonic() + job["timeout_s"]
    folder = walk(job["folder"], 0o777)
    with sole(folder, LOCK, "download-" + key_of(folder, ""), job["timeout_s"], folder.path):
        work(job, folder, deadline)


if __name__ == "__main__":
    run_script(main)
