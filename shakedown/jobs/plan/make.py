"""From desired states and node states to one launch plan, or to everything that stands in its way."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from shakedown.desired.models import DesiredState
from shakedown.desired.problems import Problem
from shakedown.jobs.launch import LaunchPlan
from shakedown.jobs.payload import TOKEN, where_from
from shakedown.jobs.plan.container import equip
from shakedown.jobs.plan.draft import PlanDraft, PlanError, PlannedJob
from shakedown.jobs.plan.environment import check_typed_devices, note_environment, note_rccl_changes
from shakedown.jobs.plan.expectations import expected, straggler_limits
from shakedown.jobs.plan.network import Endpoint, Rendezvous, assignment_of, hcas_of, master_port, rendezvous_of
from shakedown.jobs.plan.participants import (
    NO_SPLIT,
    Split,
    division,
    node_count,
    participants,
    ranks_of,
    ranks_per_node,
    same_smoke,
    supported_gpus,
)
from shakedown.jobs.plan.runtimes import RUNTIMES
from shakedown.recipes.fitting import fit
from shakedown.recipes.options import ResolvedOptions, choose
from shakedown.recipes.program import gated, of_image
from shakedown.recipes.recipe import recipes
from shakedown.state.node import NodeState


def make_plan(
    desired: Mapping[str, DesiredState],
    states: Mapping[str, NodeState],
    order: Sequence[str],
    run_id: str,
    missing: Mapping[str, str] | None = None,
    alone: str | None = None,
    repaired: bool = False,
) -> LaunchPlan:
    """Make the plan of one job of a smoke run.

    `order` is the inventory's: the nodes of it that are not `missing` (node -> reason) take part, in the order of their
    ranks; or, of them, the one that trains `alone`. `repaired`: with the GPUs that the nodes should have. Raises
    PlanError with all the problems.
    """
    missing = dict(missing or {})
    names, problems = participants(desired, states, order, missing, alone)
    smokes = {name: smoke for name in names if (smoke := desired[name].smoke) is not None}
    if not smokes:
        raise PlanError(problems)
    problems += same_smoke(smokes)
    smoke = smokes[names[0]]
    recipe = recipes().get(smoke.recipe)
    if recipe is None:
        unknown = Problem("smoke", "smoke.recipe", repr(smoke.recipe), f"one of {', '.join(recipes())}")
        raise PlanError([*problems, unknown])
    mine, theirs = {name: desired[name] for name in names}, {name: states[name] for name in names}
    recipe, unfit = fit(recipe, smoke, {own.gpu.profile for own in mine.values()})
    draft = PlanDraft(run_id, recipe, mine, theirs, smoke, alone is not None, repaired, problems=[*problems, *unfit])
    return _complete(draft, missing if alone is None else {})


def _complete(draft: PlanDraft, missing: dict[str, str]) -> LaunchPlan:
    smoke, recipe = draft.smoke, draft.recipe
    runtime = _runtime(draft)
    chosen = _options(draft)
    node_count(draft)
    supported_gpus(draft)
    sizes, rendezvous, port = _ranks(draft, chosen)
    hcas = hcas_of(draft)
    image, equipment = equip(draft, chosen) if runtime == "container" else (None, {})
    note_environment(draft, chosen)
    check_typed_devices(draft)
    reference = _reference(draft)
    stragglers = straggler_limits(draft, chosen, sizes.world_size if sizes else 0, reference)
    _versions(draft, chosen, reference)
    token = _tokenizer(draft, chosen, reference)
    figures, recorded, derived = expected(chosen, smoke, draft.desired)
    draft.derived += derived
    rendezvous = rendezvous or Rendezvous(dict.fromkeys(draft.states, Endpoint("", "")), "unknown")
    if sizes is None:
        raise PlanError(draft.problems)
    endpoints = rendezvous.endpoints
    address = endpoints[draft.master].address
    ranks = sizes.world_size // len(endpoints)
    job = PlannedJob(draft.run_id, chosen, len(endpoints), ranks, address, port or 0, image, hf_token=token)
    assignments = [
        assignment_of(draft, rank, name, endpoints[name], hcas, equipment) for rank, name in enumerate(endpoints)
    ]
    note_rccl_changes(draft, job, assignments)
    plan = LaunchPlan(
        run_id=draft.run_id,
        recipe=recipe.name,
        parser=recipe.family.parser,
        runtime=runtime,
        image=image,
        nodes=[RUNTIMES[runtime](job, node) for node in assignments],
        missing=missing,
        world_size=sizes.world_size,
        tensor_parallel=sizes.tensor,
        pipeline_parallel=sizes.pipeline,
        data_parallel=sizes.data,
        micro_batch=sizes.micro_batch,
        global_batch=sizes.global_batch,
        seq_length=int(chosen.value(recipe.family.role_options.get("seq_length", "seq_length")) or 0),
        iterations=chosen.role("iterations", otherwise=0),
        parameters={**chosen.parameters(), **smoke.environment},
        master_address=address,
        master_port=port or 0,
        derived=draft.derived,
        expect=figures,
        recorded=recorded,
        **_limits(draft),
        stragglers=stragglers,
        gpus=sorted({node.gpu.profile for node in draft.desired.values() if node.gpu.profile}),
        steady=smoke.steady,
    )
    if draft.problems:
        raise PlanError(draft.problems, plan)
    return plan


def _ranks(draft: PlanDraft, chosen: ResolvedOptions) -> tuple[Split | None, Rendezvous | None, int | None]:
    """How the ranks divide the work, where they meet, and at which port; None for what cannot be derived. A program
    without roles knows that itself."""
    recipe = draft.recipe
    if recipe.family.roles is None:
        return NO_SPLIT, Rendezvous(dict.fromkeys(draft.states, Endpoint("", "")), recipe.family.description), 0
    before = len(draft.problems)
    ranks = ranks_per_node(recipe, draft.smoke, draft.states, draft.problems, draft.derived)
    if draft.repaired or len(draft.problems) > before:  # a dry run shows the job as it should be
        ranks = ranks_of(draft.desired[draft.master], draft.smoke, recipe) or ranks
    sizes = division(draft, chosen, ranks) if ranks else None
    return sizes, rendezvous_of(draft), master_port(draft)


def _runtime(draft: PlanDraft) -> Literal["container", "process"]:
    runtimes = draft.recipe.family.runtimes
    runtime = draft.smoke.runtime or runtimes[0]
    if runtime not in runtimes:
        draft.refuse("smoke", "smoke.runtime", runtime, f"{' or '.join(runtimes)} with {draft.recipe.name}")
    return runtime


def _options(draft: PlanDraft) -> ResolvedOptions:
    """Choose the options, and note those that a rule or a correction sets."""
    chosen, problems = choose(draft.recipe, draft.smoke)
    draft.problems += problems
    for name, source in draft.recipe.entry.origin.items():
        own, value = draft.recipe.entry.options[name], chosen.value(name)
        draft.note(name, own, source) if own == value else draft.note(name, value, f"the site's; {own} in {source}")
    for name, reason in chosen.forced.items():
        draft.note(name, chosen.given[name], reason)
    for name, reason in draft.recipe.entry.corrected.items():
        value = chosen.value(name)
        draft.note(name, "left out" if value is None else value, reason)
    return chosen


def _limits(draft: PlanDraft) -> dict[str, Any]:
    """Return the plan's limits in time, and what its nodes' GPUs and kernel logs must not show."""
    smoke = draft.smoke
    with_roles = draft.recipe.family.roles is not None  # else no iteration is known, nor known to be steady
    nodes = draft.desired.values() if with_roles else ()
    return {
        "start_timeout_s": smoke.start_timeout_s if with_roles else smoke.timeout_s,
        "stall_timeout_s": smoke.stall_timeout_s if with_roles else smoke.timeout_s,
        "timeout_s": smoke.timeout_s,
        "unreachable_s": smoke.unreachable_s,
        "telemetry_s": smoke.telemetry_s,
        "no_throttling": sorted({reason for node in nodes for reason in node.gpu.no_throttling}),
        "kernel_log_clean": smoke.telemetry_s is not None and any(node.system.kernel_log_clean for node in nodes),
    }


def _reference(draft: PlanDraft) -> str | None:
    """Return the image as the desired state names it; None where it names none, or none of that name."""
    images = draft.desired[draft.master].images
    return images[draft.smoke.image].reference if draft.smoke.image in images else None


def _versions(draft: PlanDraft, chosen: ResolvedOptions, image_reference: str | None) -> None:
    """Options that not every version of the program takes which was read, or that one of them sets itself."""
    family = draft.recipe.family
    known = of_image(family, image_reference)
    for name in chosen.given:
        option = chosen.option(name)
        if option is None or option.placed:
            continue
        word = (option.argument or name).removeprefix("--")
        without = [version for version in known if not version.takes(word, family.script)]
        own = [version for version in without if word in version.sets.get(family.script or "", [])]
        if without and name not in draft.recipe.entry.corrected:
            what = "sets it itself" if own else "has no such argument" if option.argument else "reads no such variable"
            where = ", ".join(f"{version.source} at {version.commit[:7]} ({version.date})" for version in without)
            draft.note(f"note: {name}", chosen.given[name], f"{where} {what}")


def _tokenizer(draft: PlanDraft, chosen: ResolvedOptions, image_reference: str | None) -> bool:
    """Which tokenizer is downloaded, and whether it can be. Returns whether the job gets a token."""
    wanted, source = draft.recipe.family.tokenizer, where_from(draft.smoke.hf_token_file)
    has_token = draft.recipe.family.launch.hf_token is not None and source is not None
    if has_token:
        draft.note(TOKEN, "(not shown)", str(source))
    tokenizer = chosen.value(wanted.option) if wanted and wanted.option else None
    if wanted is None or str(tokenizer or "").startswith("/"):  # a folder
        return has_token
    model = wanted.fixed.get(image_reference or "") or str(tokenizer or wanted.model)
    if gated(model) and not has_token:
        folder = f"smoke.options.{wanted.option} as a folder of smoke.volumes" if wanted.option else "a volume with it"
        reason = (
            f"gated on Hugging Face, and there is no token: smoke.hf_token_file, {TOKEN} exported here, or {folder}"
        )
        draft.note("warning: tokenizer", model, reason)
    return has_token
