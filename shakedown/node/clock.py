"""Time synchronisation: what the kernel holds of its clock, and the service that steers it."""

from __future__ import annotations

import ctypes
import struct

from .children import run_tool
from .tree import Part, Tree, Unreadable, attempt

_STA_UNSYNC, _STA_NANO = 0x0040, 0x2000  # linux/timex.h
_OFFSET_AT, _STATUS_AT = 8, 40  # of struct timex on 64-bit machines
_PID_FILES = {
    "chronyd": ("/run/chrony/chronyd.pid", "/run/chronyd.pid", "/run/chrony.pid"),
    "ntpd": ("/run/ntpd.pid", "/var/run/ntpd.pid"),
    "ptp4l": ("/run/ptp4l.pid",),
}
_TIMESYNC = "/run/systemd/timesync"


def parse_chrony(line: str) -> float:
    """Return the clock's offset in seconds by `chronyc -c tracking`: field 5 of its comma-separated line."""
    return float(line.split(",")[4])


def _timex() -> tuple[bool, float]:
    """Return (synchronised, offset in seconds) by adjtimex(2) with nothing to set: it only reads, without rights.
    timedatectl shows the same bit."""
    block = ctypes.create_string_buffer(256)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.adjtimex(block) < 0:
        raise Unreadable("failed", "adjtimex: errno {}".format(ctypes.get_errno()))
    (offset,) = struct.unpack_from("<q", block, _OFFSET_AT)
    (status,) = struct.unpack_from("<i", block, _STATUS_AT)
    return not status & _STA_UNSYNC, offset / (1e9 if status & _STA_NANO else 1e6)


def _service(tree: Tree) -> str:
    for name, files in _PID_FILES.items():
        path = tree.first(*files)
        if path and tree.exists("/proc/{}".format(attempt(tree.number, path))):
            return name
    if tree.exists(_TIMESYNC):
        return "systemd-timesyncd"
    raise Unreadable("missing", "no chronyd, ntpd, ptp4l or systemd-timesyncd")


def read(tree: Tree) -> Part:
    if not tree.live:
        return dict(tree.recorded("clock"))
    timex = attempt(_timex)
    known = not isinstance(timex, dict)
    service = attempt(_service, tree)
    offset = timex[1] if known else timex
    if service == "chronyd":  # it steers by frequency alone, so the kernel's own offset stays at 0
        lines: list[str] = attempt(lambda: run_tool([tree.tool("chronyc"), "-c", "-n", "tracking"], 3))
        offset = attempt(parse_chrony, lines) if isinstance(lines, str) else lines
    return {"synchronised": timex[0] if known else timex, "service": service, "offset_s": offset}
