"""All gates over all evidence of one run: the same function judges when the job ends and, offline, a run directory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from shakedown.desired import DesiredState
from shakedown.findings import Verdict
from shakedown.hca import devices_of, others_of
from shakedown.smoke import gates
from shakedown.smoke.figures import Figures, measure
from shakedown.smoke.gates import Gate, NodeLog, Recorded
from shakedown.smoke.gates.evidence import quietest
from shakedown.smoke.launch import LaunchPlan
from shakedown.smoke.log import Iteration
from shakedown.state import NodeState


@dataclass(frozen=True)
class Judgement:
    """The gates' verdicts, and what they rest on."""

    gates: list[Gate]
    iterations: list[Iteration]
    figures: Figures
    recorded: list[Recorded]  # measured and not judged: nothing is expected of them

    @property
    def verdict(self) -> Verdict:
        return gates.verdict(self.gates)


def judge(
    plan: LaunchPlan,
    logs: Mapping[str, NodeLog | None],
    exit_codes: Mapping[str, int | None],
    counters_before: Mapping[str, Mapping[str, Any]],
    counters_after: Mapping[str, Mapping[str, Any]],
    stopped: str | None = None,
    further: Sequence[str] = (),
) -> Judgement:
    """Judge one run of a plan. `logs` holds each node's leader log (None: there is none), `stopped` why the job was
    stopped before its end, `further` what is wrong with the copies of other logs."""
    read = {node.name: logs.get(node.name) for node in plan.nodes}
    if stopped and not any(read.values()):  # nothing ran: there is one thing to say
        nothing = measure([], plan.warmup)
        return Judgement([_stopped_gate(stopped)], [], nothing, gates.recorded(plan.expect, nothing))
    rdma = wants_rdma(plan)
    judged = [
        *([_stopped_gate(stopped)] if stopped else []),
        gates.exit_codes(exit_codes, [node.name for node in plan.nodes]),
        gates.logs_complete(read, further),
        *gates.judge_log(
            read,
            plan.expect,
            plan.iterations,
            warmup=plan.warmup,
            seq_length=plan.seq_length,
            world_size=plan.world_size,
            global_batch=plan.global_batch or None,
            rdma=rdma,
            nccl_debug=quietest(node.environment.get("NCCL_DEBUG", "") for node in plan.nodes) if rdma else None,
        ),
    ]
    if any(counters_before.values()) or any(counters_after.values()):  # none: the nodes have nothing that counts
        judged.append(gates.counters(counters_before, counters_after))
    iterations, _damaged = gates.iterations_of(read)
    sizes = (plan.seq_length, plan.world_size, plan.global_batch or None)
    figures = measure(iterations, plan.warmup, *sizes, gates.summary_of(read))
    return Judgement(judged, iterations, figures, gates.recorded(plan.expect, figures))


def wants_rdma(plan: LaunchPlan) -> bool:
    """Whether the job was to use RDMA between its nodes. A single node with devices is enough: the others then have
    none to speak with it. Sockets by intent are a plan without devices, or what the site says of them itself."""
    asked_for_sockets = any(
        node.environment.get("NCCL_IB_DISABLE", "0") not in ("", "0")
        or node.environment.get("NCCL_NET", "").lower() == "socket"
        for node in plan.nodes
    )
    return len(plan.nodes) > 1 and any(node.hca for node in plan.nodes) and not asked_for_sockets


def never_started(why: str) -> Judgement:
    """Of a job that has no plan, or of which nothing ran, there is one thing to say."""
    nothing = measure([])
    return Judgement([_stopped_gate(why, "never started")], [], nothing, gates.recorded({}, nothing))


def _stopped_gate(why: str, actual: str = "stopped") -> Gate:
    return Gate(
        name="ran_to_its_end",
        verdict=Verdict.FAIL,
        wanted="the job ends by itself",
        actual=actual,
        evidence=why,
        remedy="see the node and the line that were first; its whole log is in the run directory",
    )


def watched_counters(desired: DesiredState, state: NodeState, interface: str | None = None) -> dict[str, Any]:
    """The node's error counters that a run must not raise: of what the desired state asks for (an unreadable one then
    makes the gate unknown), and of everything else that could be read. Interfaces count where the job uses them."""
    wanted = {
        "rdma": desired.rdma.count > 0,
        "ethtool": desired.rdma.count > 0,
        "ras": desired.gpu.count > 0,
        "pcie": desired.gpu.count > 0,
        "kernel_log": bool(desired.system.kernel_log_clean),
    }
    rdma = [] if not isinstance(state.rdma, list) else state.rdma
    if desired.rdma.count:  # a NIC of another family carries others' traffic, and its errors are not the job's
        left_out = {device.name for device in others_of(desired.rdma, rdma)}
        rdma = devices_of(desired.rdma, rdma)
    else:
        left_out = set()
    used = {device.netdev for device in rdma if isinstance(device.netdev, str)} | {interface}
    kept: dict[str, Any] = {}
    for name, value in state.counters.items():
        kind, subject = name.split("/")[:2]
        if (kind == "ethtool" and subject not in used) or (kind == "rdma" and subject in left_out):
            continue
        if isinstance(value, int):
            kept[name] = value
        elif wanted.get(kind, False):
            kept[name] = value.model_dump()
    return kept
