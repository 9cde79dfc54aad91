"""The kernel's log and device events of exactly the job's window, each as a file of its own.

The watchdog has gone to the end of /dev/kmsg before the job began: what is read from there is the job's, whatever the
clocks say. Where this user may not read it, the journal is asked at the end, by time.

pyudev hears the kernel's own events: source `udev` would repeat them where udevd runs, and be silent in a container. A
carrier has no such event, so rtnetlink reports the links. Silence proves nothing: older drivers send no event.
"""

from __future__ import annotations

import json
import os
import re
import socket
import struct
import time
from contextlib import suppress
from functools import partial
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Tuple

from .. import udev
from ..children import run_tool
from ..kernel_log import ERROR, LONGEST, Record, form, kernel_messages, parse_record, ring
from ..known import KNOWN
from ..tree import Tree, Unreadable, attempt, attempt_or, explain
from . import machine

LIMIT = 4 << 20  # bytes of the file; a storm of messages is counted beyond that
_JOURNAL_S = 4.0
_FORMS = 300  # of earlier error lines
_BATCH = 2000  # records at a time, so that a storm does not keep the sampler from its samples


class Window:
    """Records of the job's window: "<priority>[seconds since boot] message"; "#" begins the sampler's own lines."""

    def __init__(self, path: str, limit: int, begin: float, wall: float, source: str) -> None:
        self.unreadable: Optional[Unreadable] = None
        self._limit = limit
        self._size = 0
        self._beyond = 0
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        self._say("# begin monotonic=%.6f wall=%.6f source=%s" % (begin, wall, source))

    def close(self, end: float) -> None:
        """Write the window's end. Without this line a reader knows that the file was cut."""
        if self._beyond:
            self._say("# beyond %d records" % self._beyond, always=True)
        if self.unreadable is not None:
            self._say("# unreadable %s: %s" % (self.unreadable.reason, self.unreadable.detail), always=True)
        self._say("# end monotonic=%.6f" % end, always=True)
        os.close(self._file)

    def _record(self, record: Record) -> None:
        self._say("<%d>[%12.6f] %s" % (record.priority, record.seconds, record.message))

    def _say(self, line: str, always: bool = False) -> None:
        data = (line + "\n").encode("utf-8", "replace")
        if self._size + len(data) > self._limit and not always:
            self._beyond += 1
            return
        self._size += len(data)
        with suppress(OSError):  # a full disk: the file then lacks its end, and a reader says so
            while data:
                data = data[os.write(self._file, data) :]


class KernelLog(Window):
    """`handle`: of /dev/kmsg at the window's begin; None where `reason` says why there is none."""

    def __init__(self, path: str, handle: Optional[int], reason: str, tree: Tree, begin: float, wall: float) -> None:
        super().__init__(path, LIMIT, begin, wall, "journal" if handle is None else "kmsg")
        self._handle = handle
        self._reason = reason
        self._tree = tree
        self._wall = wall
        self._next: Optional[int] = None  # sequence number
        text = None if handle is None else attempt(kernel_messages, tree)
        if isinstance(text, str):
            records = map(parse_record, text.split("\n"))
            self._before(record for record in records if record is not None and record.seconds < begin)

    def drain(self) -> bool:
        """Write what has come. True where there is more."""
        if self._handle is None:
            return False
        try:
            for number, record in enumerate(ring(self._handle), 1):
                self._write(record)
                if number == _BATCH:
                    return True
        except OSError as error:
            self.unreadable = explain(error)
            self._handle = None
        return False

    def _write(self, record: bytes) -> None:
        parsed = parse_record(record.split(b"\n", 1)[0].decode("utf-8", "replace"))
        if parsed is None:
            return
        if self._next is not None and parsed.number > self._next:
            self._say("# lost %d records" % (parsed.number - self._next))
        self._next = parsed.number + 1
        self._record(parsed)

    def _before(self, records: Iterable[Record]) -> None:
        """Write the forms of the error lines that are older than the window: an error of another form is new."""
        self._say("# before")
        forms = {form(record.message): None for record in records if record.priority <= ERROR}
        for text in list(forms)[-_FORMS:]:
            self._say("# before %s" % text)

    def close(self, end: float) -> None:
        """Write what is left, and the window's end."""
        while self.drain():
            pass
        if self._handle is None and self.unreadable is None:
            self._from_journal()
        super().close(end)

    def _from_journal(self) -> None:
        """Take the kernel's log from the journal, which groups adm and systemd-journal may read. An empty answer proves
        nothing, so a record of this boot is requested first: there always is one."""
        refused = Unreadable("not readable", self._reason)
        try:
            argv = [self._tree.tool("journalctl"), "--dmesg", "--boot", "--quiet", "--no-pager", "--output=json"]
            if not run_tool([*argv, "--lines=1"], _JOURNAL_S).strip():
                raise refused
            until = "--until=@%.6f" % self._wall
            earlier = run_tool([*argv, "--priority=err", "--lines=%d" % _FORMS, until], _JOURNAL_S)
            since = run_tool([*argv, "--since=@%.6f" % self._wall], _JOURNAL_S)
        except Exception:
            self.unreadable = refused
            return
        self._before(_of_journal(earlier))
        for record in _of_journal(since):
            self._record(record)


