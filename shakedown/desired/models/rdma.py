"""The RDMA devices of a node, and the library that drives them."""

from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field

from shakedown.desired.cabling import Cabling, read_plan
from shakedown.desired.models.section import Section, key
from shakedown.desired.models.values import Environment, Positive, Sha256
from shakedown.desired.names import DevicePattern, Module, MountPath, Text
from shakedown.node import lossless


class Provider(Section):
    """The libibverbs provider of a NIC family, on the host and in the container."""

    name: Module = key(..., "the driver that libibverbs.d names, and lib<name>-rdmav<abi>.so", "bnxt_re")
    host_library: MountPath | None = key(
        None,
        "the library's path on the host; {abi} stands for libibverbs' provider ABI",
        "/usr/local/lib/libbnxt_re-rdmav{abi}.so",
    )
    source: Text | None = key(
        None,
        "the site's file on the controller, put at host_library where another or none stands",
        "/srv/lib/libbnxt_re-rdmav34.so",
    )
    sha256: Sha256 | None = key(
        None, "of host_library", "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
    )
    container_library: MountPath | None = key(
        None,
        "where the host's file is mounted in the container",
        "/usr/lib/x86_64-linux-gnu/libibverbs/libbnxt_re-rdmav{abi}.so.host",
    )
    install_as: MountPath | None = key(
        None,
        "where the mounted file is copied to inside the container before the job starts",
        "/usr/lib/x86_64-linux-gnu/libibverbs/libbnxt_re-rdmav{abi}.so",
    )
    config_dirs: list[MountPath] = key(
        [], "folders of libibverbs.d on the host: the first that exists is mounted", ["/etc/libibverbs.d"]
    )


def _congestion(name: str) -> str:
    if name not in lossless.PARAMETERS:
        raise ValueError(f"one of those that are read: {', '.join(lossless.PARAMETERS)}")
    return name


Priority = Annotated[int, Field(ge=0, le=7)]


def _dscp(text: str) -> str:
    if text not in map(str, range(64)):
        raise ValueError("a DSCP as text, 0 to 63")
    return text


Dscp = Annotated[str, AfterValidator(_dscp)]


class Rdma(Section):
    """The RDMA devices of a node. `family` names a file of profiles/nic; None where the node has none."""

    family: Text | None = key(None, 'the NIC family, a file of profiles/nic; a site writes nic = "thor2"', "thor2")
    count: int = key(0, "RDMA devices of a node", 8, ge=0)
    devices: list[DevicePattern] = key(
        [], "only these devices, by name, shell style; empty: all of the family", ["bnxt_re[0-7]"]
    )
    usual_devices: list[DevicePattern] = key(
        [], "the family's own names, where the vendor of a device is not known", ["bnxt_re*"]
    )
    vendor: Annotated[str, Field(pattern=r"^[0-9a-f]{4}$")] | None = key(None, "PCI vendor id of the family", "14e4")
    rate_gbps: float | None = key(None, "rate of every port", 400.0, unit="Gb/s")
    mtu: Positive | None = key(None, "MTU of the devices' network interfaces", 9000, unit="bytes")
    link_gts: float | None = key(None, "PCIe rate of each lane of the NIC", 32.0, unit="GT/s")
    link_width: Positive | None = key(None, "PCIe lanes of the NIC", 16, unit="lanes")
    max_read_request: Positive | None = key(
        None, "PCIe MaxReadReq of the NIC, now and at every boot", 4096, unit="bytes"
    )
    usual_gid_index: int | None = key(
        None, "GID index that is published for the family: shown when the node's own differs; the node's own is used", 3
    )
    pfc: list[Priority] | None = key(None, "priorities with priority flow control on every port, and no others", [3])
    dscp: dict[Dscp, Priority] = key(
        {}, "priority that packets with a DSCP are given on every port; other DSCPs may have any", {"26": 3, "48": 7}
    )
    congestion: dict[Annotated[str, AfterValidator(_congestion)], Annotated[int, Field(ge=0)]] = key(
        {}, "congestion control (ECN, DCQCN) of every port, by the driver's own names", {"enable_cc": 1}
    )
    usual_pfc: list[Priority] = key([], "what is published for the family: reported where pfc is not set", [3])
    usual_dscp: dict[Dscp, Priority] = key({}, "the same for dscp", {"26": 3, "48": 7})
    modules: list[Module] = key([], "kernel modules of the NIC and of RDMA", ["bnxt_re", "ib_uverbs", "rdma_ucm"])
    cabling: Annotated[Cabling | None, BeforeValidator(read_plan)] = key(
        None,
        "the cabling plan: a CSV file on the controller with the columns node, port, switch, switch_port, by its path; "
        "or the same as a mapping",
        {"node01": {"bnxt_re0": ["leaf1", "Ethernet1/1"]}},
    )
    environment: Environment = key({}, "variables of every job over these NICs", {"RDMAV_DRIVERS": "bnxt_re"})
    provider: Provider | None = key(None, "the libibverbs provider library of the family", {"name": "bnxt_re"})
    mounts: dict[MountPath, MountPath] = key(
        {},
        "further files that the container needs: host path -> container path",
        {"/usr/lib/libionic.so": "/usr/lib/libionic.so"},
    )
