"""One group's training as a smoke job: its plan, and the outcome of its job."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from shakedown.desired.models import TOGETHER, DesiredState
from shakedown.evidence.results import JobResult
from shakedown.gates import NodeLog
from shakedown.gates.judgement import Judgement, judge
from shakedown.gates.observed import JobEnd, LogCopies
from shakedown.jobs.launch import Job, LaunchPlan
from shakedown.jobs.plan import make_plan
from shakedown.jobs.plan.participants import ranks_of
from shakedown.logs.kept_logs import KeptLog
from shakedown.recipes.fitting import recipe_for
from shakedown.recipes.options import share
from shakedown.runs import copies
from shakedown.runs.directory import RunDirectory
from shakedown.runs.isolation import Group, Outcome, Training, short
from shakedown.state.findings import Verdict
from shakedown.state.node import NodeState

ITERATIONS = 10
"""Of a training of the search: the first ones are warm-up, and the median of the others is an iteration's time."""


def scale_to_group(desired: Mapping[str, DesiredState], nodes: int) -> dict[str, DesiredState]:
    """Scale the desired states to a short job over `nodes`, the same work for each: the global batch is shared."""
    return {name: _scale(state, len(desired), nodes) for name, state in desired.items()}


def _scale(desired: DesiredState, part: int, nodes: int) -> DesiredState:
    smoke = desired.smoke
    if smoke is None:
        return desired
    recipe = recipe_for(smoke, [desired.gpu.profile])
    options = dict(smoke.options)
    if recipe is not None:
        options = share(recipe, smoke, part, nodes, ranks_of(desired, smoke, recipe) or 1)
        options.pop(recipe.family.role_options.get("iterations", ""), None)
    wanted = {"scope": [TOGETHER], "iterations": ITERATIONS, "options": options, "min_nodes": None, "seen_nodes": None}
    wanted |= dict(steady=False)  # noqa: C408 - a key, not the gate's name: too few lines for it, `pace` judges these
    return desired.model_copy(update={"smoke": smoke.model_copy(update=wanted)})


def plan_group(
    group: Group, desired: Mapping[str, DesiredState], states: Mapping[str, NodeState], nodes: int, run_id: str
) -> LaunchPlan:
    """Plan the job of a group, in a search over `nodes` nodes. Raises PlanError with everything that does not fit."""
    own = scale_to_group({name: desired[name] for name in group.nodes}, nodes)
    there = {name: states[name] for name in group.nodes if name in states}
    return make_plan(own, there, run_id)


def judge_training(group: Group, job: Job, directory: RunDirectory) -> Training:
    """Judge a group's job: a failed gate is a failure; one that never began, was stopped or not judged is `unknown`."""
    result = job.result
    folder = str(job.log_dir.relative_to(directory.path))
    if result is None or job.plan is None:
        return Training(group=group, outcome="unknown", why=short(job.error or "the job did not begin"))
    seconds = max((result.finished_at - result.started_at).total_seconds(), 0.0) if result.started_at else 0.0
    base = Training(group=group, outcome="unknown", why=short(result.reason), seconds=seconds, logs=folder)
    if result.started_at is None or result.outcome in ("interrupted", "not started"):
        return base
    judgement = _judgement(job.plan, result, directory)
    outcome, reason = _outcome(judgement, result)
    step = judgement.figures.elapsed_time_per_iteration
    return base.model_copy(
        update={"outcome": outcome, "why": short(reason), "step_ms": step.value if step is not None else None}
    )


def _outcome(judgement: Judgement, result: JobResult) -> tuple[Outcome, str]:
    failed = [gate for gate in judgement.gates if gate.verdict == Verdict.FAIL]
    unknown = [gate for gate in judgement.gates if gate.verdict == Verdict.UNKNOWN]
    if failed:
        first = result.first_failure
        return "fail", first.text if first is not None else f"{failed[0].name}: {failed[0].evidence}"
    if unknown:
        return "unknown", f"{unknown[0].name}: {unknown[0].evidence}"
    return "pass", ""


def _judgement(plan: LaunchPlan, result: JobResult, directory: RunDirectory) -> Judgement:
    """Judge the gates over logs and exit codes. Counters belong to the whole run and are not read for a training."""
    return judge(
        plan,
        LogCopies({node.name: _leader(node.kept, directory) for node in result.nodes}),
        JobEnd(
            exit_codes={node.name: node.exit_code for node in result.nodes},
            stopped=None if result.completed else result.reason,
            stopped_nodes=[node.name for node in result.nodes if node.stopped],
        ),
    )


def _leader(logs: Sequence[KeptLog], directory: RunDirectory) -> NodeLog | None:
    if not logs:
        return None
    path = str(Path(logs[0].path).relative_to(directory.path))
    return copies.read_kept(directory.path, logs[0].model_copy(update={"path": path}))
