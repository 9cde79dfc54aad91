"""All gates over all evidence of one run: the same function judges when the job ends and, offline, a run directory."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from shakedown import gates
from shakedown.catalogue.kernel import matcher
from shakedown.desired import DesiredState
from shakedown.desired.hca import devices_of, others_of
from shakedown.evidence.stragglers import judge as of_ranks
from shakedown.evidence.stragglers.model import Stragglers
from shakedown.evidence.telemetry.summary import NodeTelemetry
from shakedown.evidence.watched import Watched
from shakedown.gates import Gate, NodeLog, Observed, Recorded
from shakedown.gates.alone import Alone
from shakedown.gates.baselines.judge import compare
from shakedown.gates.baselines.model import Baseline, Past
from shakedown.jobs.launch import LaunchPlan
from shakedown.logs.figures import WARMUP, Figures, measure
from shakedown.logs.log import Iteration
from shakedown.logs.metrics import metric_of
from shakedown.logs.nccl_debug import quietest
from shakedown.node.kernel_verdict import judge as judge_records
from shakedown.state.findings import Verdict
from shakedown.state.node import NodeState, is_unreadable


@dataclass(frozen=True)
class Judgement:
    """The gates' verdicts, and what they rest on."""

    gates: list[Gate]
    iterations: list[Iteration]
    figures: Figures
    recorded: list[Recorded]  # measured and not judged: nothing is expected of them
    baselines: dict[str, Baseline] = field(default_factory=dict)  # metric -> what earlier runs say of it
    telemetry: dict[str, NodeTelemetry] = field(default_factory=dict)
    stragglers: Stragglers | None = None  # None: the ranks' own times are not compared

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
    started: bool = True,
    past: Past | None = None,
    alone: Alone | None = None,
    watched: Watched | None = None,
    stopped_nodes: Collection[str] = (),
) -> Judgement:
    """Judge one run of a plan. `logs` holds each node's leader log (None: there is none), `stopped` why the job was
    stopped before its end, `further` what is wrong with the copies of other logs; a job that was not
    `started` has nothing else to be judged by; `watched` is what the sampler of each node has written."""
    read = {node.name: logs.get(node.name) for node in plan.nodes}
    if stopped and not (started and any(read.values())):  # nothing ran: there is one thing to say
        return _only(stopped, not started, plan.expect, plan.warmup)
    rdma = wants_rdma(plan)
    of_logs = gates.of_logs(
        read,
        plan.expect,
        plan.iterations,
        warmup=plan.warmup,
        seq_length=plan.seq_length,
        world_size=plan.world_size,
        global_batch=plan.global_batch or None,
        rdma=rdma,
        steady=plan.steady,
        gpus=plan.gpus,
        nccl_debug=quietest(node.environment.get("NCCL_DEBUG", "") for node in plan.nodes) if rdma else None,
    )
    watched = watched or Watched()
    telemetry = watched.telemetry(of_logs.iterations or (), plan.warmup)
    sampled = plan.telemetry_s is not None
    kernel_seen = plan.kernel_log_clean or any(each and not each.unreadable for each in watched.kernel.values())
    counted = any(counters_before.values()) or any(counters_after.values())  # none: the nodes have nothing that counts
    slow = stragglers_of(plan, read)
    judgement = judged(
        replace(
            of_logs,
            stopped=stopped or None,
            to_be_whole=read,
            further=further,
            codes=exit_codes,
            participants=[node.name for node in plan.nodes],
            stopped_nodes=stopped_nodes,
            before=counters_before if counted else None,
            after=counters_after if counted else None,
            past=past.judged if past else {},
            no_past=past.problem or None if past and past.judge else None,
            alone=alone,
            ranks=plan.world_size,
            telemetry={node.name: telemetry.get(node.name) for node in plan.nodes},
            not_throttled=plan.no_throttling or None,
            kernel={node.name: watched.kernel.get(node.name) for node in plan.nodes}
            if sampled and kernel_seen
            else None,
            kernel_wanted=plan.kernel_log_clean,
            links={node.name: node.links for node in plan.nodes},
            stragglers=slow if plan.stragglers and plan.stragglers.gate else None,
        ),
        past,
    )
    return replace(judgement, telemetry=telemetry, stragglers=slow)


def stragglers_of(plan: LaunchPlan, logs: Mapping[str, NodeLog | None]) -> Stragglers | None:
    """What the ranks' own times come to; None where they are not compared."""
    if plan.stragglers is None:
        return None
    layout = of_ranks.Layout(plan.ranks, tensor=plan.tensor_parallel, pipeline=plan.pipeline_parallel)
    return of_ranks.judged({name: log.measured if log else None for name, log in logs.items()}, layout, plan.stragglers)


def judge_measured(
    plan: LaunchPlan,
    logs: Mapping[str, NodeLog | None],
    exit_codes: Mapping[str, int | None],
    stopped: str | None = None,
    started: bool = True,
    stopped_nodes: Collection[str] = (),
) -> Judgement:
    """Judge a job that measures and does not train: that it ran to its end everywhere, and that its logs are whole."""
    read = {node.name: logs.get(node.name) for node in plan.nodes}
    if stopped and not (started and any(read.values())):
        return _only(stopped, not started, {})
    return judged(
        Observed(
            stopped=stopped or None,
            to_be_whole=read,
            further=(),
            codes=exit_codes,
            participants=[node.name for node in plan.nodes],
            stopped_nodes=stopped_nodes,
        )
    )


def judged(job: Observed, past: Past | None = None) -> Judgement:
    """The gates of a job, with the lines and the figures that they rest on."""
    figures = job.figures or measure([])
    baselines = _baselines(past, figures) if past and not past.problem else {}
    kept = gates.recorded({*job.expect, *job.past}, figures, baselines)
    return Judgement(gates.judge(job), list(job.iterations or ()), figures, kept, baselines)


def _baselines(past: Past, figures: Figures) -> dict[str, Baseline]:
    return {name: compare(past, name, value, metric_of(name).direction) for name, value in figures.values().items()}


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
    return _only(why, True, {})


def _only(why: str, never_started: bool, expect: Mapping[str, float], warmup: int = WARMUP) -> Judgement:
    """The judgement of a job of which no log tells: expected figures are not recorded besides."""
    nothing = measure([], warmup)
    stopped = gates.judge(Observed(stopped=why, never_started=never_started))
    return Judgement(stopped, [], nothing, gates.recorded(expect, nothing))


def watched_counters(desired: DesiredState, state: NodeState, interface: str | None = None) -> dict[str, Any]:
    """The node's error counters that a run must not raise: of what the desired state asks for (an unreadable one then
    makes the gate unknown), and of everything else that could be read. Interfaces count where the job uses them."""
    wanted = {
        "rdma": desired.rdma.count > 0,
        "ethtool": desired.rdma.count > 0,
        "ras": desired.gpu.count > 0,
        "pcie": desired.gpu.count > 0,
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
    if desired.system.kernel_log_clean:
        names = {name for device in rdma for name in (device.name, device.bdf) if name}
        kept["kernel_log/newest_fault"] = _newest_fault(state, {*names, *filter(None, used)})
    return kept


def _newest_fault(state: NodeState, links: Collection[str]) -> Any:
    """Return the number behind the newest fault of the kernel's log: the log forgets, the number only grows."""
    records = state.kernel_log.records
    if is_unreadable(records):
        return records.model_dump()
    lines = judge_records(matcher(), records, links)
    return max((line.number + 1 for line in lines if line.verdict == "fail"), default=0)
