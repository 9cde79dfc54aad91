"""All gates over all evidence of one run: the same function judges when the job ends and, offline, a run directory."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from shakedown import gates
from shakedown.catalogue.kernel import matcher
from shakedown.desired.hca import devices_of, others_of
from shakedown.desired.models import DesiredState
from shakedown.evidence.stragglers import judge as of_ranks
from shakedown.evidence.stragglers.model import Stragglers
from shakedown.evidence.telemetry.summary import NodeTelemetry, Watched
from shakedown.gates import Gate, Observed, Recorded
from shakedown.gates.baselines.judge import compare
from shakedown.gates.baselines.model import Baseline
from shakedown.gates.judge import PARSERS
from shakedown.gates.observed import Counters, Expected, JobEnd, LogCopies, LogsByNode, NodeWatch
from shakedown.jobs.launch import LaunchPlan
from shakedown.logs.figures import WARMUP, Figures, measure
from shakedown.logs.iterations import Iteration
from shakedown.logs.mad import Results
from shakedown.logs.metrics import metric_of
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
    baselines: dict[str, Baseline] = field(default_factory=dict)  # metric -> how it compares with earlier runs
    telemetry: dict[str, NodeTelemetry] = field(default_factory=dict)
    stragglers: Stragglers | None = None  # None: the ranks' own times are not compared
    reported: Results | None = None  # of a program with a report of its own

    @property
    def verdict(self) -> Verdict:
        return gates.verdict(self.gates)


def judge(
    plan: LaunchPlan,
    copies: LogCopies,
    end: JobEnd,
    counters: Counters | None = None,
    expected: Expected | None = None,
    watched: Watched | None = None,
) -> Judgement:
    """Judge a run of a plan. `copies`: leader logs; `expected`: history (bounds are the plan's); `watched`: samples."""
    logs = {node.name: copies.by_node.get(node.name) for node in plan.nodes}
    if _nothing_ran(end, logs):
        return _only(end, plan.expect, plan.warmup)
    observed = PARSERS[plan.parser].observe(logs, plan)
    lines = observed.training.iterations if observed.training else ()
    watched = watched or Watched()
    telemetry = watched.telemetry(lines, plan.warmup)
    stragglers = stragglers_of(plan, logs)
    counted = counters and (any(counters.before.values()) or any(counters.after.values()))
    judgement = judge_observed(
        replace(
            observed,
            end=replace(end, participants=[node.name for node in plan.nodes]),
            copies=replace(copies, by_node=logs),
            counters=counters if counted else None,  # otherwise the nodes have nothing that counts
            expected=replace(expected or Expected(), bounds=plan.expect),
            watch=_watch(plan, watched, telemetry),
            stragglers=stragglers if plan.stragglers and plan.stragglers.gate else None,
        )
    )
    return replace(judgement, telemetry=telemetry, stragglers=stragglers)


def _nothing_ran(end: JobEnd, logs: LogsByNode) -> bool:
    return bool(end.stopped) and not (end.started and any(logs.values()))


def _watch(plan: LaunchPlan, watched: Watched, telemetry: Mapping[str, NodeTelemetry]) -> NodeWatch:
    nodes = [node.name for node in plan.nodes]
    readable = any(window and not window.unreadable for window in watched.kernel.values())
    kernel = plan.telemetry_s is not None and (plan.kernel_log_clean or readable)
    return NodeWatch(
        telemetry={node: telemetry.get(node) for node in nodes},
        not_throttled=plan.no_throttling,
        kernel={node: watched.kernel.get(node) for node in nodes} if kernel else None,
        devices=watched.devices,
        kernel_wanted=plan.kernel_log_clean,
        links={node.name: node.links for node in plan.nodes},
    )


def stragglers_of(plan: LaunchPlan, logs: LogsByNode) -> Stragglers | None:
    """Compare the ranks' own times; None where the plan does not compare them."""
    if plan.stragglers is None:
        return None
    layout = of_ranks.Layout(plan.ranks, tensor=plan.tensor_parallel, pipeline=plan.pipeline_parallel)
    return of_ranks.judged({name: log.measured if log else None for name, log in logs.items()}, layout, plan.stragglers)


def judge_measured(plan: LaunchPlan, logs: LogsByNode, end: JobEnd, watched: Watched | None = None) -> Judgement:
    """Judge a job that does not train: its end, whole logs and, where nodes were sampled, no kernel fault."""
    logs = {node.name: logs.get(node.name) for node in plan.nodes}
    if _nothing_ran(end, logs):
        return _only(end)
    end = replace(end, participants=[node.name for node in plan.nodes])
    if plan.telemetry_s is None or watched is None:
        return judge_observed(Observed(end=end, copies=LogCopies(logs)))
    telemetry = watched.telemetry((), 0)
    watch = _watch(plan, watched, telemetry)
    return replace(judge_observed(Observed(end=end, copies=LogCopies(logs), watch=watch)), telemetry=telemetry)


def judge_observed(job: Observed) -> Judgement:
    """Judge a job by its evidence, and keep the lines and the figures that the gates rest on."""
    figures = job.speed.figures if job.speed else measure([])
    past = job.expected.past
    baselines = {
        name: compare(past, name, value, metric_of(name).direction)
        for name, value in figures.values().items()
        if past and not past.problem
    }
    judged = {*job.expected.bounds, *(past.judged if past else ())}
    kept = gates.recorded(judged, figures, baselines) if job.benchmark is None else []
    lines = list(job.training.iterations) if job.training else []
    return Judgement(gates.judge(job), lines, figures, kept, baselines, reported=job.benchmark)


def never_started(reason: str) -> Judgement:
    """Judge a job that has no plan, or of which nothing ran: its only gate is the reason."""
    return _only(JobEnd(stopped=reason, started=False))


def _only(end: JobEnd, expect: Mapping[str, float] | None = None, warmup: int = WARMUP) -> Judgement:
    """Judge a job without logs: expected figures are not recorded besides."""
    nothing = measure([], warmup)
    stopped = gates.judge(Observed(end=JobEnd(stopped=end.stopped, started=end.started)))
    return Judgement(stopped, [], nothing, gates.recorded(expect or {}, nothing))


def watched_counters(desired: DesiredState, state: NodeState, interface: str | None = None) -> dict[str, Any]:
    """Return a node's counters that must not grow: wanted and readable ones; of interfaces those that the job uses."""
    nics, gpus = desired.rdma.count > 0, desired.gpu.count > 0
    wanted = {"rdma": nics, "ethtool": nics, "ras": gpus, "pcie": gpus}
    rdma = state.rdma if isinstance(state.rdma, list) else []
    # A NIC of another family carries others' traffic, and its errors are not the job's.
    left_out = {device.name for device in others_of(desired.rdma, rdma)} if nics else set()
    rdma = devices_of(desired.rdma, rdma) if nics else rdma
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
