"""Runs on a node (python3 >= 3.8, standard library only): download files, whole and proved, or not at all.

Reads one JSON object from standard input: folder, files (url, name, and optionally sha256 and size), tries, stall_s,
room_bytes (to be left free). Progress goes to standard output as plain lines. A failure is one line `kind: words` on
standard error, exit code 1.

A file grows as `.NAME.part` and gets its name when it has been checked; `.NAME.shakedown` beside it then says what was
checked. Nodes that share the folder wait for the one that is at work there.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import sys
import time
import urllib.error
import urllib.request
from functools import partial
from http.client import HTTPException
from typing import Any, Callable, Dict, Optional

BLOCK = 1 << 20
EVERY_S = 10.0


class DownloadError(Exception):
    """`kind` is one of: space, other (not the file that was asked for), refused, transport, busy."""

    def __init__(self, kind: str, words: str) -> None:
        super().__init__(words)
        self.kind = kind


class Broken(Exception):
    """The connection broke; another try may get further."""


class Wanted:
    """One file, and what is there of it."""

    def __init__(self, folder: str, file: Dict[str, Any]) -> None:
        self.url: str = file["url"]
        self.name: str = file["name"]
        self.sha256: Optional[str] = file.get("sha256")
        self.size: Optional[int] = file.get("size")
        self.path = os.path.join(folder, self.name)
        self.part = os.path.join(folder, ".{}.part".format(self.name))
        self.origin = self.part + ".json"  # which version of the file the part is of
        self.record = os.path.join(folder, ".{}.shakedown".format(self.name))

    def have(self) -> int:
        return os.path.getsize(self.part) if os.path.exists(self.part) else 0

    def recorded(self) -> bool:
        """Checked before, and not touched since."""
        try:
            with open(self.record) as handle:
                record = json.load(handle)
            found = os.stat(self.path)
        except (OSError, ValueError):
            return False
        same = record["size"] == found.st_size and record["mtime"] == int(found.st_mtime)
        return same and self.sha256 in (None, record["sha256"]) and self.size in (None, record["size"])

    def check(self, path: str) -> str:
        """The SHA-256 of a whole file. DownloadError where it is not the one that was asked for."""
        size = os.path.getsize(path)
        if self.size is not None and size != self.size:
            raise DownloadError("other", "{} has {} bytes, not {}".format(self.name, size, self.size))
        digest = hashlib.sha256()
        with open(path, "rb") as handle:
            for block in iter(lambda: handle.read(BLOCK), b""):
                digest.update(block)
        found = digest.hexdigest()
        if self.sha256 not in (None, found):
            raise DownloadError("other", "{} has sha256 {}, not {}".format(self.name, found, self.sha256))
        return found

    def keep(self, digest: str) -> None:
        found = os.stat(self.path)
        record = {"url": self.url, "size": found.st_size, "mtime": int(found.st_mtime), "sha256": digest}
        with open(self.record + ".new", "w") as handle:
            json.dump(record, handle)
        os.replace(self.record + ".new", self.record)
        known = "as wanted" if self.sha256 else "nothing to compare it with: give it to the desired state"
        say("{}: {} bytes, sha256 {} ({})".format(self.name, found.st_size, digest, known))


def say(words: str) -> None:
    print(words, flush=True)


def ask(file: Wanted, begin: int, validator: Optional[str], stall_s: float) -> Any:
    """The server's answer from that byte on. Broken for what may pass, DownloadError for what will not."""
    request = urllib.request.Request(file.url, headers={"Accept-Encoding": "identity"})
    if begin:
        request.add_header("Range", "bytes={}-".format(begin))
        if validator:
            request.add_header("If-Range", validator)
    try:
        return urllib.request.urlopen(request, timeout=stall_s)
    except urllib.error.HTTPError as error:
        if error.code in (408, 416, 425, 429) or error.code >= 500:
            if error.code == 416:  # the part is not of this file
                discard(file)
            raise Broken("the server says {} {}".format(error.code, error.reason)) from None
        raise DownloadError("refused", "{}: {} {}".format(file.url, error.code, error.reason)) from None
    except (OSError, HTTPException) as error:
        raise Broken(str(getattr(error, "reason", error)) or type(error).__name__) from None


def total_of(answer: Any) -> Optional[int]:
    """The length of the whole file, if the server says it."""
    span = answer.headers.get("Content-Range")
    if span:
        length = span.rpartition("/")[2]
        return int(length) if length.isdigit() else None
    length = answer.headers.get("Content-Length")
    return int(length) if length else None


def discard(file: Wanted) -> None:
    for path in (file.part, file.origin):
        if os.path.exists(path):
            os.unlink(path)


def resumable(file: Wanted) -> Optional[str]:
    """What tells the server which version the part is of; "" where only our checksum can tell. None: begin again."""
    try:
        with open(file.origin) as handle:
            origin = json.load(handle)
    except (OSError, ValueError):
        return None
    if origin.get("url") != file.url:
        return None
    validator = str(origin.get("validator") or "")
    return validator if validator or file.sha256 else None


