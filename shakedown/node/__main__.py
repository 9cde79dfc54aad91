"""`python3 -m shakedown.node [--root DIR] [--digest HEX] [--seconds N] [--ask "NAME..."] [--replay yes]`: print this
node's state as one JSON document.

`--seconds` shortens the time limit of every reading that waits for a device, a daemon or a file server. `--ask` names
what is to be read besides what always is (`sysctl.py`), with `record` that the answers come, too, and with
`sign:NONCE:KIND` that a signature goes before the document. `--replay` takes such answers on standard input and reads
nothing of this machine.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from typing import Any, Sequence

from . import boot, children, cmdline, devices, disks, gpu, interfaces, rdma, sign, smi, software, sysctl, system
from .book import RECORD, Book
from .children import Readings
from .kernel_log import read as read_kernel_log
from .setting import SETTINGS
from .smi import READINGS as HEALTH
from .sysctl import NextBoot
from .tree import Part, Tree, attempt, is_unreadable

SCHEMA_VERSION = 1


def _settings(tree: Tree, boot: NextBoot, waits: bool) -> Part:
    """Read the settings that a node has once, by name: those whose reading may wait for a device, or the others."""
    chosen = [setting for setting in SETTINGS.values() if not setting.details and setting.waits == waits]
    return {setting.name: setting.part(tree, boot) for setting in chosen}


def _place(state: Part, settings: Part) -> None:
    for name, part in settings.items():
        section, key = (SETTINGS[name].place or "settings." + name).split(".")
        state.setdefault(section, {})[key] = part


def _waiting(tree: Tree, boot: NextBoot, unit: Part, whole: bool, library: Any) -> list[Readings]:
    """Group what may wait for a device or a daemon: quick readings share a child, slow ones have their own."""
    devices_: Readings = {
        "pci": ("PCI devices", 8, lambda: [attempt(gpu.read, tree), _settings(tree, boot, waits=True)], ()),
        "rdma": ("RDMA devices", 8, rdma.read, (tree, whole)),
        "interfaces": ("network interfaces", 8, interfaces.read, (tree, unit, whole)),
        "devices": ("device files", 5, devices.read, (tree,)),
        "nvme": ("NVMe controllers", 5, disks.controllers, (tree,)),
    }
    groups = [devices_]
    if not is_unreadable(library):
        readings: Readings = {
            name: ("amdsmi, " + name, 15, tree.ask, ("amdsmi " + name, smi.read_health, tree, library, name))
            for name in HEALTH
        }
        groups.append(dict({"smi": ("amdsmi", 15, tree.ask, ("amdsmi", smi.read, tree, library))}, **readings))
    if software.has_engine(tree):
        groups.append(
            {"containers": ("container engine", 15, tree.ask, ("containers", software.read_containers, tree))}
        )
    return groups


def _read_here(tree: Tree, boot: NextBoot, about: Part, line: Part, unit: Part, keys: list[str]) -> Part:
    """Read what comes from the kernel's memory and small files. `keys`: of sysctl, besides the usual ones."""
    person = system.read_account(tree)
    state = {
        "system": about,
        "cmdline": line,
        "cpu": system.read_cpu(tree),
        "numa": {"nodes": attempt(system.numa_nodes, tree)},
        "memory": tree.ask("memory", system.read_memory, tree),
        "sysctl": sysctl.read(tree, boot, keys),
        "settings": {},
        "limits": system.read_limits(tree, person),
        "account": person,
        "modules": cmdline.read_modules(tree, about["kernel"], line),
        "kfd": gpu.read_kfd(tree),
        "rocm_version": attempt(gpu.rocm_version, tree),
        "rocm_file": attempt(gpu.rocm_file, tree),
        "software": software.read(tree),
        "disks": attempt(tree.ask, "disks", disks.read, tree),
        "clock": _each(attempt(tree.ask, "clock", system.read_clock, tree), "synchronised", "service", "offset_s"),
        "routes": attempt(tree.ask, "routes", interfaces.read_routes, tree),
        "verbs": software.read_verbs(tree),
        "kernel_log": tree.ask("kernel log", read_kernel_log, tree),
        "boot_unit": unit,
        "counters": {},
    }
    _place(state, _settings(tree, boot, waits=False))
    return state


def _each(answer: Any, *fields: str) -> Part:
    """Return a child's answer, or the reason why there is none, in every field."""
    return dict.fromkeys(fields, answer) if is_unreadable(answer) else answer


