"""RDMA devices and their GID tables."""

from collections.abc import Callable
from typing import Any

from pyinfra.api.command import QuoteString, StringCommand

from shakedown.facts.base import Fact
from shakedown.node.rdma import mapped_ipv4, parse_rate, parse_state

_CLASS = "/sys/class/infiniband"
_EMPTY = ":".join(["0000"] * 8)


class RdmaDevices(Fact[dict[str, dict[str, Any]]]):
    """
    Returns the state of port 1 of each RDMA device, by name. A value that cannot be read is ``None``.

    .. code:: python

        {
            "bnxt_re0": {
                "state": "ACTIVE",
                "phys_state": "LinkUp",
                "rate_gbps": 400.0,
                "link_layer": "Ethernet",
                "firmware": "231.2.63.0",
            },
        }
    """

    default = dict

    def command(self) -> str:
        ports = f"{_CLASS}/*/ports/1"
        return f"grep -Hs . {_CLASS}/*/fw_ver {ports}/state {ports}/phys_state {ports}/rate {ports}/link_layer; true"

    def process(self, output: list[str]) -> dict[str, dict[str, Any]]:
        fields = ("state", "phys_state", "rate_gbps", "link_layer", "firmware")
        readers: dict[str, tuple[str, Callable[[str], Any]]] = {
            "state": ("state", parse_state),
            "phys_state": ("phys_state", parse_state),
            "rate": ("rate_gbps", parse_rate),
            "link_layer": ("link_layer", str),
            "fw_ver": ("firmware", str),
        }
        devices: dict[str, dict[str, Any]] = {}
        for line in output:
            path, _, value = line.partition(":")
            name = path.removeprefix(_CLASS + "/").split("/")[0]
            field, reader = readers[path.rsplit("/", 1)[1]]
            try:
                devices.setdefault(name, dict.fromkeys(fields))[field] = reader(value.strip())
            except (ValueError, IndexError):
                continue
        return devices


class GidTable(Fact[list[dict[str, Any]]]):
    """
    Returns the filled entries of the GID table of a device's port, in the order of their index.

    + device: name of the RDMA device
    + port: port number, 1 on most devices

    .. code:: python

        [
            {
                "index": 3,
                "gid": "0000:0000:0000:0000:0000:ffff:0a00:0001",
                "type": "RoCE v2",
                "netdev": "ens1",
                "ipv4": "10.0.0.1",
            },
        ]
    """

    default = list

    def command(self, device: str, port: int = 1) -> StringCommand:
        # Three processes for up to 1024 entries. Asking an empty one for its type is an error, which -s passes over.
        return StringCommand(
            "cd", QuoteString(f"{_CLASS}/{device}/ports/{port}"), "2>/dev/null &&",
            "{", f"grep -sHvx {_EMPTY} gids/*;",
            "grep -sH . gid_attrs/types/*;", "grep -sH . gid_attrs/ndevs/*;", "};", "true",
        )  # fmt: skip

    def process(self, output: list[str]) -> list[dict[str, Any]]:
        columns: dict[str, dict[int, str]] = {"gids": {}, "types": {}, "ndevs": {}}
        for line in output:
            path, _, value = line.partition(":")
            *_, column, index = path.split("/")
            columns[column][int(index)] = value
        return [
            {
                "index": index,
                "gid": gid,
                "type": columns["types"].get(index),
                "netdev": columns["ndevs"].get(index),
                "ipv4": mapped_ipv4(gid),
            }
            for index, gid in sorted(columns["gids"].items())
        ]
