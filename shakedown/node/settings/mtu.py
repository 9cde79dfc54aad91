"""The MTU of a network interface."""

from __future__ import annotations

from ..setting import FileSetting, setting


@setting
class Mtu(FileSetting):
    name = "mtu"
    doc = "Bytes of a frame's payload on one network interface; the switch has to carry them"
    source = "Linux, Documentation/ABI/testing/sysfs-class-net; the NIC's profile names the value"
    risk = "disruptive"
    unit = "bytes"
    values = r"[1-9]\d*"
    details = r"[\w.:@-]+"
    remedy = "set MTU {0} on {1} (the switch has to carry it)"
    path = "/sys/class/net/{}/mtu"
    evidence = path
