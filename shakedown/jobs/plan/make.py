"""From desired states and node states to one launch plan, with what of it is judged; or to everything in its way."""

import os
from collections.abc import Mapping, Sequence

from shakedown.common.data import kept_toml
from shakedown.common.text import counted
from shakedown.desired.models import DesiredState
from shakedown.evidence.stragglers.judge import LEAST_NODES
from shakedown.evidence.stragglers.model import Limits
from shakedown.jobs.launch import Derived, LaunchPlan
from shakedown.jobs.plan import participants
from shakedown.jobs.plan.container import equip
from shakedown.jobs.plan.draft import PlanDraft, PlanError, PlannedJob
from shakedown.jobs.plan.environment import check_typed_devices, note_environment, note_rccl_changes
from shakedown.jobs.plan.network import Endpoint, assignment_of, hcas_of, master_port, rendezvous_of
from shakedown.jobs.plan.participants import Split
from shakedown.jobs.plan.runtimes import RUNTIMES
from shakedown.jobs.remote import TOKEN
from shakedown.recipes.documents import documents
from shakedown.recipes.fitting import fit
from shakedown.recipes.options import ResolvedOptions, choose, documented
from shakedown.recipes.program import further_option, gated, of_image
from shakedown.recipes.recipe import recipes
from shakedown.state.node import NodeState


def make_plan(
    desired: Mapping[str, DesiredState],
    states: Mapping[str, NodeState],
    run_id: str,
    missing: Mapping[str, str] | None = None,
    alone: str | None = None,
    repaired: bool = False,
) -> LaunchPlan:
    """Make the plan of one job of a smoke run. The desired states have a section smoke, were checked by
    jobs/preflight.py, and are in the inventory's order: the nodes that are not `missing` (node -> reason) take part, in
    the order of their ranks; or, of them, the one that trains `alone`. `repaired`: with the GPUs that the nodes should
    have. Raises PlanError with all the problems."""
    missing = dict(missing or {})
    names, problems = participants.participants(desired, states, missing, alone)
    smokes = {name: smoke for name in names if (smoke := desired[name].smoke) is not None}
    if not smokes:
        raise PlanError(problems)
    problems += participants.same_smoke(smokes)
    smoke = smokes[names[0]]
    mine, theirs = {name: desired[name] for name in names}, {name: states[name] for name in names}
    recipe, unfit = fit(recipes()[smoke.recipe], smoke, {own.gpu.profile for own in mine.values()})
    draft = PlanDraft(run_id, recipe, mine, theirs, smoke, alone is not None, repaired, problems=[*problems, *unfit])
    return _complete(draft, missing if alone is None else {})


def _complete(draft: PlanDraft, missing: dict[str, str]) -> LaunchPlan:
    smoke, recipe = draft.smoke, draft.recipe
    runtime = smoke.runtime or recipe.family.runtimes[0]
    chosen = _options(draft)
    participants.node_count(draft)
    participants.supported_gpus(draft)
    sizes, endpoints, port = _ranks(draft, chosen)
    hcas = hcas_of(draft)
    image, equipment = equip(draft, chosen) if runtime == "container" else (None, {})
    note_environment(draft)
    check_typed_devices(draft)
    images = draft.desired[draft.master].images
    reference = images[smoke.image].reference if smoke.image in images else None  # as the desired state names it
    stragglers = straggler_limits(draft, chosen, sizes.world_size if sizes else 0, reference)
    _versions(draft, chosen, reference)
    token = _tokenizer(draft, chosen, reference)
    figures, recorded = expected(draft, chosen)
    with_roles = recipe.family.roles is not None  # else no iteration is known, nor known to be steady
    judged = [*draft.desired.values()] if with_roles else []
    if sizes is None:
        raise PlanError(draft.problems)
    endpoints = endpoints or dict.fromkeys(draft.states, Endpoint("", ""))
    address = endpoints[draft.master].address
    ranks = sizes.world_size // len(endpoints)
    job = PlannedJob(draft.run_id, chosen, len(endpoints), ranks, address, port or 0, image, hf_token=token)
    ends = enumerate(endpoints.items())
    assignments = [assignment_of(draft, rank, name, end, hcas, equipment) for rank, (name, end) in ends]
    note_rccl_changes(draft, job, assignments)
    plan = LaunchPlan(
        run_id=draft.run_id,
        recipe=recipe.name,
        parser=recipe.family.parser,
        runtime=runtime,
        image=image,
        declared_image=reference if image else None,
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
        start_timeout_s=smoke.start_timeout_s if with_roles else smoke.timeout_s,
        stall_timeout_s=smoke.stall_timeout_s if with_roles else smoke.timeout_s,
        timeout_s=smoke.timeout_s,
        unreachable_s=smoke.unreachable_s,
        telemetry_s=smoke.telemetry_s,
        no_throttling=sorted({reason for node in judged for reason in node.gpu.no_throttling}),
        kernel_log_clean=smoke.telemetry_s is not None and any(node.system.kernel_log_clean for node in judged),
        stragglers=stragglers,
        gpus=sorted({node.gpu.profile for node in draft.desired.values() if node.gpu.profile}),
        steady=smoke.steady,
    )
    if draft.problems:
        raise PlanError(draft.problems, plan)
    return plan


