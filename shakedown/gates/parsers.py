"""The parsers of jobs: what the copies of a node's logs hold, and the evidence that they are for the gates.

A family of recipes names its parser. Another program with a report of its own is another entry here.
"""

from collections.abc import Callable
from dataclasses import dataclass

from shakedown.gates.from_logs import JobSpec, from_logs
from shakedown.gates.node_log import NodeLog
from shakedown.gates.observed import RESUME_RTOL, Expected, LogsByNode, Observed, Reading
from shakedown.jobs.launch import LaunchPlan
from shakedown.logs import mad
from shakedown.logs.kept_logs import LEADER
from shakedown.logs.nccl_debug import quietest

Text = Callable[[str], tuple[str | None, str]]  # of a log's name on the node: its text or None, and what that lacks


@dataclass(frozen=True)
class Parser:
    """One way to read a job; METRICS_OF says what it can measure."""

    read: Callable[[NodeLog, Text], NodeLog]  # the job's own output on a node, and the copies of all of its logs
    observe: Callable[[LogsByNode, LaunchPlan], Observed]


def _spec(plan: LaunchPlan) -> JobSpec:
    rdma = wants_rdma(plan)
    return JobSpec(
        expect=plan.expect,
        iterations=plan.iterations,
        warmup=plan.warmup,
        seq_length=plan.seq_length,
        world_size=plan.world_size,
        global_batch=plan.global_batch or None,
        rdma=rdma,
        nccl_debug=quietest(node.environment.get("NCCL_DEBUG", "") for node in plan.nodes) if rdma else None,
        steady=plan.steady,
        gpus=plan.gpus,
        image=plan.image,
        resume_at=int(plan.parameters["resume_at"]) if "resume_at" in plan.parameters else None,
        resume_rtol=float(plan.parameters.get("resume_rtol", RESUME_RTOL)),
    )


def wants_rdma(plan: LaunchPlan) -> bool:
    """Return whether the job was to use RDMA between its nodes. A single node with devices is enough: the others then
    have no partner. Sockets are intended in a plan without devices, or where the site sets them."""
    sockets = any(
        node.environment.get("NCCL_IB_DISABLE", "0") not in ("", "0")
        or node.environment.get("NCCL_NET", "").lower() == "socket"
        for node in plan.nodes
    )
    return len(plan.nodes) > 1 and any(node.hca for node in plan.nodes) and not sockets


def _read_mad(log: NodeLog, text: Text) -> NodeLog:
    (output, lacks), (report, report_lacks) = text(LEADER), text(mad.REPORT)
    incomplete = "; ".join(dict.fromkeys(filter(None, (log.incomplete, lacks, report_lacks))))
    return log.model_copy(update={"reported": mad.read(output, report), "incomplete": incomplete})


def _mad_evidence(logs: LogsByNode, plan: LaunchPlan) -> Observed:
    """Return what MAD's report says. Of each node it is a program of its own, so there is one log."""
    log = next(iter(logs.values()), None) or NodeLog()
    results = (log.reported or mad.Results()).model_copy(update={"prints_steps": mad.prints_steps(plan.parameters)})
    cut = f"the log or the report is not whole: {log.incomplete}" if log.incomplete else ""
    return Observed(benchmark=results, expected=Expected(plan.expect), reading=Reading(cut=cut))


PARSERS = {
    "training": Parser(lambda log, _text: log, lambda logs, plan: from_logs(logs, _spec(plan))),
    "mad": Parser(_read_mad, _mad_evidence),
}
