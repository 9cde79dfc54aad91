"""A port's settings for lossless RoCE: priority flow control, the priority of each DSCP, and the driver's
congestion control (ECN, DCQCN). Read only: where a reading would have to change something first it is missing."""

from __future__ import annotations

from typing import Any, Optional

from . import dcb
from .tree import Part, Tree, Unreadable, attempt

# Parameters that say what is done, not those that tune how fast. bnxt_re: drivers/infiniband/hw/bnxt_re/debugfs.c
# (Linux 6.15), and configfs of Broadcom's own driver, whose folder is there only while a user has made it. mlx5:
# drivers/infiniband/hw/mlx5/cong.c. Each file asks the firmware, so that not all of them are read.
PARAMETERS = (
    "enable_cc", "ecn_enable", "ecn_marking", "tos_ecn", "cc_mode", "tos_dscp", "roce_dscp", "roce_prio",
    "alt_vlan_dscp", "alt_vlan_pcp", "cnp_dscp", "cnp_prio",
    "np_cnp_dscp", "np_cnp_prio_mode", "np_cnp_prio",
)  # fmt: skip


def folders(device: str, bdf: str) -> tuple[str, ...]:
    """Return where a driver shows its congestion control, by RDMA device and PCI function."""
    return (
        "/sys/kernel/debug/bnxt_re/{}/cc_config".format(bdf),
        "/sys/kernel/config/bnxt_re/{}/ports/1/cc".format(device),
        "/sys/kernel/debug/mlx5/{}/cc_params".format(bdf),
    )


def _congestion(tree: Tree, device: str, bdf: str) -> dict[str, Any]:
    closed: Optional[str] = None
    for folder in folders(device, bdf):
        try:
            names = tree.names(folder)
        except PermissionError as error:
            closed = str(error.filename)
            continue
        found = {name: attempt(tree.number, folder + "/" + name) for name in PARAMETERS if name in names}
        if found:
            return found
    if closed:
        raise Unreadable("not permitted", closed)
    raise Unreadable("missing", "no folder of congestion control: " + ", ".join(folders(device, bdf)))


def _bridging(tree: Tree, interface: Any) -> Part:
    if not isinstance(interface, str):
        raise Unreadable(interface["unreadable"], interface["detail"])
    return dict(tree.ask("dcb " + interface, _ask, tree, interface))


def _ask(tree: Tree, interface: str) -> Part:
    return dcb.ask(interface) if tree.live else dict(tree.recorded("dcb")[interface])


def read(tree: Tree, device: str, bdf: str, interface: Any) -> Part:
    """Read a port. `interface`: the device's network interface, or the unreadable part that has the reason."""
    bridging = attempt(_bridging, tree, interface)
    if "unreadable" in bridging:
        settings = dict.fromkeys(("pfc", "dscp", "trust"), bridging)
    else:
        settings = {name: bridging[name] for name in ("pfc", "dscp", "trust")}
        if settings["pfc"] is None:
            settings["pfc"] = Unreadable("missing", "DCB of {}: its driver reports no PFC".format(interface)).as_part()
    return dict(settings, congestion=attempt(_congestion, tree, device, bdf))
