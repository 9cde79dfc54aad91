"""The operating system and the machine: /etc/os-release, uname, DMI, processors, memory, NUMA, the clock, and the user
that the probe runs as. Of the user files alone are read: a directory server may hang."""

from __future__ import annotations

import ctypes
import os
import struct
import time
from typing import Optional

from .children import run_tool
from .known import KNOWN
from .setting import online_cpus
from .tree import Part, Tree, Unreadable, attempt, attempt_or, is_unreadable, pairs, pick


def family_of(release: dict[str, str]) -> str:
    """Return "debian", "rhel" or "other", by ID and ID_LIKE."""
    names = {release.get("ID", ""), *release.get("ID_LIKE", "").split()}
    return next((family for family, members in KNOWN["system"]["families"].items() if names & set(members)), "other")


def _release(tree: Tree) -> dict[str, str]:
    """Return the values of os-release(5), quotes taken off."""
    found = pairs(tree.lines(tree.first("/etc/os-release") or "/usr/lib/os-release"))
    return {key: value.strip("\"'") for key, value in found.items()}


def read(tree: Tree) -> Part:
    nodename, kernel, arch, now, monotonic = tree.ask("machine", _machine)
    release = attempt(_release, tree)
    return {
        "hostname": attempt_or("", tree.text, "/proc/sys/kernel/hostname") or nodename,
        **{name: attempt(tree.text, path) for name, path in KNOWN["system"]["files"].items()},
        "taken_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now)),
        "epoch_s": now,
        "monotonic_s": monotonic,
        "os_id": attempt(pick, release, "ID"),
        "os_version": release if is_unreadable(release) else release.get("VERSION_ID", release.get("BUILD_ID", "")),
        "os_name": attempt(pick, release, "PRETTY_NAME"),
        "family": family_of({} if is_unreadable(release) else release),
        "kernel": attempt_or("", tree.text, "/proc/sys/kernel/osrelease") or kernel,
        "arch": arch,
        "host_key": attempt(_host_key, tree),
        "service_manager": "systemd" if tree.exists("/run/systemd/system") else "other",
    }


def _machine() -> tuple[str, str, str, float, float]:
    names = os.uname()
    return names.nodename, names.release, names.machine, time.time(), time.monotonic()


def _host_key(tree: Tree) -> str:
    """Return the public key of sshd that a client is offered first: type and key, without the comment."""
    paths = ["/etc/ssh/ssh_host_{}_key.pub".format(kind) for kind in ("ed25519", "ecdsa", "rsa")]
    return " ".join(tree.text(tree.first(*paths) or paths[0]).split()[:2])


def read_cpu(tree: Tree) -> Part:
    # Only the beginning: the kernel writes this file processor by processor, and a rack's node has hundreds.
    text = attempt(lambda: tree.raw("/proc/cpuinfo", 4096).decode("utf-8", "replace"))
    info = text if is_unreadable(text) else pairs(text.split("\n\n", 1)[0].splitlines(), ":")
    return {
        "model": attempt(pick, info, "model name"),
        "count": len(online_cpus(tree)),
        "vendor": attempt(pick, info, "vendor_id"),
    }


def read_memory(tree: Tree) -> Part:
    """Read memory by psutil, which leaves out huge pages, and the load."""
    memory = tree.psutil.virtual_memory()
    fields = pairs(tree.lines("/proc/meminfo"), ":")
    return {
        "total_bytes": memory.total,
        "available_bytes": memory.available,
        "load_1m": float(tree.text("/proc/loadavg").split()[0]),
        "hugepages_total": attempt(lambda: int(fields["HugePages_Total"])),
        "hugepage_kb": attempt(lambda: int(fields["Hugepagesize"].split()[0])),
    }


def numa_nodes(tree: Tree) -> int:
    nodes = tree.matching("/sys/devices/system/node", "node[0-9]*")
    if not nodes:
        raise Unreadable("missing", "/sys/devices/system/node")
    return len(nodes)


