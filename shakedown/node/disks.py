"""Mounted file systems that hold files, with the room on them; and the node's drives with their health, from `nvme
smart-log` (nvme-cli) and `smartctl -x` (smartmontools) in JSON. Numbers alone leave this module, by the names that
`checks/drives.json` judges. The exit status of smartctl is a set of bits (smartctl(8), EXIT STATUS)."""

from __future__ import annotations

import json
import os
from typing import Any, Dict, Iterator, List, Optional, Tuple

import psutil

from . import pci
from .children import alone, answers, run_here, start
from .known import KNOWN
from .tree import Part, Tree, Unreadable, attempt, attempt_or, is_unreadable
from .udev import devices

# Whatever is not answered from the kernel's own memory or disks ("local") may be a server's, and is not waited for. The
# kernel's own hold no user's files.
_DISKS = KNOWN["disks"]
_WHEN_NEEDED = "autofs"
_SECONDS = 2.0


def mounts(tree: Tree) -> Dict[str, Tuple[str, str]]:
    """Map mount points that hold files to device and type. What was mounted later on the same point covers the rest."""
    table = {
        partition.mountpoint: (partition.device, partition.fstype)
        for partition in tree.psutil.disk_partitions(all=True)
    }
    return {mount: (device, kind) for mount, (device, kind) in sorted(table.items()) if kind not in _DISKS["kernel"]}


def room(path: str) -> Optional[Tuple[int, int]]:
    """Return (total, free to an ordinary user), bytes. None where no file system of its own is: another mount covers
    it, or it is a folder that is mounted a second time within its own file system."""
    if not os.path.ismount(path):
        return None
    usage = psutil.disk_usage(path)
    return usage.total, usage.free


def read(tree: Tree) -> List[Part]:
    """Return one part per file system. A child of its own asks what may be a server's, with what is mounted below it: a
    server that is gone blocks the asking process in the kernel, and no second one is started beside it."""
    table = mounts(tree)
    waits = [mount for mount, (_, kind) in table.items() if kind not in _DISKS["local"] and kind != _WHEN_NEEDED]
    readings = [
        {mount: ("statvfs " + mount, _SECONDS, alone, ("statvfs " + mount, room, tree.path(mount)))}
        for mount, (_, kind) in table.items()
        if kind != _WHEN_NEEDED and any((mount + "/").startswith(above.rstrip("/") + "/") for above in waits)
    ]
    found = answers(start(readings))
    for mount, (_, kind) in table.items():
        if kind == _WHEN_NEEDED:  # asking would mount it
            words = mount + " is mounted on demand and is not mounted now"
            found[mount] = Unreadable("missing", words).as_part()
        elif mount not in found:
            found[mount] = attempt(tree.ask, "statvfs " + mount, room, mount)
    return [_part(mount, *table[mount], found[mount]) for mount in table if found[mount] is not None]


def _part(mount: str, device: str, kind: str, answer: Any) -> Part:
    total, free = (answer, answer) if is_unreadable(answer) else answer
    return {
        "mount": mount,
        "device": device,
        "fstype": kind,
        "total_bytes": total,
        "free_bytes": free,
        "network": kind in _DISKS["network"],
    }


def controllers(tree: Tree) -> List[Part]:
    return [
        {
            "name": device.name,
            "bdf": device.parent if pci.is_bdf(device.parent) else None,
            "model": attempt(tree.text, device.path + "/model"),
            "serial": attempt(tree.text, device.path + "/serial"),
            "firmware": attempt(tree.text, device.path + "/firmware_rev"),
        }
        for device in devices(tree, "nvme")
    ]


_HEALTH_SECONDS = 10.0
_MOST = 128  # drives, and attributes of one
_OPEN_FAILED = 0x03  # bits of smartctl's exit status: command line, device
_LOG = "nvme_smart_health_information_log"


def whole_number(value: Any) -> int:
    """Return a number as programs print it: 7, 7.0, "7", "1,024"; nvme-cli 2 gives the flags of a warning a value."""
    if isinstance(value, dict):
        value = value["value"]
    return int(value.replace(",", ""), 0) if isinstance(value, str) else int(value)


def parse_nvme(document: Part) -> Dict[str, int]:
    """Return the readings of an NVMe drive's health log. Raises KeyError where one is absent."""
    found = {}
    for name, keys in _DISKS["nvme"].items():
        key = next((key for key in keys if key in document), keys[0])
        found[name] = whole_number(document[key])
    return found


