"""Automatic NUMA balancing."""

from __future__ import annotations

from ..setting import SysctlSetting, setting


@setting
class NumaBalancing(SysctlSetting):
    name = "numa_balancing"
    doc = "Whether the kernel moves pages between NUMA nodes by itself"
    source = "Linux, Documentation/admin-guide/sysctl/kernel.rst; ROCm's system optimization guides want it off"
    document = "system-optimization"
    switch = True
    values = "0|1"
    remedy = "switch automatic NUMA balancing {}"
    sysctl = "kernel.numa_balancing"
    parameter = "numa_balancing"
    parameter_values = (("disable", "0"), ("enable", "1"))
    evidence = "/proc/sys/kernel/numa_balancing, sysctl.d"
    place = "numa.balancing"
    absent = "0"  # a kernel without it has nothing to switch off
