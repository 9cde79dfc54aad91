"""The TCP ports that something listens on."""

from __future__ import annotations

from .tree import Tree, attempt

_NETLINK, _RAW, _SOCK_DIAG = 16, 3, 4  # linux/netlink.h
_DUMP_REQUEST, _BY_FAMILY, _INTERRUPTED = 0x301, 20, 0x10  # linux/sock_diag.h
_ERROR, _DONE = 2, 3
_TCP, _LISTEN = 6, 10
_INET, _INET6 = 2, 10
_PORT_AT = 20  # of a struct inet_diag_msg behind its header


def parse(lines: list[str]) -> list[int]:
    """Local ports of the sockets in state LISTEN (0A) of /proc/net/tcp or tcp6."""
    rows = (line.split() for line in lines[1:])
    return [int(row[1].rsplit(":", 1)[1], 16) for row in rows if len(row) > 3 and row[3] == "0A"]


def read(tree: Tree) -> list[int]:
    """The ports, each once. The kernel is asked for those that listen alone: to write the files it walks through its
    table of all connections, which is 5 ms of CPU each, be the table empty."""
    ports = attempt(_asked) if tree.live and _is_there(tree) else None
    return ports if isinstance(ports, list) else _of_files(tree)


def _of_files(tree: Tree) -> list[int]:
    """A kernel without IPv6 has no tcp6."""
    ports = parse(tree.lines("/proc/net/tcp"))
    if tree.exists("/proc/net/tcp6"):
        ports += parse(tree.lines("/proc/net/tcp6"))
    return sorted(set(ports))


def _is_there(tree: Tree) -> bool:
    """Whether the kernel can be asked without loading a module for it: the probe changes nothing."""
    import os

    folder = "/lib/modules/" + os.uname().release
    if not tree.exists(folder):  # there is none that could be loaded
        return True
    of_kernel = attempt(tree.text, folder + "/modules.builtin")
    loaded = attempt(tree.text, "/proc/modules")
    return "/tcp_diag.ko" in str(of_kernel) or any(line.startswith("tcp_diag ") for line in str(loaded).split("\n"))


def _asked() -> list[int]:
    return sorted(set(_of_family(_INET)) | set(_of_family(_INET6)))


def _of_family(family: int) -> list[int]:
    """Raises OSError where the kernel has no answer, or none that is whole."""
    import _socket  # the part in C: the whole of `socket` costs 5 ms
    import struct

    asked = struct.pack("=IHHII", 72, _BY_FAMILY, _DUMP_REQUEST, 1, 0)
    asked += struct.pack("=BBBBI48x", family, _TCP, 0, 0, 1 << _LISTEN)
    handle = _socket.socket(_NETLINK, _RAW, _SOCK_DIAG)
    ports: list[int] = []
    try:
        handle.settimeout(5)
        handle.send(asked)
        while True:
            answer, at = handle.recv(1 << 16), 0
            while at + 16 <= len(answer):
                length, kind, flags = struct.unpack_from("=IHH", answer, at)
                if kind == _DONE:
                    return ports
                if kind == _ERROR or flags & _INTERRUPTED or length < 16:
                    raise OSError(5, "sock_diag")
                ports.append(struct.unpack_from(">H", answer, at + _PORT_AT)[0])
                at += (length + 3) & ~3
    finally:
        handle.close()