def parse_smartctl(document: Part) -> Dict[str, int]:
    """Return the readings of any drive that smartctl knows. Raises Unreadable with its own words for another."""
    status = whole_number(document["smartctl"]["exit_status"])
    words = "; ".join(str(message["string"]) for message in document["smartctl"].get("messages", []))
    if status & _OPEN_FAILED:
        reason = "not permitted" if "ermission denied" in words else "failed"
        raise Unreadable(reason, "smartctl: " + (words or "exit status {}".format(status)))
    found = {"exit_status": status}
    if _LOG in document:
        found.update(parse_nvme(document[_LOG]))
    if "passed" in document.get("smart_status", {}):
        found["failing"] = int(not document["smart_status"]["passed"])
    for row in document.get("ata_smart_attributes", {}).get("table", [])[:_MOST]:
        found["attribute_{}".format(whole_number(row["id"]))] = whole_number(row["raw"]["value"])
    if "scsi_grown_defect_list" in document:
        found["grown_defects"] = whole_number(document["scsi_grown_defect_list"])
    counts = [log["total_uncorrected_errors"] for log in document.get("scsi_error_counter_log", {}).values()]
    if counts:
        found["uncorrected_errors"] = sum(map(whole_number, counts))
    scsi = document.get("scsi_percentage_used_endurance_indicator")
    used = document.get("endurance_used", {}).get("current_percent", scsi)
    if used is not None:
        found.setdefault("percentage_used", whole_number(used))
    if "failing" not in found and "critical_warning" not in found:
        raise Unreadable("missing", "smartctl: no overall health in its answer" + (": " + words if words else ""))
    return found


def _health(tree: Tree, path: str, nvme: bool) -> Dict[str, int]:
    """Return the readings of one drive, by the program that is there."""
    tools = [("nvme", ["smart-log", "-o", "json", path])] if nvme else []
    tools.append(("smartctl", ["--json=c", "-x", path]))
    for name, arguments in tools:
        tool = attempt_or("", tree.tool, name)
        if tool:
            return _run(name, [tool, *arguments])
    words = "nvme and smartctl are not installed" if nvme else "smartctl is not installed"
    raise Unreadable("missing", words)


def _run(name: str, argv: List[str]) -> Dict[str, int]:
    done = run_here(argv, close_fds=False)
    try:
        document = json.loads(done["output"])
    except ValueError:
        words = (done["error"].strip() or done["output"].strip() or "no output").splitlines()[0]
        reason = "not permitted" if "ermission denied" in words else "failed"
        raise Unreadable(reason, "{}: exit {}: {}".format(name, done["code"], words)) from None
    if name == "smartctl":
        return parse_smartctl(document)
    if done["code"] != 0:
        raise Unreadable("failed", "nvme: exit {}: {}".format(done["code"], str(document)[:200]))
    return parse_nvme(document)


def _drives(tree: Tree) -> Iterator[Part]:
    """Yield each drive; one of the kind `virtual` has no health of its own."""
    for part in controllers(tree):
        own = part["bdf"] is not None and not _is_virtual(str(part["model"]))
        kept = {key: part[key] for key in ("name", "model", "serial")}
        yield dict(kept, kind="nvme" if own else "virtual")
    for name in tree.names("/sys/block"):
        folder = "/sys/block/{}/device".format(name)
        if name.startswith(("nvme", "sr", "fd", "mmcblk")) or not tree.exists(folder):
            continue
        model = attempt(lambda at: tree.text(at + "/vendor") + " " + tree.text(at + "/model"), folder)
        own = tree.link_name(folder + "/subsystem") not in _DISKS["virtual_drivers"] and not _is_virtual(str(model))
        # Vital product data, page 0x80: the number stands behind four bytes.
        serial = attempt(lambda at: tree.raw(at, 256)[4:].decode("ascii", "replace").strip("\0 "), folder + "/vpd_pg80")
        yield {"name": name, "kind": "disk" if own else "virtual", "model": model, "serial": serial}


def _is_virtual(model: str) -> bool:
    return any(word in model.lower() for word in _DISKS["virtual_models"])


def read_drives(tree: Tree) -> List[Part]:
    """Return one part for each drive. Each has a child of its own: a drive that hangs costs its own health."""
    found = list(_drives(tree))[:_MOST]
    children = []
    for name, kind in ((part["name"], part["kind"]) for part in found if part["kind"] != "virtual"):
        what = "health of /dev/" + name
        reading = (what, _health, tree, "/dev/" + name, kind == "nvme")
        children.append({name: (what, _HEALTH_SECONDS, alone, reading)})
    health = answers(start(children))
    none = Unreadable("missing", "a virtual disk has no health of its own").as_part()
    return [dict(part, health=health.get(part["name"], none)) for part in found]
