"""A node's kernel log of the job's window, and the events of the node's devices: as the sampler wrote them."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from shakedown.common.text import incoming, printable

READ_LIMIT = 16 << 20  # bytes: the sampler writes a quarter of it
_BEGIN = re.compile(r"# begin monotonic=(\d{1,12}\.\d{1,9}) wall=(\d{1,12}\.\d{1,9}) source=(\w{1,20})")
_RECORD = re.compile(r"(?:<[0-7]>)?\[ {0,20}(\d{1,12}\.\d{1,9})\] (.*)")
_FORMS = 500  # of earlier error lines that are kept


@dataclass
class KernelWindow:
    """The records of the window: `lines` as the file has them. `unreadable` says why there are none, `incomplete` why
    they are not all; empty: they are."""

    lines: list[str] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)  # of each in the file, from 1
    before: set[str] | None = None  # forms of the error lines before the window, since boot; None: not known
    begin: tuple[float, float] | None = None  # monotonic clock and Unix time of the node
    source: str = ""
    unreadable: str = ""
    incomplete: str = ""


def timed(line: str) -> tuple[float, str] | None:
    """Return when a record was written, in seconds since boot, and its message; None for a line without a time."""
    found = _RECORD.match(line)
    return (float(found[1]), found[2]) if found else None


def read(chunks: Iterable[bytes]) -> KernelWindow:
    """Read the window of a file. The content raises no error."""
    window, gaps, ended = KernelWindow(), [], False
    data = bytearray()
    for chunk in chunks:
        if len(data) + len(chunk) > READ_LIMIT:
            gaps.append(f"only its first {len(data)} bytes were read")
            break
        data += chunk
    for number, raw in enumerate(bytes(data).split(b"\n"), 1):
        line = incoming(raw.decode("utf-8", "replace"))
        if not line.startswith("#"):
            if line:
                window.lines.append(line)
                window.numbers.append(number)
            continue
        what, _, rest = line.removeprefix("# ").partition(" ")
        if what == "begin" and (found := _BEGIN.match(line)):
            window.begin, window.source = (float(found[1]), float(found[2])), found[3]
        elif what == "before":
            window.before = window.before or set()
            if rest and len(window.before) < _FORMS:
                window.before.add(rest)
        elif what == "unreadable":
            window.unreadable = printable(rest, 400)
        elif what in ("lost", "beyond"):
            gaps.append(f"{printable(rest, 40)} {'overwritten' if what == 'lost' else 'beyond the limit'}")
        elif what == "end":
            ended = True
    if window.begin is None:
        gaps.append("the first line is missing")
    elif not ended:
        gaps.append("the end was not written")
    window.incomplete = "; ".join(gaps)
    return window
