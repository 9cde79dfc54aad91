"""Repairs by the agent, where the desired state allows them: values that run now and that jobs do not notice, set by
the code of the operations and the boot unit, and recorded first, for rollback. What a file says for the next boot, and
whatever is disruptive, is left to the controller; what was repaired too often within a day, to a person."""

from __future__ import annotations

import glob
import grp
import json
import os
import stat
import time
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

from shakedown.common.text import file_name

from ..cmdline import kernel_name
from ..devices import ACCESS
from ..safe_files import Busy, Unsafe, locks, sound
from ..setting import SETTINGS, Failed, find
from ..tree import Tree, explain

Did = Dict[str, Any]

DAY_S = 86400
PATIENCE_S = 5.0
REMEDIED = "remedied.json"
BEFORE = "before"  # the folder of the records in the state folder, as operations/atomic.py has it
LIMIT = 1 << 20  # bytes


def put_back(document: Did, tree: Tree, findings: List[Any], builtin: List[str], state: str) -> List[Did]:
    """Repair what is safe to repair. Return what was done, left and why. `builtin`: modules inside the kernel."""
    wanted = [finding for finding in findings if is_safe(finding)]
    if not wanted or document["agent"]["remedy"] != "safe":
        return []
    per_day = document["agent"]["remedies_per_day"]
    try:
        with os.fdopen(locks().lock("files.lock", PATIENCE_S), "rb"):  # an operation of the controller may be at it
            dates = past(state, time.time())
            repairs = [_repair(finding, tree, dates, per_day, builtin, state) for finding in wanted]
    except (Busy, Failed, Unsafe, OSError) as error:  # how often that was may be too often
        return [_done(finding, left=reason(error)) for finding in wanted]
    return [done for done in repairs if done]


def _done(finding: Any, did: str = "", left: str = "") -> Did:
    return {"finding": finding.name, "did": did, "left": left}


def is_safe(finding: Any) -> bool:
    """Return whether an operation that jobs do not notice, and that this program has, would repair a finding."""
    remedy = finding.remedy
    if finding.verdict != "drift" or remedy is None or not remedy.operation or remedy.risk != "safe":
        return False
    room, _, name = remedy.operation.partition(".")
    return remedy.operation in ("boot.settings", "tuning.modules") or (
        name in SETTINGS if room == "tuning" else room == "devices" and name in ACCESS
    )


def _repair(
    finding: Any, tree: Tree, dates: Dict[str, List[float]], per_day: int, builtin: List[str], state: str
) -> Optional[Did]:
    done = dates.setdefault(finding.name, [])
    try:
        before = changes(tree, finding.remedy, builtin)
        if not before:
            return None  # it runs: what differs is what the next boot has
        if len(done) >= per_day:
            words = "the agent put it back {} times within a day and leaves it for a person"
            return _done(finding, left=words.format(len(done)))
        done.append(time.time())
        sound(state, 0o755).write(REMEDIED, json.dumps(dates).encode(), 0o600)
        return _done(finding, did="; ".join(make(change, state) for change in before))
    except (Failed, Unsafe, OSError, ValueError, KeyError) as error:
        return _done(finding, left=reason(error))


def reason(error: BaseException) -> str:
    return str(error) if isinstance(error, (Failed, Unsafe, Busy)) else explain(error).detail


def past(state: str, now: float) -> Dict[str, List[float]]:
    """Return when each finding was repaired within a day. Raises Failed for a damaged record, Unsafe, OSError."""
    try:
        record = json.loads((sound(state, 0o755).read_own(REMEDIED, LIMIT) or b"{}").decode())
        return {name: [at for at in dates if now - DAY_S < at <= now] for name, dates in record.items()}
    except (ValueError, TypeError, AttributeError):
        raise Failed("{}/{} is damaged: remove it".format(state, REMEDIED)) from None


class Change(NamedTuple):
    """One value that runs and is another than wanted."""

    setting: str
    steps: List[Tuple[str, str, str]]
    words: str
    apply: Callable[[], None]


