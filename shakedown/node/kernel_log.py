"""The kernel's log since boot: the records that may report a fault. Which of them do, the catalogue decides. Those of
priority 3 or worse always come along, others with one of kernel_words.json, made from the catalogue."""

from __future__ import annotations

import json
import os
import re
from typing import Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from .tree import Part, Tree, Unreadable, attempt

KEPT = 400  # records
FIRST, LAST = 4, 12  # of records that differ in digits alone: as many of the first and of the newest
LONGEST = 1000  # characters of a message
ERROR = 3  # priority; a smaller number is worse
_FILE = "/dev/kmsg"
_WORDS = "kernel_words.json"
_NUMBERS = re.compile(r"0x[0-9a-f]+|\b(?=[a-f]*\d)[0-9a-f]+\b|\d+", re.IGNORECASE)


class Record(NamedTuple):
    """One record of /dev/kmsg."""

    number: int  # its sequence number
    priority: int  # 0 to 7
    seconds: float  # since boot
    message: str


def form(message: str) -> str:
    """Return a message without its numbers: what messages of one kind share."""
    return _NUMBERS.sub("#", message[:LONGEST])


def words() -> List[str]:
    """Return the words of which a record has one where the catalogue may know the record."""
    try:
        with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), _WORDS), encoding="utf-8") as file:
            return [str(word) for word in json.load(file)]
    except FileNotFoundError:
        return [""]  # of every record; only where this does not run from the bundle


def parse_record(line: str) -> Optional[Record]:
    """Return the record of "priority,sequence,microseconds,flags;message"; None for a line that goes on."""
    head, semicolon, message = line.partition(";")
    fields = head.split(",")
    if semicolon and len(fields) >= 4 and all(field.isdigit() and len(field) < 20 for field in fields[:3]):
        return Record(int(fields[1]), int(fields[0]) & 7, int(fields[2]) / 1e6, message)
    return None


def candidates(text: str, known: Sequence[str]) -> Tuple[List[Record], int]:
    """Return the records of /dev/kmsg that may report a fault, in their order, and how many more there were. `known`:
    words of `words()`. A storm of one message leaves room for the others, and the worst come first."""
    found: Dict[str, List[Record]] = {}
    left_out, lower = 0, text.lower()
    present = [word for word in known if word in lower]  # few of hundreds
    for record in filter(None, map(parse_record, text.split("\n"))):
        message = record.message.lower()
        if record.priority > ERROR and not any(word in message for word in present):
            continue
        alike = found.setdefault(form(record.message), [])
        if len(alike) >= FIRST + LAST:
            del alike[FIRST]
            left_out += 1
        alike.append(record)
    every = [record for alike in found.values() for record in alike]
    every.sort(key=lambda record: (max(record.priority, ERROR), -record.number))  # the worst and the newest
    left_out += max(0, len(every) - KEPT)
    return sorted(every[:KEPT]), left_out


def ring(handle: int) -> Iterator[bytes]:
    """Yield the records that a handle of /dev/kmsg has by now; each read gives one. What was overwritten before it was
    read is passed by: the next record's number shows how many there were."""
    while True:
        try:
            record = os.read(handle, 16384)  # twice what a record may have (printk's CONSOLE_EXT_LOG_MAX)
        except BrokenPipeError:
            continue
        except BlockingIOError:
            return
        if not record:
            return
        yield record


def kernel_messages(tree: Tree) -> str:
    """Return all that the log's ring holds."""
    handle = os.open(tree.path(_FILE), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        return b"".join(ring(handle)).decode("utf-8", "replace")
    except PermissionError:
        raise Unreadable("not permitted", _FILE) from None
    finally:
        os.close(handle)


def read(tree: Tree) -> Part:
    text = attempt(kernel_messages, tree)
    if not isinstance(text, str):
        return {"records": text, "left_out": 0}
    kept, left_out = candidates(text, words())
    records = [{**record._asdict(), "message": record.message[:LONGEST]} for record in kept]
    return {"records": records, "left_out": left_out}
