"""Settings of the host."""

from typing import Literal

from shakedown.desired.models.section import Section, key, setting
from shakedown.desired.models.values import Positive
from shakedown.desired.names import Group, Module, Parameter, SysctlKey, Text, Word
from shakedown.node import sysctl


class Tuning(Section):
    """Host settings."""

    numa_balancing: bool | None = setting("numa_balancing")
    nmi_watchdog: bool | None = setting("nmi_watchdog")
    cmdline: list[Parameter] = key(
        [],
        'kernel parameters, merged into what is there; "{cpu}_iommu=on" becomes amd_ or intel_ by the CPU\'s vendor',
        ["iommu=pt", "{cpu}_iommu=on"],
        source="system-optimization",
    )
    cpu_governor: Word | None = setting("cpu_governor")
    c2: Literal["disabled"] | None = setting("c2")
    thp: Literal["always", "madvise", "never"] | None = setting("thp")
    pcie_acs: Literal["off"] | None = setting("pcie_acs")
    memlock: Literal["unlimited"] | Positive | None = key(
        None, "locked memory that a session of the user who runs jobs may have", "unlimited", unit="KiB"
    )
    nofile: Positive | None = key(
        None, "open files that a session of the user who runs jobs may have", 1048576, unit="files"
    )
    groups: list[Group] = key([], "groups of the user who runs jobs", ["render", "video"])
    sysctl: dict[SysctlKey, int | Text] = key(
        {},
        "kernel settings by their sysctl names, now and at boot",
        {"net.ipv4.conf.all.rp_filter": 2},
        max_length=sysctl.MOST,
    )
    modules: list[Module] = key(
        [], "kernel modules that are loaded now and at every boot, besides those of gpu and rdma", ["nvme_tcp"]
    )
