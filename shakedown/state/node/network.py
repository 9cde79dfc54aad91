"""RDMA devices, interfaces and routes."""

import re
from collections.abc import Callable
from ipaddress import IPv4Address, IPv4Interface, IPv4Network
from typing import Annotated

from pydantic import AfterValidator

from shakedown.state.node.devices import PciLink
from shakedown.state.node.host import Setting
from shakedown.state.node.reading import NOT_READ, Part, Reading

_OCTET = r"(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_QUAD = rf"{_OCTET}(?:\.{_OCTET}){{3}}"


def _as(kind: Callable[[str], object], usual: str) -> AfterValidator:
    """Accept a text that `kind` understands: the plan calculates with it. A text of the `usual` form need not be put
    to it, which takes ten times as long."""
    is_usual = re.compile(usual).fullmatch

    def check(text: str) -> str:
        if not is_usual(text):
            kind(text)
        return text

    return AfterValidator(check)


Address = Annotated[str, _as(IPv4Address, _QUAD)]
InterfaceAddress = Annotated[str, _as(IPv4Interface, rf"{_QUAD}/(?:3[0-2]|[12]?[0-9])")]
Network = Annotated[str, _as(IPv4Network, r"0\.0\.0\.0/0")]


class Gid(Part):
    """One filled entry of a GID table."""

    index: int
    gid: str  # "0000:0000:0000:0000:0000:ffff:0a00:0001"
    type: Reading[str]  # "RoCE v2", "IB/RoCE v1"
    netdev: Reading[str]
    ipv4: Address | None  # of an IPv4-mapped GID


class Lossless(Part):
    """What RoCE needs of a port to lose nothing: DCB of the device's interface, and the driver's congestion control."""

    pfc: Reading[list[int]]  # priorities with priority flow control
    dscp: Reading[dict[str, int]]  # DSCP -> priority, the application table
    trust: Reading[list[str] | None]  # ["dscp"]; None: the kernel does not tell (Linux before 6.3, most drivers)
    congestion: Reading[dict[str, Reading[int]]]  # the driver's own names -> values: {"enable_cc": 1, "tos_dscp": 26}


class RdmaDevice(Part):
    """One device of /sys/class/infiniband, port 1."""

    name: str
    bdf: str | None  # None for software devices
    physical_function: str | None = None  # BDF; of a virtual function alone
    ports: int = 1  # in all; the rest of this part is port 1's
    guid: Reading[str] = NOT_READ  # node_guid, "b83f:d203:0012:3456"
    vendor: str | None  # PCI vendor id, "14e4"
    numa_node: Reading[int]
    link: PciLink | None
    driver: str | None
    firmware: Reading[str]
    state: Reading[str]  # "ACTIVE"
    phys_state: Reading[str]  # "LinkUp"
    rate_gbps: Reading[float]
    link_layer: Reading[str]  # "Ethernet"
    netdev: Reading[str]
    gids: Reading[list[Gid]]
    max_read_request: Reading[int]  # bytes; PCI config space, needs root
    lossless: Reading[Lossless] = NOT_READ


class Interface(Part):
    """One network interface."""

    name: str
    mac: str
    mtu: Setting
    up: bool
    speed_mbps: Reading[int]
    ipv4: list[InterfaceAddress]  # "10.0.0.1/24"
    ipv6: list[str]
    bdf: str | None


class Neighbour(Part):
    """What answers at the other end of an interface's cable, by LLDP."""

    interface: str
    system: str  # its name, or its chassis id where it has none
    chassis: str
    port: str  # the port's id: a name, or a MAC address
    port_description: str


class Route(Part):
    """One IPv4 route of the main table."""

    destination: Network  # "0.0.0.0/0"
    gateway: Address | None
    interface: str
    metric: int
