"""Run folders of earlier runs: a controller that died or a cable that was cut leaves them, with the only logs.

They stay for a person to fetch, but not without end. The newest few stay; any other goes once nothing in it has changed
for a day, and after two weeks each one goes. Only this user's own are touched, never one whose watchdog lives, and what
is there is reported at every run.
"""

from __future__ import annotations

import os
import stat
import time
from typing import Any, Dict, List, Tuple

from . import folder, processes

NEWEST = 5  # that stay, whatever else is there
_DAY_S = 86400.0
OLD_S = 14 * _DAY_S
_YEARS_S = 3650 * _DAY_S  # older than that nothing is: it was written, or is looked at, by a clock that was not set
_BUDGET_S = 5.0  # for removing; the controller waits. What is left is the next run's


def sweep() -> Dict[str, Any]:
    """Remove what is old. `removed` and `kept` name the runs, newest first, `bytes` is what the kept ones take up.

    The caller holds the node's lock, so that no other run of this node is alive. A run of another network namespace
    with the same home may be: its watchdog is seen, or its files are not yet a day old. Raises nothing.
    """
    began, now = time.monotonic(), time.time()
    kept: List[str] = []
    removed: List[str] = []
    size = 0
    for path, touched in _newest_first(folder.parent()):
        age = now - touched
        old = age < _YEARS_S and (age > OLD_S or (len(kept) >= NEWEST and age > _DAY_S))
        if old and time.monotonic() - began < _BUDGET_S and not _lives(path) and not folder.remove(path):
            removed.append(os.path.basename(path))
        else:
            kept.append(os.path.basename(path))
            size += _size(path)
    return {"kept": kept, "removed": removed, "bytes": size}


def _newest_first(parent: str) -> List[Tuple[str, float]]:
    """Return this user's run folders, each with the time of its last change."""
    found = []
    try:
        names = os.listdir(parent)
    except OSError:
        return []  # no run yet; a folder that cannot be used is found out by who makes one in it
    for name in names:
        path = os.path.join(parent, name)
        about = _about(path)
        if about and stat.S_ISDIR(about.st_mode) and about.st_uid == os.getuid() and folder.is_run_id(name):
            inner = [_about(os.path.join(path, log)) for log in (folder.LEADER_LOG, folder.OWN)]
            found.append((path, max([about.st_mtime, *(entry.st_mtime for entry in inner if entry)])))
    return sorted(found, key=lambda entry: entry[1], reverse=True)


def _about(path: str) -> Any:
    try:
        return os.lstat(path)
    except OSError:
        return None


def _lives(path: str) -> bool:
    """Return whether the watchdog of a run is alive, as far as it can be seen from here."""
    place = folder.read_json(path, "control.json")
    return place.get("boot_id") == processes.boot_id() and bool(processes.named(place.get("process")))


def _size(path: str) -> int:
    paths = [os.path.join(base, name) for base, _, names in os.walk(path) for name in names]
    return sum(about.st_blocks * 512 for about in map(_about, paths) if about)
