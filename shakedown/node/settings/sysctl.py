"""Any key of sysctl(8)."""

from __future__ import annotations

from ..setting import SysctlSetting, setting


@setting
class Sysctl(SysctlSetting):
    name = "sysctl"
    doc = "One key of the kernel's settings; several numbers are separated by one blank"
    source = "sysctl.d(5), Linux, Documentation/admin-guide/sysctl; the NIC's profile names those of RoCE"
    values = r"[^\n\r\0]+"
    # Each part is a file name below /proc/sys; a slash stands where a part has a dot, as in net.ipv4.conf.eth0/5.mtu.
    details = r"[A-Za-z0-9_][\w:@+-]*(?:[./][A-Za-z0-9_][\w:@+-]*)+"
    remedy = "set {1} to {0}"
    evidence = "/proc/sys/{}, sysctl.d"