def fetch(file: Wanted, stall_s: float) -> None:
    """One try: go on where the last one broke. Broken when it is not all there at its end."""
    validator = resumable(file)
    if validator is None:
        discard(file)
    begin = file.have()
    if begin and begin == file.size:
        return
    with ask(file, begin, validator, stall_s) as answer:
        whole = total_of(answer)
        if answer.status != 206 and begin:
            begin = 0  # another version, or a server that cannot resume
        expect(file, whole)
        etag = answer.headers.get("ETag")
        strong = etag if etag and not etag.startswith("W/") else answer.headers.get("Last-Modified")
        with open(file.origin, "w") as handle:
            json.dump({"url": file.url, "validator": strong}, handle)
        with open(file.part, "r+b" if begin else "wb") as handle:
            handle.seek(begin)
            handle.truncate()
            shown = time.monotonic()
            while True:
                try:
                    block = answer.read(BLOCK)
                except (OSError, HTTPException) as error:
                    handle.write(getattr(error, "partial", b""))
                    raise Broken(str(error) or type(error).__name__) from None
                if not block:
                    break
                handle.write(block)
                if time.monotonic() - shown > EVERY_S:
                    shown = time.monotonic()
                    say("{}: {} of {} bytes".format(file.name, handle.tell(), whole or "?"))
            handle.flush()
            os.fsync(handle.fileno())
    wanted = file.size if file.size is not None else whole
    if wanted is not None and file.have() < wanted:
        raise Broken("it ended after {} of {} bytes".format(file.have(), wanted))


def expect(file: Wanted, whole: Optional[int]) -> None:
    """The server's length against ours; without either and without a checksum nothing could be proved."""
    if whole is None and file.size is None and file.sha256 is None:
        raise DownloadError("other", "{}: the server gives no length: give size or sha256".format(file.url))
    if None not in (whole, file.size) and whole != file.size:
        raise DownloadError("other", "{}: the server has {} bytes, not {}".format(file.url, whole, file.size))


def persist(file: Wanted, action: Callable[[], Any], tries: int) -> Any:
    """Try again while something is gained; `tries` times in a row without."""
    left, gained = tries, -1
    while True:
        try:
            return action()
        except Broken as error:
            now = file.have()
            left = tries - 1 if now > gained else left - 1
            gained = max(gained, now)
            if left <= 0:
                raise DownloadError("transport", "{}: {}".format(file.name, error)) from None
            say("{}: {}: trying again after {} bytes".format(file.name, error, now))
            time.sleep(min(0.5 * 2.0 ** (tries - left - 1), 15.0))


def missing_bytes(file: Wanted, stall_s: float) -> int:
    """What is still to come, as the server says."""
    with ask(file, 0, None, stall_s) as answer:
        whole = total_of(answer)
        expect(file, whole)
        return max(0, (whole or file.size or 0) - file.have())


def lock(folder: str, patience_s: float) -> int:
    """Keep others out of the folder, on this node and on those that share it."""
    handle = os.open(os.path.join(folder, ".shakedown.lock"), os.O_RDWR | os.O_CREAT, 0o666)
    deadline, told = time.monotonic() + patience_s, False
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return handle
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise DownloadError("busy", "another run is still at work in {}".format(folder)) from None
            if not told:
                told = True
                say("{}: waiting for another download there".format(folder))
            time.sleep(0.5)


def main() -> int:
    job = json.load(sys.stdin)
    folder = job["folder"]
    os.makedirs(folder, exist_ok=True)
    held = lock(folder, job["timeout_s"])
    files = [Wanted(folder, file) for file in job["files"]]
    missing = []
    for file in files:
        if file.recorded():
            continue
        if os.path.exists(file.path):  # somebody else's: looked at, never overwritten
            file.keep(file.check(file.path))
            continue
        missing.append(file)
    stall_s, tries = job["stall_s"], job["tries"]
    room = sum(persist(file, partial(missing_bytes, file, stall_s), tries) for file in missing)
    free = shutil.disk_usage(folder).free
    if missing and room + job["room_bytes"] > free:
        words = "{} bytes are needed and {} to be left, {} are free in {}"
        raise DownloadError("space", words.format(room, job["room_bytes"], free, folder))
    for file in missing:
        persist(file, partial(fetch, file, stall_s), tries)
        try:
            digest = file.check(file.part)
        except DownloadError:
            discard(file)
            raise
        os.replace(file.part, file.path)
        file.keep(digest)
        discard(file)
    os.close(held)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except DownloadError as error:
        sys.stderr.write("{}: {}\n".format(error.kind, error))
        sys.exit(1)
    except OSError as error:
        full = error.errno in (28, 122)  # no space left, quota exceeded
        sys.stderr.write("{}: {}\n".format("space" if full else "folder", error))
        sys.exit(1)
