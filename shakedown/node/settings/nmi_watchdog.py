"""The kernel's detector of hard lockups (NMI watchdog)."""

from __future__ import annotations

from ..setting import SysctlSetting, setting


@setting
class NmiWatchdog(SysctlSetting):
    name = "nmi_watchdog"
    doc = "Whether the kernel interrupts every CPU at intervals to detect hard lockups (NMI watchdog)"
    source = "Linux, Documentation/admin-guide/sysctl/kernel.rst; kernel-parameters.txt has its nmi_watchdog="
    switch = True
    values = "0|1"
    remedy = "switch the NMI watchdog {}"
    sysctl = "kernel.nmi_watchdog"
    parameter = "nmi_watchdog"
    parameter_values = tuple(
        (before + number, number) for before in ("", "panic,", "nopanic,") for number in ("0", "1")
    )
    evidence = "/proc/sys/kernel/nmi_watchdog, sysctl.d"
    absent = "0"  # a kernel without the detector has nothing to switch off
