"""What RoCE needs of every port to lose nothing, as far as the kernel tells it. No operation sets it: the switches have
to be told the same, which is the site's."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from shakedown.checks import NICS, check
from shakedown.checks.compare import compare_several, nothing_there, unknown
from shakedown.desired.hca import devices_of, none_there
from shakedown.desired.models import DesiredState
from shakedown.state.findings import Comparison, Remedy, Verdict
from shakedown.state.node import Lossless, NodeState, RdmaDevice, Reading, Unreadable, is_unreadable

_PFC = Remedy(
    text="set the same on ports and switches: `dcb pfc set dev INTERFACE prio-pfc 3:on`, or the vendor's tool"
)
_DSCP = Remedy(
    text="give the DSCP the same priority on ports and switches: `dcb app replace dev INTERFACE dscp-prio 26:3`"
)
_CONGESTION = Remedy(
    text="set the parameters by the driver's script or tool (bnxt_setupcc.sh, niccli, mlnx_qos), and at every boot"
)


@check("rdma_pfc", "rdma.pfc", follows=(*NICS, "rdma_state"))
def rdma_pfc(desired: DesiredState, state: NodeState) -> Comparison | None:
    """Priority flow control of exactly the priorities that are asked for. Where none is asked for, ports that differ
    from what is published for the family are a warning."""
    wanted = None if desired.rdma.pfc is None else sorted(desired.rdma.pfc)
    usual = sorted(desired.rdma.usual_pfc)

    def right(seen: list[int], wanted: list[int]) -> bool:
        return sorted(seen) == wanted

    return _compare(desired, state, wanted, usual, lambda port: port.pfc, right, "dcb pfc show", _PFC)


@check("rdma_dscp", "rdma.dscp", follows=(*NICS, "rdma_state"))
def rdma_dscp(desired: DesiredState, state: NodeState) -> Comparison | None:
    """Check the priority of each requested DSCP, on ports that trust DSCPs as far as the kernel tells it. Without a
    request, ports that differ from what is published for the family are a warning."""
    rdma = desired.rdma

    def read(port: Lossless) -> Reading[Any]:
        if is_unreadable(port.dscp) or is_unreadable(port.trust) or port.trust is None or "dscp" in port.trust:
            return port.dscp
        return f"trusts {', '.join(port.trust) or 'nothing'}"

    def right(seen: Any, wanted: dict[str, int]) -> bool:
        return isinstance(seen, dict) and all(seen.get(dscp) == priority for dscp, priority in wanted.items())

    return _compare(desired, state, rdma.dscp or None, rdma.usual_dscp, read, right, "dcb app show", _DSCP)


@check("rdma_congestion", "rdma.congestion", follows=(*NICS, "rdma_state"))
def rdma_congestion(desired: DesiredState, state: NodeState) -> Comparison | None:
    """Congestion control as asked for, by the driver's own names. One that the driver does not show is unknown."""
    wanted = desired.rdma.congestion

    def read(port: Lossless) -> Reading[Any]:
        if is_unreadable(port.congestion):
            return port.congestion
        hidden = {name: Unreadable(unreadable="missing", detail=f"the driver does not show {name}") for name in wanted}
        readings = {name: port.congestion.get(name, hidden[name]) for name in wanted}
        values = {name: value for name, value in readings.items() if not is_unreadable(value)}
        unread = next((value for value in readings.values() if is_unreadable(value)), None)
        return values if unread is None or any(values[name] != wanted[name] for name in values) else unread

    return _compare(desired, state, wanted or None, {}, read, operator.eq, "the driver's files", _CONGESTION)


def _compare(
    desired: DesiredState,
    state: NodeState,
    wanted: Any,
    usual: Any,
    read: Callable[[Lossless], Reading[Any]],
    right: Callable[[Any, Any], bool],
    evidence: str,
    remedy: Remedy,
) -> Comparison | None:
    """Make one finding over the family's Ethernet ports. `wanted` None: nothing is requested, and `usual` is only
    reported."""
    is_wanted = wanted is not None
    if not is_wanted and not usual:
        return None
    if is_unreadable(state.rdma):
        return unknown(wanted, state.rdma) if is_wanted else None
    ports = [device for device in devices_of(desired.rdma, state.rdma) if device.link_layer != "InfiniBand"]
    readings = {device.name: _of(device, read) for device in ports}
    if not is_wanted:
        reported = {name: value for name, value in readings.items() if not is_unreadable(value)}
        if not reported or all(right(value, usual) for value in reported.values()):
            return None
        published = Remedy(text=f"write it into the desired state if it is meant so; otherwise {remedy.text}")
        return compare_several(
            usual,
            reported,
            lambda seen: right(seen, usual),
            otherwise=Verdict.WARN,
            evidence=f"{evidence}; published for the family {desired.rdma.family}",
            remedy=published,
        )
    if ports:
        return compare_several(wanted, readings, lambda seen: right(seen, wanted), evidence=evidence, remedy=remedy)
    if not devices_of(desired.rdma, state.rdma):
        return nothing_there(wanted, count=desired.rdma.count, why=none_there(desired.rdma))
    no_loss = "InfiniBand's ports lose nothing: their senders wait for credits"
    return Comparison(verdict=Verdict.OK, wanted=wanted, actual="no Ethernet port", evidence=no_loss)


def _of(device: RdmaDevice, read: Callable[[Lossless], Reading[Any]]) -> Reading[Any]:
    return device.lossless if is_unreadable(device.lossless) else read(device.lossless)
