"""A timer has no session of the user who runs jobs: what a login of theirs would get now stands in its place."""

from __future__ import annotations

from .. import account
from ..tree import Part, Tree, attempt, is_unreadable

NOT_SAID = "not set in limits.d"


def as_login(tree: Tree, state: Part, user: str) -> None:
    """Put into a state, which was read as root, the groups and limits of a new session of that user, and which device
    files their modes let them open (an access list that gives more is not looked at)."""
    known = state["account"]
    rows = account.parse_table(attempt_lines(tree, "/etc/passwd"))
    groups = account.parse_table(attempt_lines(tree, "/etc/group"))
    primary = [row[3] for row in rows if row[0] == user]
    known["user"] = user
    known["home"] = account.home_of(rows, user, "")
    known["at_login"] = [row[0] for row in groups if row[2] in primary or user in row[3].split(",")]
    known["groups"] = list(known["at_login"])
    for limit, setting in account.read_limits(tree, known).items():
        at_login = setting["persisted"]
        running = NOT_SAID if at_login is None else at_login
        state["limits"][limit] = {"running": running, "persisted": at_login}
    if user != "root":
        for device in device_files(state["devices"]):
            device["openable"] = may_open(device, user, known["groups"])


def attempt_lines(tree: Tree, path: str) -> list[str]:
    lines = attempt(tree.lines, path)
    return lines if isinstance(lines, list) else []


def device_files(devices: Part) -> list[Part]:
    found = [] if is_unreadable(devices["kfd"]) else [devices["kfd"]]
    for name in ("dri", "infiniband"):
        found += [] if is_unreadable(devices[name]) else devices[name]
    return found


def may_open(device: Part, user: str, groups: list[str]) -> bool:
    """For reading and writing, by owner, group and mode as the kernel looks at them: the first that fits decides."""
    mode = int(device["mode"], 8)
    if device["owner"] == user:
        return mode & 0o600 == 0o600
    if device["group"] in groups:
        return mode & 0o060 == 0o060
    return mode & 0o006 == 0o006
