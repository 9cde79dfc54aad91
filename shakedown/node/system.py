"""The operating system, the machine, its clock's reading: /etc/os-release, uname, DMI."""

from __future__ import annotations

import os
import time

from .tree import Part, Tree, attempt, is_unreadable, pick

_FAMILIES = {
    "debian": {"debian", "ubuntu"},
    "rhel": {"rhel", "centos", "fedora", "rocky", "almalinux", "ol", "amzn"},
}


def parse_os_release(lines: list[str]) -> dict[str, str]:
    """KEY=value pairs of os-release(5), quotes taken off."""
    pairs = (line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))
    return {key.strip(): value.strip().strip("\"'") for key, value in pairs}


def family_of(release: dict[str, str]) -> str:
    """ "debian", "rhel" or "other", by ID and ID_LIKE."""
    names = {release.get("ID", ""), *release.get("ID_LIKE", "").split()}
    return next((family for family, members in _FAMILIES.items() if names & members), "other")


def service_manager(tree: Tree) -> str:
    return "systemd" if tree.exists("/run/systemd/system") else "other"


def read(tree: Tree) -> Part:
    names = os.uname()
    now = time.time()
    release = attempt(lambda: parse_os_release(tree.lines(tree.first("/etc/os-release") or "/usr/lib/os-release")))
    return {
        "hostname": attempt_text(tree, "/proc/sys/kernel/hostname") or names.nodename,
        "boot_id": attempt(tree.text, "/proc/sys/kernel/random/boot_id"),
        "taken_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now)),
        "epoch_s": now,
        "os_id": attempt(pick, release, "ID"),
        "os_version": release if is_unreadable(release) else release.get("VERSION_ID", release.get("BUILD_ID", "")),
        "os_name": attempt(pick, release, "PRETTY_NAME"),
        "family": family_of({} if is_unreadable(release) else release),
        "kernel": attempt_text(tree, "/proc/sys/kernel/osrelease") or names.release,
        "arch": names.machine,
        "bios_version": attempt(tree.text, "/sys/class/dmi/id/bios_version"),
        "product": attempt(tree.text, "/sys/class/dmi/id/product_name"),
        "board_serial": attempt(tree.text, "/sys/class/dmi/id/board_serial"),
        "service_manager": service_manager(tree),
    }


def attempt_text(tree: Tree, path: str) -> str:
    value = attempt(tree.text, path)
    return value if isinstance(value, str) else ""
