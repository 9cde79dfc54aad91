"""What the gates of a run's jobs are given besides its logs: earlier runs, and what each node did by itself."""

from __future__ import annotations

from collections.abc import Callable

from shakedown.compared import Wanted, earlier_own_figures, own_figures, past_of
from shakedown.runner.session import Session
from shakedown.runs import JobRecord
from shakedown.smoke.job import job_name
from shakedown.smoke.launch import LaunchPlan
from shakedown.smoke.plan import PlanError
from shakedown.smoke.scaling import Alone, OneAlone

PlanAlone = Callable[[str], LaunchPlan]


def compare(current: Session, job: JobRecord, plan_alone: PlanAlone) -> None:
    """Put into a job's evidence what it is to be compared with, as far as the desired state asks for it. A ledger that
    cannot be read is told, and decides nothing unless the figures are to be judged by it."""
    record, plan = current.record, job.plan
    if record is None or plan is None or job.trials:
        return
    smoke = current.examination.desired[plan.driver].smoke
    if smoke is None:
        return
    evidence, wanted = current.evidence[job.name], Wanted.of(smoke)
    if wanted is not None:
        evidence.past = past_of(job, current.examination.states, record.run_id, wanted)
        if evidence.past.problem and not wanted.judge:
            current.out.print(f"{job.name}: {evidence.past.problem}", markup=False, style="yellow")
    if smoke.scaling is not None and job.node is None and len(plan.nodes) > 1:
        nodes = {node.name: _alone(current, node.name, plan_alone) for node in plan.nodes}
        evidence.alone = Alone(share=smoke.scaling, nodes=nodes)


def _alone(current: Session, node: str, plan_alone: PlanAlone) -> OneAlone | None:
    """What a node did by itself: in this run, or else in earlier ones."""
    assert current.record is not None
    own = next((job for job in current.record.jobs if job.name == job_name(node)), None)
    if own is not None:
        return own_figures(own, current.record.run_id)
    try:
        plan = plan_alone(node)
    except PlanError:
        return None
    past = past_of(
        JobRecord(node=node, plan=plan), current.examination.states, current.record.run_id, Wanted(judge=False)
    )
    return earlier_own_figures(past, plan.world_size)
