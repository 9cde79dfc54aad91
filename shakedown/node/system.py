"""The operating system and the machine: /etc/os-release, uname, DMI, processors, memory, NUMA."""

from __future__ import annotations

import os
import time

from .setting import online_cpus
from .tree import Part, Tree, Unreadable, attempt, attempt_or, is_unreadable, pick

_FAMILIES = {"debian": {"debian", "ubuntu"}, "rhel": {"rhel", "centos", "fedora", "rocky", "almalinux", "ol", "amzn"}}


def parse_os_release(lines: list[str]) -> dict[str, str]:
    """Return the KEY=value pairs of os-release(5), quotes taken off."""
    pairs = (line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))
    return {key.strip(): value.strip().strip("\"'") for key, value in pairs}


def family_of(release: dict[str, str]) -> str:
    """Return "debian", "rhel" or "other", by ID and ID_LIKE."""
    names = {release.get("ID", ""), *release.get("ID_LIKE", "").split()}
    return next((family for family, members in _FAMILIES.items() if names & members), "other")


def service_manager(tree: Tree) -> str:
    return "systemd" if tree.exists("/run/systemd/system") else "other"


def read(tree: Tree) -> Part:
    nodename, kernel, arch, now, monotonic = tree.ask("machine", _machine)
    release = attempt(lambda: parse_os_release(tree.lines(tree.first("/etc/os-release") or "/usr/lib/os-release")))
    return {
        "hostname": attempt_or("", tree.text, "/proc/sys/kernel/hostname") or nodename,
        "boot_id": attempt(tree.text, "/proc/sys/kernel/random/boot_id"),
        "taken_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now)),
        "epoch_s": now,
        "monotonic_s": monotonic,
        "os_id": attempt(pick, release, "ID"),
        "os_version": release if is_unreadable(release) else release.get("VERSION_ID", release.get("BUILD_ID", "")),
        "os_name": attempt(pick, release, "PRETTY_NAME"),
        "family": family_of({} if is_unreadable(release) else release),
        "kernel": attempt_or("", tree.text, "/proc/sys/kernel/osrelease") or kernel,
        "arch": arch,
        "bios_version": attempt(tree.text, "/sys/class/dmi/id/bios_version"),
        "product": attempt(tree.text, "/sys/class/dmi/id/product_name"),
        "board_serial": attempt(tree.text, "/sys/class/dmi/id/board_serial"),
        "machine_id": attempt(tree.text, "/etc/machine-id"),
        "host_key": attempt(_host_key, tree),
        "service_manager": service_manager(tree),
    }


def _machine() -> tuple[str, str, str, float, float]:
    names = os.uname()
    return names.nodename, names.release, names.machine, time.time(), time.monotonic()


def _host_key(tree: Tree) -> str:
    """Return the public key of sshd that a client is offered first: type and key, without the comment."""
    paths = ["/etc/ssh/ssh_host_{}_key.pub".format(kind) for kind in ("ed25519", "ecdsa", "rsa")]
    return " ".join(tree.text(tree.first(*paths) or paths[0]).split()[:2])


def parse_cpuinfo(text: str) -> dict[str, str]:
    """Return the fields of the first processor."""
    pairs = (line.split(":", 1) for line in text.split("\n\n", 1)[0].splitlines() if ":" in line)
    return {key.strip(): value.strip() for key, value in pairs}


def read_cpu(tree: Tree) -> Part:
    # Only the beginning: the kernel writes this file processor by processor, and a rack's node has hundreds.
    info = attempt(lambda: parse_cpuinfo(tree.raw("/proc/cpuinfo", 4096).decode("utf-8", "replace")))
    return {
        "model": attempt(pick, info, "model name"),
        "count": len(online_cpus(tree)),
        "vendor": attempt(pick, info, "vendor_id"),
    }


def read_memory(tree: Tree) -> Part:
    """Read memory by psutil, which leaves out huge pages, and the load."""
    memory = tree.psutil.virtual_memory()
    huge = dict(line.split(":", 1) for line in tree.lines("/proc/meminfo") if line.startswith("Huge"))
    return {
        "total_bytes": memory.total,
        "available_bytes": memory.available,
        "load_1m": float(tree.text("/proc/loadavg").split()[0]),
        "hugepages_total": attempt(lambda: int(huge["HugePages_Total"])),
        "hugepage_kb": attempt(lambda: int(huge["Hugepagesize"].split()[0])),
    }


def numa_nodes(tree: Tree) -> int:
    nodes = tree.matching("/sys/devices/system/node", "node[0-9]*")
    if not nodes:
        raise Unreadable("missing", "/sys/devices/system/node")
    return len(nodes)
