"""
Restore what stood on a node before the first change: values from the records, and no file of ours left.
"""

from __future__ import annotations

import json
from collections.abc import Callable

from pyinfra.api.command import QuoteString, StringCommand
from pyinfra.api.operation import operation
from pyinfra.context import host

from facts.settings import Contents
from operations import atomic, sysctl_files
from operations.commands import Commands, verify
from operations.record import FOLDER, Step

OUR_FILES = [sysctl_files.OURS]


def _write(step: Step) -> StringCommand:
    return StringCommand("echo", QuoteString(step.value), ">", QuoteString(step.target))


UNDO: dict[str, Callable[[Step], StringCommand]] = {"file": _write}


@operation()
def rollback() -> Commands:
    """
    Restore every value that was recorded before its first change, and remove our files, our unit and the records.

    **Example:**

    .. code:: python

        from operations import rollback
        rollback.rollback(name="As it was before")
    """
    files = host.get_fact(Contents, patterns=[f"{FOLDER}/*.json", *OUR_FILES])
    records = [path for path in files if path.startswith(FOLDER)]
    ours = [path for path in OUR_FILES if atomic.is_ours(files.get(path))]
    if not records and not ours:
        host.noop("nothing of ours is on this node")
        return
    if ours:
        yield StringCommand("rm -f", *(QuoteString(path) for path in ours))
    steps = [Step(**step) for path in records for step in json.loads("\n".join(files[path] or []))["restore"]]
    for step in steps:
        yield UNDO[step.kind](step)

    def wrong() -> str | None:
        written = {step.target: step.value for step in steps if step.kind == "file"}
        now = host.get_fact(Contents, patterns=list(written)) if written else {}
        bad = [path for path, value in written.items() if " ".join(now.get(path) or []).split() != value.split()]
        return f"not restored: {', '.join(bad)}" if bad else None

    yield verify(wrong)
    yield StringCommand(f"rm -rf {FOLDER} && {{ rmdir {FOLDER.rpartition('/')[0]} 2>/dev/null || true; }}")
