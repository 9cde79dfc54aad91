"""`python3 -m shakedown.node [--root DIR] [--digest HEX] [--seconds N] [--ask "NAME..."]`: print this node's state as
one JSON document.

`--seconds` shortens the time limit of every reading that waits for a device, a daemon or a file server. `--ask` names
what is to be read besides what always is (`question.py`).
"""

from __future__ import annotations

import os
import resource
import sys
import time

from . import (
    account,
    bootunit,
    clock,
    cmdline,
    containers,
    cpu,
    devices,
    disks,
    gpu,
    interfaces,
    kernel_log,
    kfd,
    listening,
    memory,
    modules,
    pci,
    question,
    rdma,
    smi,
    software,
    sysctl,
    system,
    verbs,
)
from .children import Child, Inline, Together, gather
from .next_boot import NextBoot
from .plain_json import written
from .settings import SETTINGS
from .tree import Part, Tree, attempt, is_unreadable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Sequence

SCHEMA_VERSION = 1


def _settings(tree: Tree, boot: NextBoot, waits: bool) -> Part:
    """The settings that a node has once, by name: those whose reading may wait for a device, or the others."""
    chosen = [each for each in SETTINGS.values() if not each.details and each.waits == waits]
    return {each.name: each.part(tree, boot) for each in chosen}


def _place(state: Part, settings: Part) -> None:
    """Put each where it stands in the document."""
    for name, part in settings.items():
        *above, last = (SETTINGS[name].place or "settings." + name).split(".")
        at = state
        for key in above:
            at = at.setdefault(key, {})
        at[last] = part


def _pci(tree: Tree, boot: NextBoot) -> list[Any]:
    return [attempt(gpu.read, tree), _settings(tree, boot, waits=True)]


def _start(
    tree: Tree, boot: NextBoot, unit: Part, most: float, whole: bool
) -> tuple[dict[str, Child | Inline], Together]:
    """Everything that may wait for a device, a daemon or a file server, in children: what takes long by itself in one
    of its own, what is quick unless it hangs together. Where there is no such thing the reading has nothing to wait
    for, and no child is paid for."""

    def start(waits: bool, what: str, seconds: float, function: Callable[..., Any], *arguments: Any) -> Child | Inline:
        if waits:
            return Child(what, min(seconds, most), function, tree, *arguments)
        return Inline(function, tree, *arguments)

    library = attempt(smi.library_path, tree)
    has_devices = any(tree.exists("/dev/" + name) for name in ("kfd", "dri", "infiniband"))
    # Which may wait, what it is, seconds, how it is read.
    quick: dict[str, Any] = {
        "pci": (pci.may_wait(tree), "PCI devices", 8, _pci, tree, boot),
        "rdma": (bool(tree.names(rdma.CLASS)), "RDMA devices", 8, rdma.read, tree, whole),
        "interfaces": (interfaces.may_wait(tree), "network interfaces", 8, interfaces.read, tree, unit, whole),
        "devices": (has_devices, "device files", 5, devices.read, tree),
    }
    waiting = {
        name: (what, min(seconds, most), function, *arguments)
        for name, (waits, what, seconds, function, *arguments) in quick.items()
        if waits
    }
    alone = {
        "smi": start(not is_unreadable(library), "amdsmi", 15, smi.read, library),
        "containers": start(containers.is_there(tree), "container engine", 15, containers.read),
        "disks": start(disks.may_wait(tree), "disks", 5, disks.read),  # of file servers, which hang more often
        "clock": start(False, "clock", 5, clock.read),
        **{name: Inline(*reading[3:]) for name, reading in quick.items() if name not in waiting},
    }
    return alone, Together(min(8, most), waiting)


