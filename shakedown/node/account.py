"""The user that the probe runs as: name, groups, limits. Files only: a directory server may hang."""

from __future__ import annotations

import os
from typing import Optional

from .tree import Part, Tree, attempt, attempt_or, pick

GROUPS = ("render", "video", "docker")
_LIMITS = {"memlock": "Max locked memory", "nofile": "Max open files"}


def parse_table(lines: list[str]) -> list[list[str]]:
    """Return the rows of passwd(5) or group(5)."""
    return [line.split(":") for line in lines if line.count(":") >= 3 and not line.startswith(("#", "+", "-"))]


def parse_limits(lines: list[str]) -> dict[str, str]:
    """Return the soft values of /proc/self/limits by item; memlock in kilobytes."""
    found: dict[str, str] = {}
    for item, label in _LIMITS.items():
        for line in lines:
            if line.startswith(label):
                soft = line[len(label) :].split()[0]
                found[item] = str(int(soft) // 1024) if item == "memlock" and soft.isdigit() else soft
    return found


def effective_limits(lines: list[str], user: str, groups: list[str]) -> dict[str, Optional[str]]:
    """Return what lines of limits.conf(5) give a user as soft limits. A line for the user beats a line for a group,
    which beats `*`; of equals the last wins. Root gets only what names root."""
    best: dict[str, tuple[int, Optional[str]]] = dict.fromkeys(_LIMITS, (0, None))
    for line in lines:
        words = line.split("#", 1)[0].split()
        if len(words) < 4 or words[2] not in best or words[1] not in ("soft", "-"):
            continue
        domain, value = words[0], words[3]
        if domain == user:
            rank = 3
        elif user != "root" and domain.startswith("@") and domain[1:] in groups:
            rank = 2
        elif user != "root" and domain == "*":
            rank = 1
        else:
            continue
        if rank >= best[words[2]][0]:
            best[words[2]] = (rank, "unlimited" if value in ("-1", "infinity") else value)
    return {item: value for item, (_, value) in best.items()}


def rows(tree: Tree, path: str) -> list[list[str]]:
    return parse_table(attempt_or([], tree.lines, path))


def _session() -> tuple[int, list[int], str]:
    """Return the user's number, those of its groups, and the home that it has inherited."""
    return os.geteuid(), sorted({os.getegid(), *os.getgroups()}), os.environ.get("HOME", "")


def user_name(users: list[list[str]], uid: int) -> str:
    return next((row[0] for row in users if row[2] == str(uid)), os.environ.get("USER", str(uid)))


def home_of(rows: list[list[str]], user: str, inherited: str) -> Optional[str]:
    """Return a user's home by passwd(5), else the one that sshd has set (a directory server's user), else None."""
    homes = [row[5] for row in rows if row[0] == user and len(row) > 5]
    return next((home for home in [*homes, inherited] if home.startswith("/")), None)


def read(tree: Tree) -> Part:
    users, groups = rows(tree, "/etc/passwd"), rows(tree, "/etc/group")
    uid, gids, home = tree.ask("session", _session)
    user = tree.ask("user", user_name, users, uid)
    by_gid = {row[2]: row[0] for row in groups}
    session = [str(gid) for gid in gids]
    return {
        "user": user,
        "home": home_of(users, user, home),
        "groups": [by_gid.get(gid, gid) for gid in session],
        "at_login": groups_at_login(users, groups, user),
        "members": {row[0]: [name for name in row[3].split(",") if name] for row in groups if row[0] in GROUPS},
    }


def groups_at_login(users: list[list[str]], groups: list[list[str]], user: str) -> list[str]:
    """Return the groups that a new session of a user gets, the primary one included."""
    primary = [row[3] for row in users if row[0] == user]
    return [row[0] for row in groups if row[2] in primary or user in row[3].split(",")]


def limits_lines(tree: Tree) -> list[str]:
    """Return all that pam_limits reads, in its order: limits.conf, then limits.d by name."""
    paths = ["/etc/security/limits.conf"] if tree.exists("/etc/security/limits.conf") else []
    paths += [
        "/etc/security/limits.d/" + name for name in tree.names("/etc/security/limits.d") if name.endswith(".conf")
    ]
    return [line for path in paths for line in tree.lines(path)]


def read_limits(tree: Tree, account: Part) -> Part:
    running = attempt(lambda: parse_limits(tree.lines("/proc/self/limits")))
    at_boot = attempt(lambda: effective_limits(limits_lines(tree), account["user"], account["groups"]))
    return {
        item: {"running": attempt(pick, running, item), "persisted": attempt(pick, at_boot, item)} for item in _LIMITS
    }