def _collect(tree: Tree, state: Part, answers: dict[str, Any]) -> None:
    state["containers"] = _each(answers["containers"], "engine", "version", "root", "images", "running")
    state["nvme"] = answers["nvme"]
    state["devices"] = _each(answers["devices"], "kfd", "kfd_major", "dri", "infiniband")

    library, functions = answers["smi"], answers["pci"]
    waiting = [setting.name for setting in SETTINGS.values() if setting.waits]
    gpus, settings = (functions, dict.fromkeys(waiting, functions)) if is_unreadable(functions) else functions
    _place(state, settings)
    state["gpus"] = gpu.merge(gpus, library, {name: answers.get(name, library) for name in HEALTH})
    state["gpu_tool"] = library if is_unreadable(library) else library["version"]
    state["counters"].update(gpu.counters(state["gpus"]))

    for name, counters in (("rdma", "rdma/*"), ("interfaces", "ethtool/*")):
        answer = answers[name]
        state[name], found = (answer, {counters: answer}) if is_unreadable(answer) else answer
        state["counters"].update(found)


def node_state(tree: Tree, digest: str = "", requested: Sequence[str] = (), whole: bool = True) -> Part:
    """Read the whole document. `requested`: names that the desired state adds, as `sysctl.py` has them. `whole`:
    include what only plans and jobs need: the error counters, and who listens."""
    began = time.monotonic()
    about, unit = system.read(tree), boot.read(tree)
    line = cmdline.read(tree, about["family"], about["kernel"])
    next_boot = NextBoot(tree, unit, line["persisted"], about["service_manager"] == "systemd")
    # Before the children: those that try whether /dev/kfd can be opened are processes of the GPUs, too, for as long
    # as the driver takes to forget them.
    processes = attempt(gpu.read_processes, tree)
    library = attempt(smi.library_path, tree)
    groups = _waiting(tree, next_boot, unit, whole, library)
    started = children.start(groups if Tree.book is None else Tree.book.again(groups))
    state = _read_here(tree, next_boot, about, line, unit, sysctl.requested_keys(requested))
    state["gpu_processes"] = processes
    if sysctl.DRIVES in requested:
        state["drives"] = attempt(tree.ask, "drives", disks.read_drives, tree)
    if sysctl.NEIGHBOURS in requested:
        state["neighbours"] = attempt(tree.ask, "neighbours", interfaces.read_neighbours, tree)
    found = children.answers(started)
    if Tree.book is not None:
        Tree.book.keep(found)
    if "containers" not in found:
        found["containers"] = attempt(tree.ask, "containers", software.read_containers, tree)
    _collect(tree, state, dict({"smi": library}, **found))
    if whole:
        state["listening"] = attempt(tree.ask, "listening", interfaces.read_listening, tree)
    else:
        del state["counters"]  # the rest of them: a caller would take the rest for all
    spent = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    probe = {
        "version": digest,
        "python": "{}.{}.{}".format(*sys.version_info[:3]),
        "user": state["account"]["user"],
        "uid": tree.ask("uid", os.geteuid),
        "wall_s": round(time.monotonic() - began, 4),
        "cpu_s": round(sum(usage.ru_utime + usage.ru_stime for usage in spent), 4),
    }
    return dict({"schema_version": SCHEMA_VERSION, "probe": probe}, **state)


def main(arguments: list[str]) -> None:
    options = dict(zip(arguments[::2], arguments[1::2]))
    tree = Tree(options.get("--root", "/"))
    requested = options.get("--ask", "").split()
    if "--replay" in options:
        for limit, most in ((resource.RLIMIT_AS, 2 << 30), (resource.RLIMIT_CPU, 60), (resource.RLIMIT_FSIZE, 0)):
            resource.setrlimit(limit, (most, most))
        Tree.book = Book(json.load(sys.stdin))
    elif RECORD in requested:
        Tree.book = Book()
    children.MOST = float(options.get("--seconds", children.MOST))
    document = node_state(tree, options.get("--digest", ""), requested)
    if RECORD in requested:
        document = {"state": document, "answers": Tree.book.taken}
    text = json.dumps(document, separators=(",", ":"))
    question = sign.wanted(requested)
    if question and RECORD not in requested:
        sys.stdout.write(sign.line(tree, question[0], question[-1], document, text) + "\n")
    sys.stdout.write(text + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
