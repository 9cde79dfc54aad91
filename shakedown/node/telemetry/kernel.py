"""The kernel's log of exactly the job's window, as a file of its own.

The watchdog has opened /dev/kmsg and gone to its end before the job began: what is read from there is the job's, record
by record, whatever the clocks say. Where this user may not read it, the journal is asked at the end, by time.
"""

from __future__ import annotations

import json
import os
from typing import Iterable, Iterator, Optional

from ..children import run_tool
from ..kernel_log import ERROR, Record, form, kernel_messages, parse_record
from ..tree import Tree, Unreadable, attempt, explain

LIMIT = 4 << 20  # bytes of the file; a storm of messages is counted beyond that
_JOURNAL_S = 4.0
_FORMS = 300  # of earlier error lines
_BATCH = 2000  # records at a time, so that a storm does not keep the sampler from its samples


class Window:
    """A file of records of the job's window. A line is "<priority>[seconds since boot] message"; what begins with "#"
    is the sampler's own."""

    def __init__(self, path: str, limit: int = LIMIT) -> None:
        self.unreadable: Optional[Unreadable] = None
        self._limit = limit
        self._size = 0
        self._beyond = 0
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)

    def _begins(self, begin: float, wall: float, source: str) -> None:
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
        try:
            while data:
                data = data[os.write(self._file, data) :]
        except OSError:
            pass  # a full disk: the file then lacks its end, and a reader says so


class KernelLog(Window):
    """`handle`: of /dev/kmsg at the window's begin; None where `reason` says why there is none."""

    def __init__(self, path: str, handle: Optional[int], reason: str, tree: Tree, begin: float, wall: float) -> None:
        super().__init__(path)
        self._handle = handle
        self._reason = reason
        self._tree = tree
        self._wall = wall
        self._next: Optional[int] = None  # sequence number
        self._begins(begin, wall, "kmsg" if handle is not None else "journal")
        text = None if handle is None else attempt(kernel_messages, tree)
        if isinstance(text, str):
            records = map(parse_record, text.split("\n"))
            self._before(record for record in records if record is not None and record.seconds < begin)

    def drain(self) -> bool:
        """Write what has come. True where there is more."""
        if self._handle is None:
            return False
        for _ in range(_BATCH):
            try:
                record = os.read(self._handle, 16384)
            except BlockingIOError:
                return False
            except BrokenPipeError:
                continue  # overwritten before it was read: the next one's number shows how many
            except OSError as error:
                self.unreadable = explain(error)
                self._handle = None
                return False
            if not record:
                return False
            self._write(record)
        return True

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
