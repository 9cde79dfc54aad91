"""Evidence for the gates besides the logs: earlier runs, and each node's own single-node run."""

from collections.abc import Callable, Sequence

from shakedown.desired.models import Smoke
from shakedown.gates.observed import Alone, OneAlone
from shakedown.jobs.launch import LaunchPlan, job_name
from shakedown.jobs.plan import PlanError
from shakedown.ledger.compared import Wanted, earlier_own_figures, know_peers, own_figures, past_of, usual_ledger
from shakedown.runner.session import Session
from shakedown.runs.directory import JobRecord

PlanAlone = Callable[[str], LaunchPlan]


def compare_with_earlier(current: Session, jobs: Sequence[JobRecord]) -> None:
    """Put the earlier runs into the evidence of jobs, as far as the desired state asks for a comparison. A ledger that
    cannot be read is told, and decides nothing unless the figures are to be judged by it."""
    record, _ = current.begun
    training = [(job, wanted) for job in jobs if (smoke := _smoke(current, job)) and (wanted := Wanted.of(smoke))]
    ledger, states = usual_ledger() if training else None, current.examination.states
    for job, wanted in training:
        current.evidence[job.name].past = past_of(job, states, record.run_id, wanted, ledger)
    given = {job.name: past for job in jobs if (past := current.evidence[job.name].past)}
    know_peers({job.node: past for job in jobs if job.node and (past := given.get(job.name))})
    for problem in dict.fromkeys(past.problem for past in given.values() if past.problem and not past.judge):
        current.say(problem, style="yellow")
    for begun in dict.fromkeys(past.new_epoch for past in given.values() if past.new_epoch):
        current.say(begun)


def compare_with_alone(current: Session, job: JobRecord, plan_alone: PlanAlone) -> None:
    """Put the single-node figures of its nodes into the evidence of a job over several, where that is requested."""
    smoke, plan = _smoke(current, job), job.plan
    if smoke and plan and smoke.scaling is not None and job.node is None and len(plan.nodes) > 1:
        nodes = {node.name: _alone(current, node.name, plan_alone) for node in plan.nodes}
        current.evidence[job.name].alone = Alone(share=smoke.scaling, nodes=nodes)


def _smoke(current: Session, job: JobRecord) -> Smoke | None:
    return None if job.plan is None or job.trials else current.examination.desired[job.plan.driver].smoke


def _alone(current: Session, node: str, plan_alone: PlanAlone) -> OneAlone | None:
    """Return the node's single-node figures, of this run or else of earlier ones."""
    record, _ = current.begun
    own = next((job for job in record.jobs if job.name == job_name(node)), None)
    if own is not None:
        return own_figures(own, record.run_id)
    try:
        plan = plan_alone(node)
    except PlanError:
        return None
    job = JobRecord(node=node, plan=plan)
    past = past_of(job, current.examination.states, record.run_id, Wanted(judge=False))
    return earlier_own_figures(past, plan.world_size)