def _read_here(tree: Tree, boot: NextBoot, about: Part, line: Part, unit: Part, keys: list[str]) -> Part:
    """What comes from the kernel's memory and small files. `keys`: of sysctl, besides those that are always read."""
    person = account.read(tree)
    log, log_counters = kernel_log.read(tree)
    state = {
        "system": about,
        "cmdline": line,
        "cpu": cpu.read(tree),
        "numa": memory.read_numa(tree),
        "memory": memory.read(tree),
        "sysctl": sysctl.read(tree, boot, keys),
        "settings": {},
        "limits": account.read_limits(tree, person),
        "account": person,
        "modules": modules.read(tree, about["kernel"], line),
        "kfd": kfd.read(tree),
        "rocm_version": attempt(kfd.rocm_version, tree),
        "software": software.read(tree),
        "routes": attempt(interfaces.read_routes, tree),
        "verbs": verbs.read(tree),
        "kernel_log": log,
        "boot_unit": unit,
        "counters": log_counters,
    }
    _place(state, _settings(tree, boot, waits=False))
    return state


def _each(answer: Any, *fields: str) -> Part:
    """The part of a child, or its reason in every field."""
    return dict.fromkeys(fields, answer) if is_unreadable(answer) else answer


def _collect(tree: Tree, state: Part, children: dict[str, Child | Inline], together: Together) -> None:
    apart = [child for child in children.values() if isinstance(child, Child)]
    gather([*apart, *([together.child] if together.child else [])])
    children = dict(children, **together.apart())
    answers = {name: attempt(child.value) for name, child in children.items()}
    state["containers"] = _each(answers["containers"], "engine", "version", "root", "images", "running")
    state["disks"] = answers["disks"]
    state["devices"] = _each(answers["devices"], "kfd", "kfd_major", "dri", "infiniband")
    state["clock"] = _each(answers["clock"], "synchronised", "service", "offset_s")

    library, functions = answers["smi"], answers["pci"]
    waiting = [each.name for each in SETTINGS.values() if each.waits]
    gpus, settings = (functions, dict.fromkeys(waiting, functions)) if is_unreadable(functions) else functions
    _place(state, settings)
    state["gpus"] = gpu.merge(tree, gpus, library)
    state["gpu_tool"] = library if is_unreadable(library) else library["version"]
    state["counters"].update(gpu.counters(state["gpus"]))

    for name, counters in (("rdma", "rdma/*"), ("interfaces", "ethtool/*")):
        answer = answers[name]
        state[name], found = (answer, {counters: answer}) if is_unreadable(answer) else answer
        state["counters"].update(found)


def node_state(tree: Tree, digest: str = "", most: float = 60, asked: Sequence[str] = (), whole: bool = True) -> Part:
    """The whole document. `asked`: what else the desired state is about, as `question.py` has it. `whole`: with what
    only plans and jobs need, and no check: the error counters, and who listens."""
    began = time.monotonic()
    about, unit = system.read(tree), bootunit.read(tree)
    line = cmdline.read(tree, about["family"], about["kernel"])
    boot = NextBoot(tree, unit, line["persisted"], about["service_manager"] == "systemd")
    # Before the children: those that try whether /dev/kfd can be opened are processes of the GPUs, too, for as long
    # as the driver takes to forget them.
    processes = attempt(kfd.read_processes, tree)
    children, together = _start(tree, boot, unit, most, whole)
    state = _read_here(tree, boot, about, line, unit, question.sysctl_keys(asked))
    state["gpu_processes"] = processes
    _collect(tree, state, children, together)
    if whole:
        state["listening"] = attempt(listening.read, tree)
    else:
        del state["counters"]  # the rest of them: whoever asked for one would take it for all
    spent = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    probe = {
        "version": digest,
        "python": "{}.{}.{}".format(*sys.version_info[:3]),
        "user": state["account"]["user"],
        "uid": os.geteuid(),
        "wall_s": round(time.monotonic() - began, 4),
        "cpu_s": round(sum(usage.ru_utime + usage.ru_stime for usage in spent), 4),
    }
    return dict({"schema_version": SCHEMA_VERSION, "probe": probe}, **state)


def main(arguments: list[str]) -> None:
    options = dict(zip(arguments[::2], arguments[1::2]))
    tree = Tree(options.get("--root", "/"))
    asked = options.get("--ask", "").split()
    document = node_state(tree, options.get("--digest", ""), float(options.get("--seconds", 60)), asked)
    sys.stdout.write(written(document) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