_STA_UNSYNC, _STA_NANO = 0x0040, 0x2000  # linux/timex.h
_OFFSET_AT, _STATUS_AT = 8, 40  # of struct timex on 64-bit machines
_TIMESYNC = "/run/systemd/timesync"


def _timex() -> tuple[bool, float]:
    """Return (synchronised, offset in seconds) by adjtimex(2) with nothing to set, which needs no rights."""
    block = ctypes.create_string_buffer(256)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.adjtimex(block) < 0:
        raise Unreadable("failed", "adjtimex: errno {}".format(ctypes.get_errno()))
    (offset,) = struct.unpack_from("<q", block, _OFFSET_AT)
    (status,) = struct.unpack_from("<i", block, _STATUS_AT)
    return not status & _STA_UNSYNC, offset / (1e9 if status & _STA_NANO else 1e6)


def _service(tree: Tree) -> str:
    pid_files: dict[str, list[str]] = KNOWN["system"]["pid_files"]
    for name, files in pid_files.items():
        path = tree.first(*files)
        if path and tree.exists("/proc/{}".format(attempt(tree.number, path))):
            return name
    if tree.exists(_TIMESYNC):
        return "systemd-timesyncd"
    raise Unreadable("missing", "no chronyd, ntpd, ptp4l or systemd-timesyncd")


def read_clock(tree: Tree) -> Part:
    timex = attempt(_timex)
    synchronised, offset = (timex, timex) if is_unreadable(timex) else timex
    service = attempt(_service, tree)
    if service == "chronyd":  # it steers by frequency alone, so the kernel's own offset stays at 0
        offset = attempt(lambda: float(run_tool([tree.tool("chronyc"), "-c", "-n", "tracking"], 3).split(",")[4]))
    return {"synchronised": synchronised, "service": service, "offset_s": offset}


GROUPS = ("render", "video", "docker")
_LIMITS = {"memlock": "Max locked memory", "nofile": "Max open files"}


def parse_table(lines: list[str]) -> list[list[str]]:
    """Return the rows of passwd(5) or group(5)."""
    return [line.split(":") for line in lines if line.count(":") >= 3 and not line.startswith(("#", "+", "-"))]


def parse_limits(lines: list[str]) -> dict[str, str]:
    """Return the soft values of /proc/self/limits by item; memlock in kilobytes."""
    rows = [(item, line, label) for item, label in _LIMITS.items() for line in lines if line.startswith(label)]
    found = {item: line[len(label) :].split()[0] for item, line, label in rows}
    if found.get("memlock", "").isdigit():
        found["memlock"] = str(int(found["memlock"]) // 1024)
    return found


def effective_limits(lines: list[str], user: str, groups: list[str]) -> dict[str, Optional[str]]:
    """Return what lines of limits.conf(5) give a user as soft limits. A line for the user beats a line for a group,
    which beats `*`; of equals the last wins. Root gets only what names root."""
    best: dict[str, tuple[int, Optional[str]]] = dict.fromkeys(_LIMITS, (0, None))
    ranks = {} if user == "root" else {"*": 1, **dict.fromkeys(("@" + group for group in groups), 2)}
    ranks[user] = 3
    for line in lines:
        words = line.split("#", 1)[0].split()
        if len(words) < 4 or words[2] not in best or words[1] not in ("soft", "-") or words[0] not in ranks:
            continue
        domain, value = words[0], words[3]
        if ranks[domain] >= best[words[2]][0]:
            best[words[2]] = (ranks[domain], "unlimited" if value in ("-1", "infinity") else value)
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


def read_account(tree: Tree) -> Part:
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
    return [line for path in paths + tree.conf_files(["/etc/security/limits.d"]) for line in tree.lines(path)]


def read_limits(tree: Tree, account: Part) -> Part:
    running = attempt(lambda: parse_limits(tree.lines("/proc/self/limits")))
    at_boot = attempt(lambda: effective_limits(limits_lines(tree), account["user"], account["groups"]))
    return {
        item: {"running": attempt(pick, running, item), "persisted": attempt(pick, at_boot, item)} for item in _LIMITS
    }
