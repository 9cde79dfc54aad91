"""What a waiver may say: a finding or an entry that there is, and that a site may accept, for at most 90 days."""

from collections.abc import Iterator
from datetime import date, timedelta
from typing import Literal

from shakedown.catalogue.model import Entry, entries
from shakedown.checks import answers, not_waivable
from shakedown.checks.machines import is_own
from shakedown.checks.waivers import GRAVE, today, waivable
from shakedown.common.nearest import nearest
from shakedown.desired.models import DesiredState
from shakedown.desired.problems import Problem

LONGEST = timedelta(days=90)
REFUSED = {"device_left", "gpu_bad_pages", "memory_failure", "nvme_error", "scsi_error"}
"""Entries of parts that are gone or worn out, and of memory and drives that lost data."""


def problems_of(state: DesiredState) -> Iterator[Problem]:
    """Yield what is wrong with the waivers of one host."""
    latest = str(date.fromisoformat(today()) + LONGEST)
    for name, waiver in state.waivers.items():
        path = f"waivers.{name}"
        if waiver.until > latest:
            yield Problem("", f"{path}.until", repr(waiver.until), f"a day until {latest}: at most 90 days ahead")
        for key in ("reason", "owner"):
            if not getattr(waiver, key).strip():
                yield Problem("", f"{path}.{key}", repr(getattr(waiver, key)), "words")
        for part in waiver.parts:
            if not is_own(part):
                expected = "a serial number of a part's own: other parts have this one too"
                yield Problem("", f"{path}.parts", part, expected)
        named: Literal["finding", "entry"] = "finding" if waiver.finding is not None else "entry"
        expected = _of_finding(waiver.finding) if waiver.finding is not None else _of_entry(waiver.entry or "")
        if expected:
            yield Problem("", f"{path}.{named}", repr(getattr(waiver, named)), expected)


def _of_finding(name: str) -> str:
    """Return what is expected in place of the name of a finding; nothing where the name is right."""
    check = name.partition(".")[0]
    if name.endswith(".") or "*" in name:
        return "the whole name of a finding, such as rdma_rate or fleet.kernel"
    if name == "fleet":
        return "one finding beside the other nodes, such as fleet.kernel"
    if check != "fleet" and check not in answers():
        return f"the name of a finding{nearest(check, answers(), ', such as ')}; gates cannot be waived"
    if not waivable(name, not_waivable()):
        which = "missing GPUs, failing drives, uncorrected errors, wrong files and the identity of a node"
        return f"another finding, since no site can accept {name}: {which} stay failures"
    return ""


def _of_entry(name: str) -> str:
    """Return what is expected in place of the name of an entry; nothing where the name is right."""
    known = {entry.name: entry for entry in entries("kernel")}
    if name not in known:
        return "an entry of the catalogue for the kernel's log" + nearest(name, known, ", such as ")
    if known[name].severity in ("user", "noise"):
        return f"an entry that is a fault: {known[name].severity} fails no node"
    return "" if accepts(known[name]) else "another entry: fatal and uncorrected errors stay failures"


def accepts(entry: Entry) -> bool:
    """Return whether a site may accept the lines of an entry, but for its grave ones (`waived_lines`). Of a bank or of
    a group of lines others say how grave it is."""
    own = entry.severity == "corrected" or not (entry.bank or entry.group)
    if entry.general or entry.name in REFUSED:
        return False
    words = f"{entry.name} {entry.cause}".replace("non-fatal", "")
    return own and entry.severity != "fatal" and not GRAVE.search(words)