def _of_journal(text: str) -> Iterator[Record]:
    """Yield the records of journalctl's JSON, one a line."""
    for line in text.splitlines():
        try:
            fields = json.loads(line)
            microseconds = fields.get("_SOURCE_MONOTONIC_TIMESTAMP") or fields["__MONOTONIC_TIMESTAMP"]
            message = fields["MESSAGE"]  # one that is no UTF-8 comes as the numbers of its bytes
            text = message if isinstance(message, str) else bytes(message).decode("utf-8", "replace")
            yield Record(0, int(fields["PRIORITY"]) & 7, int(microseconds) / 1e6, text.split("\n", 1)[0])
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            continue  # no record, or one without a message


SUBSYSTEMS: List[str] = KNOWN["events"]["subsystems"]
DEVICES_LIMIT = 256 << 10  # bytes of the file
PER_MINUTE = 60  # records of each priority
_EVENTS = 500  # events at a time
_BUFFER = 4 << 20  # bytes that a burst may fill; the kernel's default holds a few hundred events
_ERRORS = 20  # of a socket, one after the other, before it is given up
_NOTICE = 6  # priority of what takes nothing away
_QUIET = ("add", "bind", "move", "online")
# What identifies a device. Other properties say what happened, for example WEDGED= or ERROR_EVENT=.
_IDENTITY = re.compile(KNOWN["events"]["identity"])
_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_LINK_GROUP, _NEWLINK = 1, 16  # RTMGRP_LINK, RTM_NEWLINK (linux/rtnetlink.h)
_RUNNING = 0x40  # IFF_RUNNING (linux/if.h)