def _ranks(draft: PlanDraft, chosen: ResolvedOptions) -> tuple[Split | None, dict[str, Endpoint], int | None]:
    """Derive how the ranks divide the work, where they meet and at which port; None: unknown, or the program's own."""
    recipe = draft.recipe
    if recipe.family.roles is None:
        return participants.NO_SPLIT, {}, 0
    before = len(draft.problems)
    ranks = participants.ranks_per_node(draft)
    if draft.repaired or len(draft.problems) > before:  # a dry run shows the job as it should be
        ranks = participants.ranks_of(draft.desired[draft.master], draft.smoke, recipe) or ranks
    sizes = participants.division(draft, chosen, ranks) if ranks else None
    return sizes, rendezvous_of(draft), master_port(draft)


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
    wanted, exported = draft.recipe.family.tokenizer, bool(os.environ.get(TOKEN))  # what is exported wins
    has_token = draft.recipe.family.launch.hf_token is not None and (exported or bool(draft.smoke.hf_token_file))
    if has_token:
        draft.note(TOKEN, "(not shown)", f"{TOKEN} as it is exported on this machine" if exported else "hf_token_file")
    tokenizer = chosen.value(wanted.option) if wanted and wanted.option else None
    if wanted is None or str(tokenizer or "").startswith("/"):  # a folder
        return has_token
    model = wanted.fixed.get(image_reference or "") or str(tokenizer or wanted.model)
    if gated(model) and not has_token:
        folder = f"smoke.options.{wanted.option} as a folder of smoke.volumes" if wanted.option else "a volume with it"
        ways = f"smoke.hf_token_file, {TOKEN} exported here, or {folder}"
        draft.note("warning: tokenizer", model, f"gated on Hugging Face, and there is no token: {ways}")
    return has_token


def expected(draft: PlanDraft, chosen: ResolvedOptions) -> tuple[dict[str, float], list[str]]:
    """Metric -> bound, and the metrics that are only recorded; note why figures of the recipe are not used."""
    smoke, desired = draft.smoke, draft.desired
    models = sorted({node.gpu.profile for node in desired.values()})
    figures, derived = published(chosen, models, len(desired))
    draft.derived += derived
    if smoke.expect_nodes in (None, len(desired)):
        figures |= smoke.expect
    elif smoke.expect:
        shown = ", ".join(f"{metric} {bound:g}" for metric, bound in smoke.expect.items())
        counts = f"{smoke.expect_nodes} node(s), not {len(desired)}"
        reason = f"not judged: smoke.expect_nodes says that they hold for {counts}"
        draft.note("expected figures", shown, reason)
    recorded = [metric for metric in chosen.recipe.family.metrics if metric not in figures]
    return figures, recorded


