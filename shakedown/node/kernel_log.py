"""Faults in the kernel's log since boot, by the texts of kernel_faults.txt."""

from __future__ import annotations

import os
from typing import Any, Optional, Tuple

from .tree import Part, Tree, Unreadable, attempt

Record = Tuple[Optional[int], str]  # sequence number, message

KEPT = 50
_FILE = "/dev/kmsg"


def fault_texts() -> list[str]:
    """The texts of the data file beside this module, in lower case."""
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "kernel_faults.txt")) as file:
        return [line.strip().lower() for line in file if line.strip() and not line.startswith("#")]


def names_a_fault(message: str, texts: list[str]) -> bool:
    message = message.lower()
    # Thousands of messages: a generator for each costs twice as much.
    for text in texts:  # noqa: SIM110
        if text in message:
            return True
    return False


def parse_record(line: str) -> Optional[Tuple[int, float, str]]:
    """(sequence number, seconds since boot, message) of "priority,sequence,microseconds,flags;message"; None for a
    line with a blank in front: it belongs to the one before and says only which device it was."""
    head, semicolon, message = line.partition(";")
    fields = head.split(",")
    if semicolon and len(fields) >= 4 and fields[1].isdigit() and fields[2].isdigit():
        return int(fields[1]), int(fields[2]) / 1e6, message
    return None


def parse_records(text: str) -> list[Record]:
    """Records of /dev/kmsg."""
    records: list[Record] = []
    for line in text.splitlines():
        record = parse_record(line)
        if record is not None:
            records.append((record[0], record[2]))
    return records


def _kernel_messages(tree: Tree) -> str:
    """All that the log's ring holds. Each read gives one record; EPIPE says that one was overwritten meanwhile."""
    handle = os.open(tree.path(_FILE), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    chunks = []
    try:
        while True:
            try:
                chunk = os.read(handle, 16384)  # twice what a record may have (printk's CONSOLE_EXT_LOG_MAX)
            except BrokenPipeError:
                continue
            except BlockingIOError:
                break
            except PermissionError:
                raise Unreadable("not permitted", _FILE) from None
            if not chunk:
                break
            chunks.append(chunk)
    finally:
        os.close(handle)
    return b"".join(chunks).decode("utf-8", "replace")


def read(tree: Tree) -> tuple[Part, dict[str, Any]]:
    """The KernelLog part and its counters. The ring forgets, so the number of faults in it can fall while new ones
    come; the sequence number of the newest one only grows."""
    text = attempt(_kernel_messages, tree)
    if not isinstance(text, str):
        return {"errors": text, "count": text}, {"kernel_log/faults": text}
    texts = fault_texts()
    # Thousands of messages, and most nodes have no fault among them.
    some = names_a_fault(text, texts)
    faults = [record for record in parse_records(text) if names_a_fault(record[1], texts)] if some else []
    newest = (faults[-1][0] or 0) + 1 if faults else 0
    part = {"errors": [message for _, message in faults[-KEPT:]], "count": len(faults)}
    return part, {"kernel_log/faults": len(faults), "kernel_log/newest_fault": newest}
