"""What a namespace node is to be like."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.lab.rootfs import Device


@dataclass(frozen=True)
class NodeSpec:
    """What one node is like. Unset fields get a value that differs from node to node.

    + name, interface: host name and name of the network interface
    + mtu: of that interface, in bytes
    + proc: files bound over /proc, such as {"cmdline": "quiet iommu=pt"}; any text; each boot starts with it again
    + sys_tree: a folder laid over /sys (`class/infiniband`, PCI devices with their links); writable, new at each boot
    + sys: single files laid over /sys, {"kernel/mm/transparent_hugepage/enabled": "always madvise [never]"}
    + dev: character devices under /dev, {"kfd": Device(group="render", mode=0o660)}
    + files: files of the root file system at first boot, {"etc/default/grub": "..."}
    + user, sudo: an ordinary user with the lab's key, and whether it may do anything by sudo without a password
    + docker, daemon: a docker engine that starts at boot, and more settings for its daemon.json
    + docker_disk_mb: the engine's storage is a file system of this size, so that a disk can be full
    """

    name: str = ""
    interface: str = ""
    mtu: int = 1500
    proc: Mapping[str, str] = field(default_factory=dict)
    sys_tree: Path | None = None
    sys: Mapping[str, str] = field(default_factory=dict)
    dev: Mapping[str, Device] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    user: str | None = None
    sudo: bool = False
    docker: bool = False
    daemon: Mapping[str, object] = field(default_factory=dict)
    docker_disk_mb: int | None = None


PROC = {"sys/kernel/numa_balancing": "1\n"}
"""A freshly booted rack node has NUMA auto-balancing on; here the value is the node's own."""


Wanted = int | Sequence[NodeSpec]
"""Nodes of a lab: a number of them, or one specification each."""


def each(nodes: Wanted, spec: NodeSpec | None) -> list[NodeSpec]:
    """One specification per node; those of a number are all like `spec`."""
    return [spec or NodeSpec()] * nodes if isinstance(nodes, int) else list(nodes)
