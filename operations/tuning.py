"""
Host settings of a training node: kernel settings, limits, groups, modules. Each is changed now and kept across a
reboot; what stood there before is recorded for rollback.
"""

from __future__ import annotations

from pyinfra.api.command import QuoteString, StringCommand
from pyinfra.api.operation import operation
from pyinfra.context import host

from facts.settings import Contents
from operations import atomic, sysctl_files
from operations.commands import Commands, verify
from operations.record import Step, remember

NUMA_BALANCING = "kernel.numa_balancing"


@operation()
def numa_balancing(enabled: bool = False) -> Commands:
    """
    Switch automatic NUMA balancing on or off, now and at every boot.

    + enabled: whether the kernel may move pages between NUMA nodes; training wants it off

    A kernel without NUMA balancing has nothing to switch off.

    **Example:**

    .. code:: python

        from operations import tuning
        tuning.numa_balancing(
            name="No automatic NUMA balancing",
            enabled=False,
        )
    """
    yield from _set_sysctl("numa_balancing", NUMA_BALANCING, str(int(enabled)), may_be_absent=not enabled)


@operation()
def sysctl(key: str, value: str | int) -> Commands:
    """
    Set one kernel setting, now and at every boot.

    + key: name of the setting, as sysctl(8) spells it
    + value: its value; several numbers are separated by one space

    **Example:**

    .. code:: python

        from operations import tuning
        tuning.sysctl(
            name="Answer ARP by interface",
            key="net.ipv4.conf.all.arp_ignore",
            value=2,
        )
    """
    yield from _set_sysctl(f"sysctl.{key}", key, " ".join(str(value).split()), may_be_absent=False)


def _set_sysctl(setting: str, key: str, wanted: str, may_be_absent: bool) -> Commands:
    path = sysctl_files.proc_path(key)
    patterns = [path, *sysctl_files.PATTERNS]
    files = host.get_fact(Contents, patterns=patterns)
    running = _running(files, path)
    if running is None and may_be_absent:
        host.noop(f"this kernel has no {key}")
        return
    ours = atomic.body(files.get(sysctl_files.OURS))
    kept, _ = sysctl_files.at_boot(files, key)
    if running == kept == wanted:
        host.noop(f"{key} is {wanted}, now and at boot")
        return

    yield remember(setting, [] if running is None else [Step("file", path, running)])
    if kept != wanted:
        others = [line for line in ours if line.partition("=")[0].strip() != key]
        yield atomic.write(sysctl_files.OURS, [atomic.HEADER, *others, f"{key} = {wanted}"])
    if running != wanted:
        yield StringCommand("echo", QuoteString(wanted), ">", QuoteString(path))

    def wrong() -> str | None:
        now = host.get_fact(Contents, patterns=patterns)
        if _running(now, path) != wanted:
            return f"{path} is {_running(now, path)} after writing {wanted}"
        at_boot, named_by = sysctl_files.at_boot(now, key)
        return None if at_boot == wanted else f"{key} will be {at_boot} at boot, not {wanted}: {named_by} says so"

    yield verify(wrong)


def _running(files: sysctl_files.Files, path: str) -> str | None:
    lines = files.get(path)
    return " ".join(lines[0].split()) if lines else None