class Devices(Window):
    """`handles` are readable when there is something to drain. `interface`: the interface that the job uses; other
    interfaces without hardware are left out, as containers make and remove them all the time."""

    def __init__(self, path: str, tree: Tree, begin: float, wall: float, interface: Optional[str]) -> None:
        super().__init__(path, DEVICES_LIMIT, begin, wall, "kernel")
        self._tree = tree
        self._interface = interface
        self._minute, self._counts = begin, dict.fromkeys((ERROR, _NOTICE), 0)
        self._errors, self._lost = 0, False
        self.handles: Dict[Any, Callable[[Any], bool]] = {}
        self._known: Dict[str, Tuple[str, udev.Device]] = {}  # path -> subsystem, device
        self._carriers: Dict[str, bool] = {}
        if not tree.live:
            self.unreadable = Unreadable("missing", "a recorded tree has no events")
            return
        for listen, take in (
            (partial(udev.monitor, SUBSYSTEMS, _BUFFER), self._take_device),
            (_rtnetlink, self._take_links),
        ):
            try:
                self.handles[listen()] = take
            except Exception as error:  # no libudev, no permission: the other socket, and the samples, go on
                self.unreadable = explain(error)
        self._known = attempt_or({}, self._listed)  # behind the sockets, so that no event is between
        self._carriers = attempt_or({}, self._running)

    def drain(self) -> None:
        """Write the events that have come. Where some were lost, compare the lists once the buffer is empty: until then
        the kernel drops more, and reports no further error."""
        for handle, take in list(self.handles.items()):
            for _ in range(_EVENTS):
                try:
                    if take(handle):
                        self._errors = 0
                        continue
                except BlockingIOError:
                    pass
                except Exception as error:  # ENOBUFS: a burst was longer than the buffer
                    self._lost = True
                    self._errors += 1
                    attempt(_clear, handle)
                    if self._errors < _ERRORS:
                        continue
                    self.unreadable = explain(error)
                    del self.handles[handle]
                if self._lost:
                    self._lost = False
                    attempt(self._compare)
                break

    def close(self, end: float) -> None:
        """Write the last events, and the window's end."""
        self.drain()
        super().close(end)

    def _take_device(self, monitor: Any) -> bool:
        device = monitor.poll(0)
        if device is None:
            return False
        found = udev.Device(device.sys_name, device.sys_path, dict(device.properties))
        self._event(str(device.action), str(device.subsystem), found)
        return True

    def _event(self, action: str, subsystem: str, device: udev.Device, remark: str = "") -> None:
        if subsystem == "net" and device.parent == "virtual" and device.name != self._interface:
            return
        head = self._head(device.path, device.properties.get("DRIVER"))
        self._note(action, subsystem, device)
        more = ["%s=%s" % pair for pair in sorted(device.properties.items()) if not _IDENTITY.fullmatch(pair[0])]
        quiet = action in _QUIET or (action == "change" and not more)
        words = ["%s: uevent %s %s %s" % (head, action, subsystem, device.name), *more, remark]
        self._write(_NOTICE if quiet else ERROR, " ".join(words))

    def _head(self, path: str, driver: Optional[str] = None) -> str:
        """Return driver and PCI function of a device, as the kernel names the device in its log."""
        function = next(reversed(_ADDRESS.findall(path)), "")
        every = (found for subsystem, found in self._known.values() if (subsystem, found.name) == ("pci", function))
        driver = driver or next((found.properties.get("DRIVER") for found in every), None)
        return " ".join(filter(None, (driver, function))) or "virtual"

    def _note(self, action: str, subsystem: str, device: udev.Device) -> None:
        """Keep the list of devices as it is now."""
        self._known.pop("/sys" + device.properties.get("DEVPATH_OLD", ""), None)  # it has another name now
        if action == "remove":
            self._known.pop(device.path, None)
        elif action in _QUIET:
            self._known[device.path] = (subsystem, device)
        if subsystem == "net" and action in ("add", "remove"):
            self._carriers.pop(device.name, None)
            self._carriers.update({device.name: False} if action == "add" else {})

    def _take_links(self, links: socket.socket) -> bool:
        data, at = links.recv(1 << 16), 0
        while at + 32 <= len(data):
            size, kind = struct.unpack_from("=IH", data, at)
            index, flags = struct.unpack_from("=iI", data, at + 20)
            if kind == _NEWLINK:
                self._link(attempt(socket.if_indextoname, index), bool(flags & _RUNNING))
            at += max(size + 3 & ~3, 16)
        return True

    def _link(self, name: Any, running: bool) -> None:
        """Write down that a link has lost its carrier or has it again; an unknown interface is not watched."""
        if not isinstance(name, str) or self._carriers.get(name, running) == running:
            return
        self._carriers[name] = running
        path = next((path for path, known in self._known.items() if (known[0], known[1].name) == ("net", name)), "")
        words = "has its carrier again" if running else "lost its carrier"
        self._write(_NOTICE if running else ERROR, "%s %s: link %s" % (self._head(path), name, words))

    def _listed(self) -> Dict[str, Tuple[str, udev.Device]]:
        return {found.path: (name, found) for name in SUBSYSTEMS for found in udev.devices(self._tree, name)}

    def _running(self) -> Dict[str, bool]:
        every = self._tree.psutil.net_if_stats()
        return {name: every[name].isup for name in machine.interfaces(self._tree, self._interface) if name in every}

    def _compare(self) -> None:
        """List the devices again, and write down how they differ from what the events said."""
        self._say("# lost an unknown number of events")
        before, now = dict(self._known), self._listed()
        for path in [*sorted(before.keys() - now.keys()), *sorted(now.keys() - before.keys())]:
            subsystem, device = before.get(path) or now[path]
            self._event("remove" if path in before else "add", subsystem, device, "(seen in the list)")
        for name, running in self._running().items():
            self._link(name, running)

    def _write(self, priority: int, text: str) -> None:
        now = time.monotonic()
        if now - self._minute >= 60:
            self._minute, self._counts = now, dict.fromkeys(self._counts, 0)
        self._counts[priority] += 1
        if self._counts[priority] > PER_MINUTE:
            self._beyond += 1
        else:
            self._record(Record(0, priority, now, " ".join(text.split())[:LONGEST]))


def _rtnetlink() -> socket.socket:
    found = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_NONBLOCK, socket.NETLINK_ROUTE)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER)
    found.bind((0, _LINK_GROUP))
    return found


def _clear(handle: Any) -> None:
    """Clear the error of a socket: as long as it is pending, poll reports it and nothing else (pyudev#194)."""
    duplicate = socket.socket(fileno=os.dup(handle.fileno()))
    try:
        duplicate.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    finally:
        duplicate.close()
