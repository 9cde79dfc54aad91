"""Travels with scripts that work in a folder which several nodes may share: one of them at a time.

flock does not reach across nodes on every network file system, the creation of a file that must not exist does (NFS
since version 3, RFC 1813, CREATE with EXCLUSIVE). In that file its holder counts on; one that has stood still for
LEASE_S, by the clock of who waits, is of a dead holder. The work goes into a part of its own, so a holder that was only
asleep can spoil nothing.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from contextlib import contextmanager, suppress
from typing import Any, Dict, Iterator, List, Optional

from shakedown.node.assets.words import say
from shakedown.node.owners import trusted
from shakedown.node.safe_files import Busy, Folder, Unsafe, locks, who

LEASE_S = 90.0  # nine beats; a network file system may stall for a minute and go on
BEAT_S = 10.0
WIDTH = 400


class Lease:
    """A held lock. `lost` becomes true where another process has taken it over."""

    def __init__(self, folder: Folder, name: str, token: str, fd: int) -> None:
        self.folder, self.name, self.token, self.fd = folder, name, token, fd
        self.beats, self.lost = 0, False
        self.ended = threading.Event()
        self.beat()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def beat(self) -> None:
        """Write a beat into the open file, never into the lock of another holder."""
        self.beats += 1
        words = {"token": self.token, "node": socket.gethostname(), "place": whereabouts(), "beats": self.beats}
        os.pwrite(self.fd, json.dumps(words).ljust(WIDTH).encode(), 0)
        os.fsync(self.fd)

    def run(self) -> None:
        while not self.ended.wait(BEAT_S):
            try:
                self.beat()
                self.lost = self.lost or not self.is_held()
            except (OSError, Unsafe):  # also where something else stands in its place
                self.lost = True

    def is_held(self) -> bool:
        record = read(self.folder, self.name)
        return record is not None and record.get("token") == self.token

    def release(self) -> None:
        self.ended.set()
        self.thread.join(5)
        if self.is_held():
            self.folder.remove(self.name)
        os.close(self.fd)


def read(folder: Folder, name: str) -> Optional[Dict[str, Any]]:
    try:
        fd = folder.open(name, os.O_RDONLY)
    except FileNotFoundError:
        return None
    with os.fdopen(fd, "rb") as handle:
        owner = os.fstat(fd).st_uid
        try:
            record = json.loads(handle.read(WIDTH).decode())
        except (ValueError, RecursionError):
            record = None
    record = record if isinstance(record, dict) else {}
    return {**{key: record.get(key) for key in ("token", "node", "place", "beats")}, "owner": owner}


def whereabouts() -> str:
    """Return this user, boot, machine and container as one word: the same word holds the same local lock."""
    with open("/proc/sys/kernel/random/boot_id") as handle:
        return "{} {} {}".format(handle.read().strip(), os.readlink("/proc/self/ns/pid"), os.geteuid())


def holder(record: Dict[str, Any]) -> str:
    node = str(record["node"])[:80] if record["node"] else "a node that has not written its name yet"
    return "{} on {}".format(who(record["owner"]), node)


def take(folder: Folder, name: str, patience_s: float) -> Lease:
    """Take the lock as soon as it is free or its holder has not renewed it for a lease. Busy names the holder. To be
    called with the local lock held: a holder who would have to have that too is dead."""
    token = os.urandom(12).hex()
    deadline = time.monotonic() + patience_s
    seen: Any = None
    since, announced = time.monotonic(), False
    while True:
        try:
            return Lease(folder, name, token, folder.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644))
        except FileExistsError:
            record = read(folder, name)
        now = time.monotonic()
        if record is None:
            if now > deadline:
                raise Busy("another process creates and removes {}/{} repeatedly".format(folder.path, name))
            continue
        if record != seen:
            seen, since = record, now
        # Nothing that another user makes there counts for root, who need not wait for it either.
        foreign = os.geteuid() == 0 and not trusted(record["owner"]) and now <= deadline
        own = record["place"] == whereabouts() and record["owner"] == os.geteuid()
        if foreign or own or now - since > LEASE_S:
            words = (
                "{} held it, whom root does not wait for"
                if foreign
                else "{} has not renewed its lock for {:.0f} s: taken over"
            )
            if not own:
                say("{}: {}".format(folder.path, words.format(holder(record), LEASE_S)))
            put_aside(folder, name, record)
            continue
        if now > deadline:
            raise Busy("{}/{} is held by {}".format(folder.path, name, holder(record)))
        if not announced:
            announced = True
            say("{}: waiting for {}, which is at work there".format(folder.path, holder(record)))
        time.sleep(min(1.0, LEASE_S / 10))


@contextmanager
def sole(folder: Folder, name: str, local: str, seconds: float, where: str) -> Iterator[Lease]:
    """Hold this node's lock `local`, and then the folder's. Wait for both at most `seconds`; Busy names the holder."""
    deadline = time.monotonic() + seconds
    held = locks().lock(local, seconds, lambda holder: say("{}: waiting for {}".format(where, holder)))
    lease = take(folder, name, max(deadline - time.monotonic(), 0))
    try:
        yield lease
    finally:
        lease.release()
        os.close(held)


def here() -> str:
    """Return this node's name as a part of a file's name."""
    return "".join(letter if letter.isalnum() or letter in ".-" else "_" for letter in socket.gethostname())[:60]


def leftovers(folder: Folder, beginning: str) -> List[str]:
    """Return what runs of this user or root have left, by name. Another user's could take for ever to remove."""
    found = {name: folder.look(name) for name in folder.names() if name.startswith(beginning)}
    return [name for name, about in found.items() if about is not None and trusted(about.st_uid)]


def put_aside(folder: Folder, name: str, dead: Dict[str, Any]) -> None:
    """Take a dead holder's lock away. Two may try at once, and the second must not take the first one's new lock."""
    aside = "{}.{}".format(name, os.urandom(6).hex())
    try:
        os.rename(name, aside, src_dir_fd=folder.fd, dst_dir_fd=folder.fd)
    except FileNotFoundError:
        return
    record = read(folder, aside)
    if record is not None and record.get("token") != dead.get("token"):
        with suppress(OSError):  # its holder sees that it has lost it, and a third one works by now
            os.link(aside, name, src_dir_fd=folder.fd, dst_dir_fd=folder.fd)
    folder.remove(aside)
