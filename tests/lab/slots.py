"""Numbered places for racks: each has its own bridge, its own addresses and its own folder on a tmpfs.

Several racks can stand at once (two test runs, or a person's rack beside them). A slot belongs to the process that
holds its lock; a slot whose process is gone, and which nobody asked to leave standing, is a wreck and is cleared at the
next start. Everything a slot ever made carries the name `sdlab<number>` or is a process recorded in its `pids` file.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

from tests.lab.machine import LabError, run

PREFIX = "sdlab"
RUN_DIR = Path("/run") / PREFIX
DISK_DIR = Path("/var/lib") / PREFIX
"""What must lie on a real file system: a dockerd's storage cannot be on an overlay."""

ADDRESSES = IPv4Network("198.18.0.0/15")
"""RFC 2544's benchmarking range: no site, no docker and no cloud hands it out."""

SLOTS = list(ADDRESSES.subnets(new_prefix=22))


@dataclass
class Slot:
    """One rack's place. `folder` is a tmpfs; `disk` is on the machine's disk and is made on first use."""

    number: int
    lock_fd: int

    @property
    def bridge(self) -> str:
        return f"{PREFIX}{self.number}"

    @property
    def network(self) -> IPv4Network:
        return SLOTS[self.number]

    @property
    def gateway(self) -> IPv4Address:
        """The machine's own address on the bridge, from which the controller reaches the nodes."""
        return self.network[1]

    @property
    def folder(self) -> Path:
        return RUN_DIR / str(self.number)

    @property
    def disk(self) -> Path:
        path = DISK_DIR / str(self.number)
        path.mkdir(parents=True, exist_ok=True)
        return path

    def storage(self, node: str) -> Path:
        """A new folder for a container engine's images. In memory: an image of 30,000 files takes a disk half a minute
        to delete."""
        path = self.folder / "docker" / node
        path.mkdir(parents=True, exist_ok=True)
        return path

    def link(self, index: int) -> str:
        """The machine's end of node `index`'s cable; at most 15 characters, as the kernel wants."""
        return f"{self.bridge}n{index}"

    def record(self, pid: int) -> None:
        """Note a process that has to end with the slot, so that a later run can end it if this one is killed."""
        with (self.folder / "pids").open("a") as record:
            record.write(f"{pid} {started_at(pid)}\n")

    def leave_standing(self) -> None:
        """Keep the rack when this process ends (`make lab-up`)."""
        (self.folder / "standing").touch()

    def clear(self) -> None:
        """End every recorded process, then take away links, mounts and folders. Safe to repeat."""
        end_recorded(self.folder / "pids")
        for link in _links(self.bridge):
            run(["ip", "link", "delete", link], check=False)
        if os.path.ismount(self.folder):
            run(["umount", "--lazy", str(self.folder)])
        with contextlib.suppress(FileNotFoundError):
            self.folder.rmdir()
        _remove_cgroups(self.bridge)
        shutil.rmtree(DISK_DIR / str(self.number), ignore_errors=True)

    def release(self) -> None:
        os.close(self.lock_fd)


def take() -> Slot:
    """Lock a free slot and give it its tmpfs and its bridge. Wrecks of earlier runs are cleared on the way."""
    RUN_DIR.mkdir(mode=0o755, exist_ok=True)
    clear_wrecks()
    for number in range(len(SLOTS)):
        if (slot := _lock(number)) is None:
            continue
        if (slot.folder / "standing").exists():
            slot.release()
            continue
        slot.folder.mkdir(exist_ok=True)
        run(["mount", "-t", "tmpfs", "-o", "mode=0755,size=60%,nr_inodes=0", PREFIX, str(slot.folder)])
        _raise_bridge(slot)
        return slot
    raise LabError(f"all {len(SLOTS)} slots of the lab are taken")


@contextmanager
def place(beside: Slot | None = None) -> Iterator[Slot]:
    """Where a lab stands: a slot of its own, cleared on the way out unless it was left standing; or the slot of a lab
    that stands already, which clears it. Nodes of one slot reach each other, whatever their kind."""
    if beside is not None:
        yield beside
        return
    slot = take()
    try:
        yield slot
    finally:
        if not (slot.folder / "standing").exists():
            slot.clear()
        slot.release()


def standing() -> Slot | None:
    """The slot that `leave_standing` marked, locked by the caller; None when there is none."""
    for folder in sorted(RUN_DIR.glob("[0-9]*")):
        if (folder / "standing").exists() and (slot := _lock(int(folder.name))) is not None:
            return slot
    return None


def clear_wrecks() -> None:
    """Remove what runs that were killed have left, and only that."""
    for folder in RUN_DIR.glob("[0-9]*"):
        if not folder.is_dir() or (folder / "standing").exists() or (slot := _lock(int(folder.name))) is None:
            continue
        try:
            slot.clear()
        finally:
            slot.release()


def started_at(pid: int) -> str:
    """Start time of a process in clock ticks since boot: with the pid, it names a process for ever."""
    return _stat(pid)[19]


def end_recorded(pids: Path) -> None:
    """SIGKILL to each process of a `pids` file that still is the one recorded, and wait until it is gone."""
    if not pids.exists():
        return
    recorded = pids.read_text()
    deadline = time.monotonic() + 20
    while (alive := still_running(recorded)) and time.monotonic() < deadline:
        for pid in alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        time.sleep(0.01)


def still_running(recorded: str) -> list[int]:
    """The pids of those that the text of a `pids` file names. A zombie has ended: it waits for its parent alone."""
    return [int(pid) for pid, start in (line.split() for line in recorded.splitlines()) if _is(int(pid), start)]


def _is(pid: int, start: str) -> bool:
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return started_at(pid) == start and _stat(pid)[0] != "Z"
    return False


def _stat(pid: int) -> list[str]:
    """Fields of /proc/PID/stat after the name: state first."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def _lock(number: int) -> Slot | None:
    fd = os.open(RUN_DIR / f"{number}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return None
    return Slot(number, fd)


def _links(bridge: str) -> list[str]:
    names = [path.name for path in Path("/sys/class/net").iterdir()]
    return [name for name in names if name == bridge or name.startswith(f"{bridge}n")]


def _remove_cgroups(bridge: str) -> None:
    """The control groups that the nodes' container engines made: those of one node lie under its link's name."""
    for top in Path("/sys/fs/cgroup").glob(f"**/{bridge}n*/"):
        for folder in sorted((path for path in (top, *top.rglob("*")) if path.is_dir()), reverse=True):
            with contextlib.suppress(OSError):
                folder.rmdir()


def _raise_bridge(slot: Slot) -> None:
    lines = [
        f"link add {slot.bridge} type bridge stp_state 0 forward_delay 0",
        f"link set {slot.bridge} mtu 9000 up",
        f"addr add {slot.gateway}/{slot.network.prefixlen} dev {slot.bridge}",
    ]
    run(["ip", "-batch", "-"], stdin="\n".join(lines))
