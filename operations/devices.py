"""The files under /dev that a job opens, and the partitions of the GPUs. A driver that is not loaded is loaded; mode
and group are set now, and at every boot by a udev rule of this project."""

import shlex
from collections.abc import Sequence

from pyinfra.api import QuoteString, StringCommand, operation
from pyinfra.api.arguments_typed import PyinfraOperation
from pyinfra.context import host

from shakedown.facts.files import Access
from shakedown.facts.settings import Contents, Modules, RocmProgram, Tools
from shakedown.node.devices import ACCESS
from shakedown.node.devices import Access as Wanted
from shakedown.operations import atomic
from shakedown.operations.atomic import Step, remember
from shakedown.operations.commands import Commands, module_names, refuse, verify

RULES = "/etc/udev/rules.d/70-shakedown.rules"
PARTITIONS = "/sys/bus/pci/devices/*/current_{kind}_partition"
GPU_USERS = "/sys/class/kfd/kfd/proc/*"


def _operation(setting: str, title: str) -> PyinfraOperation[...]:
    files = ACCESS[setting]

    def present(modules: list[str] | None = None) -> Commands:
        yield from _present(setting, modules or files.modules)

    present.__name__ = present.__qualname__ = setting
    present.__doc__ = f"""
    Have {" and ".join(files.patterns)} there and open to {f"the group {files.group}" if files.group else "everybody"}.

    + modules: what makes them, loaded where it is not; {", ".join(f"``{name}``" for name in files.modules)}

    **Example:**

    .. code:: python

        from shakedown.operations import devices
        devices.{setting}(name="{title}")
    """
    return operation()(present)


kfd = _operation("kfd", "The compute driver's device")
dri = _operation("dri", "The render nodes")
infiniband = _operation("infiniband", "User-space verbs")  # open to everybody, as rdma-core's own rules do


@operation()
def gpu_partition(compute: str | None = None, memory: str | None = None) -> Commands:
    """
    Set the compute and the memory partition of all GPUs. Jobs on them would notice, so it is refused while there are
    any; the memory partition reloads the driver.

    + compute: ``SPX``, ``DPX``, ``QPX`` or ``CPX``
    + memory: ``NPS1``, ``NPS2``, ``NPS4`` or ``NPS8``

    **Example:**

    .. code:: python

        from shakedown.operations import devices
        devices.gpu_partition(name="Whole GPUs", compute="SPX", memory="NPS1")
    """
    # Memory first: it resets the compute partition.
    wanted = {kind: mode for kind, mode in (("memory", memory), ("compute", compute)) if mode is not None}
    before = {kind: _partitions(kind) for kind in wanted}
    blind = [kind for kind, modes in before.items() if not modes]
    wrong = {k: [bdf for bdf, mode in before[k].items() if mode != wanted[k]] for k in wanted}
    if blind:
        yield refuse(f"no GPU of this node reports its {' and '.join(blind)} partition")
        return
    if not any(wrong.values()):
        host.noop(f"all GPUs are {' and '.join(wanted.values())}")
        return
    if users := [path.rpartition("/")[2] for path in host.get_fact(Contents, patterns=[GPU_USERS])]:
        yield refuse(f"the partition is not changed while processes hold GPUs: {', '.join(users)}")
        return
    for kind, mode in wanted.items():
        if wrong[kind]:
            steps = [Step("partition", f"{bdf} {kind}", before[kind][bdf]) for bdf in wrong[kind]]
            yield remember(f"gpu_partition.{kind}", steps)
            # amd-smi asks whether the terms of a driver reload are accepted.
            yield StringCommand(f"echo Y | {amd_smi()} --gpu all --{kind}-partition", QuoteString(mode))

    def left() -> str | None:
        bad = [f"{bdf} is {now}" for k in wanted for bdf, now in _partitions(k).items() if now != wanted[k]]
        return f"amd-smi reported success, but {', '.join(bad)}" if bad else None

    yield verify(left)


def amd_smi() -> str:
    """Return the beginning of a command that sets something. A new mode reloads the driver, which may hang."""
    return f"timeout -k 10 300 {shlex.quote(host.get_fact(RocmProgram, tool='amd-smi'))} set"


def _partitions(kind: str) -> dict[str, str]:
    """PCI address -> mode, of the GPUs that have one."""
    files = host.get_fact(Contents, patterns=[PARTITIONS.format(kind=kind)])
    return {path.split("/")[-2]: lines[0].strip() for path, lines in files.items() if lines}


def _present(setting: str, modules: Sequence[str]) -> Commands:
    files = ACCESS[setting]
    names = module_names(modules)
    here = host.get_fact(Modules, names=names)
    absent = [name for name in names if not here.get(name)]
    if not absent and not _closed(files):
        host.noop(f"{', '.join(files.patterns)}: there, with mode {files.mode}")
        return
    for name in absent:
        yield remember(f"modules.{name}", [Step("module", name, "absent")])
    if absent:
        # A device appears once udev has seen it; its mode is udev's until then.
        yield StringCommand(
            f"PATH=$PATH:/usr/sbin:/sbin; for m in {' '.join(absent)}; do modprobe $m || exit 1; done;",
            "udevadm settle -t 20 2>/dev/null || true",
        )
    if closed := _closed(files):
        yield from _open(setting, files, closed)

    def wrong() -> str | None:
        if not host.get_fact(Access, patterns=list(files.patterns)):
            return f"{', '.join(names)}: loaded, but there is no {' or '.join(files.patterns)}: dmesg may say why"
        bad = _closed(files)
        return f"mode or group did not change: {', '.join(bad)}" if bad else None

    yield verify(wrong)


def _open(setting: str, files: Wanted, closed: dict[str, list[str]]) -> Commands:
    """Set mode and group now, and at every boot. A group that does not exist is created, as by tuning.groups."""
    groups = host.get_fact(Contents, patterns=["/etc/group"]).get("/etc/group") or []
    if files.group and not any(line.startswith(f"{files.group}:") for line in groups):
        yield remember(f"groups.{files.group}", [Step("group", files.group)])
        yield StringCommand("/usr/sbin/groupadd --system --", QuoteString(files.group))
    yield remember(setting, [Step("access", path, " ".join(was)) for path, was in closed.items()])
    paths = [QuoteString(path) for path in closed]
    if files.group:
        yield StringCommand("chgrp", QuoteString(files.group), *paths)
    yield StringCommand("chmod", files.mode, *paths)
    rules = atomic.body(host.get_fact(Contents, patterns=[RULES]).get(RULES))
    group = f'GROUP="{files.group}", ' if files.group else ""
    made = [f'KERNEL=="{name}", {group}MODE="{files.mode}"' for name in files.kernel_names]
    lines = [*rules, *(rule for rule in made if rule not in rules)]
    if lines != rules:
        yield atomic.write(RULES, [atomic.HEADER, *lines])
        if udevadm := host.get_fact(Tools, names=["udevadm"]).get("udevadm"):
            yield StringCommand(f"{udevadm} control --reload || true")  # no udevd in a container


def _closed(files: Wanted) -> dict[str, list[str]]:
    """Return the files with less than the mode wanted, or of another group: path -> mode, group."""
    least = int(files.mode, 8)
    access = host.get_fact(Access, patterns=list(files.patterns))
    return {
        path: [mode, group]
        for path, (mode, group) in access.items()
        if int(mode, 8) & least != least or (files.group and group != files.group)
    }