def changes(tree: Tree, remedy: Any, builtin: List[str]) -> List[Change]:
    """Return what an operation would change now. Raises Unreadable, KeyError, Failed."""
    found = [change for pair in pairs(remedy, builtin) for change in differing(tree, *pair)]
    room, _, name = remedy.operation.partition(".")
    return found + (closed_files(tree, name) if room == "devices" else [])


def pairs(remedy: Any, builtin: List[str]) -> List[Tuple[str, str]]:
    """Return the settings of an operation's arguments, by the keys of boot.conf."""
    room, _, name = remedy.operation.partition(".")
    arguments = remedy.arguments
    if remedy.operation == "boot.settings":
        return [(key, str(value)) for key, value in arguments["settings"].items()]
    if remedy.operation == "tuning.modules" or room == "devices":
        modules = [kernel_name(module) for module in arguments["modules"]]
        return [("module." + module, "loaded") for module in modules if module not in builtin]
    value = SETTINGS[name].word(arguments["enabled"] if SETTINGS[name].switch else arguments["value"])
    return [(SETTINGS[name].key() + ("." + arguments["key"] if "key" in arguments else ""), value)]


def differing(tree: Tree, key: str, value: str) -> List[Change]:
    setting, detail = find(key)
    if not setting.accepts(value) or setting.risk != "safe":
        raise Failed("the agent does not put {} back: {}".format(key, value))
    found = setting.read(tree, detail)
    wrong = sorted({raw for raw in found.values() if raw and raw != setting.raw(value)})
    if not wrong:
        return []
    steps = [(setting.step, target, setting.before(raw)) for target, raw in found.items() if raw]
    words = "{} {} -> {}".format(key, ", ".join(wrong), value)

    def apply() -> None:
        setting.make(tree, detail, value)
        left = [raw for raw in setting.read(tree, detail).values() if raw and raw != setting.raw(value)]
        if left:
            raise Failed("{} is {} after writing {}".format(key, ", ".join(sorted(set(left))), value))

    return [Change(recorded_as(setting, detail), steps, words, apply)]


def recorded_as(setting: Any, detail: str) -> str:
    """Return the name of the record, as the operations have it."""
    if setting.name == "module":
        return "modules." + detail
    name = str(setting.key()) + ("." + detail if detail else "")
    return "boot." + name if setting.by_unit else name


def closed_files(tree: Tree, name: str) -> List[Change]:
    """Return the device files that a job's user could not open, with what gives them the mode and the group."""
    access = ACCESS[name]
    least = int(access.mode, 8)
    steps, paths = [], []
    for path in sorted(path for pattern in access.patterns for path in glob.glob(tree.path(pattern))):
        found = os.lstat(path)
        group = group_of(found.st_gid)
        if stat.S_ISCHR(found.st_mode) and (found.st_mode & least != least or access.group not in (None, group)):
            steps.append(("access", path[len(tree.root) :], "{:04o} {}".format(stat.S_IMODE(found.st_mode), group)))
            paths.append(path)

    def apply() -> None:
        gid = grp.getgrnam(access.group).gr_gid if access.group else -1
        for path in paths:
            os.chown(path, -1, gid, follow_symlinks=False)
            os.chmod(path, least)

    words = "{}: {} {}".format(", ".join(step[1] for step in steps), access.mode, access.group or "")
    return [Change(name, steps, words.strip(), apply)] if paths else []


def group_of(gid: int) -> str:
    try:
        return str(grp.getgrgid(gid).gr_name)
    except KeyError:
        return str(gid)


def make(change: Change, state: str) -> str:
    """Record what stands there, and change it. Raises Failed, Unsafe, OSError."""
    records = sound(os.path.join(state, BEFORE), 0o700)
    name = file_name(change.setting) + ".json"
    if records.look(name) is None:
        steps = [dict(zip(("kind", "target", "value"), step)) for step in change.steps]
        text = json.dumps({"setting": change.setting, "restore": steps}, sort_keys=True)
        records.write(name, text.encode() + b"\n", 0o600)
    else:
        records.read_own(name, LIMIT)  # one that another user could have written is no record
    change.apply()
    return change.words