def published(chosen: ResolvedOptions, models: Sequence[str], nodes: int) -> tuple[dict[str, float], list[Derived]]:
    """Return the recipe's figures for so many nodes with these GPUs, and why others of its figures are not used."""
    fitting = [entry for entry in chosen.recipe.entry.expect if all(gpu in entry.gpus for gpu in models)]
    derived: list[Derived] = []
    if not fitting:
        return {}, derived
    option = chosen.recipe.family.batch_option
    changed = [name for name in chosen.changed if name != option]
    steps, total = documented(chosen.recipe).steps, chosen.value(option)
    for expect in fitting:
        shown = ", ".join(f"{metric} {bound:g}" for metric, bound in expect.figures.items())
        theirs = documented(chosen.recipe, expect.nodes)
        if expect.nodes != nodes:
            reason = f"not judged: they hold for {expect.nodes} node(s), not for {nodes}"
            if theirs.steps == steps and not changed and option not in chosen.requested:
                reason += f"; the work of a GPU is the same ({counted(steps, 'step')}), the network differs"
        elif changed:
            reason = f"not judged: they hold for the recipe's own {', '.join(changed)}"
        elif theirs.batch != total:
            reason = f"not judged: they hold for {option} = {theirs.batch}, and this job has {total}"
        else:
            reason = f"{documents()[expect.source]}, for {expect.nodes} x {'/'.join(models)}"
            return dict(expect.figures), [Derived(name="expected figures", value=shown, why=reason)]
        derived.append(Derived(name="expected figures", value=shown, why=reason))
    return {}, derived


_OWN = "log_straggler"  # of this project's workload, and Primus's name of Megatron's
_SWITCHES = (_OWN, "log-straggler")
_COUNTS = ("straggler_minmax_count", "straggler-minmax-count")


def straggler_limits(draft: PlanDraft, chosen: ResolvedOptions, world: int, reference: str | None) -> Limits | None:
    """Return the limits of compared ranks, and switch on their reports; the site's own options stay."""
    smoke, nodes = draft.smoke, len(draft.states)
    gate = smoke.stragglers == "gate"
    if smoke.stragglers == "off" or (nodes < LEAST_NODES and (not gate or draft.alone)):
        return None
    notice, warn, fail = smoke.straggler_notice, smoke.straggler_warn, smoke.straggler_fail
    limits = Limits(gate=gate, notice=notice, warn=warn, fail=fail, unequal=_unequal(draft, chosen))
    if _OWN in draft.recipe.family.options:
        chosen.given.setdefault(_OWN, True)
        return limits
    if gate:
        _switch_on(draft, chosen, world, reference)
    return limits if gate or any(chosen.is_given(name) for name in _SWITCHES) else None


def _unequal(draft: PlanDraft, chosen: ResolvedOptions) -> str:
    """Return why ranks of one role may have unequal work. Empty: the plan shows that they have equal work."""
    family = draft.recipe.family
    if "pipeline_parallel" not in family.role_options:
        stages = family.role_options.keys() | {name.replace("-", "_") for name in chosen.given}
        if any("pipeline" in name for name in stages):
            return "the program's pipeline stages are not known"
    unequal = kept_toml("shakedown.evidence.stragglers", "unequal.toml")["options"]
    for name in chosen.given:
        plain = name.replace("-", "_").lower()
        if plain in unequal and chosen.is_given(name) and str(chosen.given[name]) not in ("0", "1"):
            return f"{name}: {unequal[plain]}"
    return ""


def _switch_on(draft: PlanDraft, chosen: ResolvedOptions, world: int, reference: str | None) -> None:
    """Have Megatron report all ranks: the count is of the lower half and of the upper one, and below the world size."""
    many = (world + 1) // 2
    wanted: list[tuple[tuple[str, ...], str | int]] = [(_SWITCHES, "true")]
    if 1 < many < world:
        wanted.append((_COUNTS, many))
    for names, value in wanted:
        name = next((candidate for candidate in names if _taken(draft, candidate, reference)), None)
        if name is None:
            draft.note("note: stragglers", "not measured", f"the program has no argument {' or '.join(names)}")
            return
        option = chosen.option(name) or further_option(draft.recipe.family, name)
        if option is not None and name not in chosen.given:
            if name not in draft.recipe.family.options:
                chosen.extra[name] = option
            chosen.given[name] = True if option.type == "flag" else option.parse(value)
            draft.note(name, str(value), "smoke.stragglers is gate; Megatron listens on a port of rank 0's node for it")


def _taken(draft: PlanDraft, name: str, reference: str | None) -> bool:
    family = draft.recipe.family
    known = of_image(family, reference)
    return bool(known) and all(version.takes(name, family.script) for version in known)
