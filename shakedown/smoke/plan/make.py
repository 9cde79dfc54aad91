"""From desired states and node states to one launch plan, or to everything that stands in its way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from shakedown.desired.models import DesiredState
from shakedown.desired.problems import Problem
from shakedown.smoke.launch import LaunchPlan
from shakedown.smoke.options import choose
from shakedown.smoke.plan import derive
from shakedown.smoke.plan.draft import Draft
from shakedown.smoke.plan.error import PlanError
from shakedown.smoke.plan.expectations import expected
from shakedown.smoke.plan.network import Place
from shakedown.smoke.plan.participants import participants, ranks_per_node, same_smoke
from shakedown.smoke.plan.rdma import Hcas
from shakedown.smoke.recipe import recipes
from shakedown.smoke.runtimes import RUNTIMES, Equipment, Job, Seat
from shakedown.state import NodeState


def make_plan(
    desired: Mapping[str, DesiredState],
    states: Mapping[str, NodeState],
    order: Sequence[str],
    run_id: str,
    missing: Mapping[str, str] | None = None,
    alone: str | None = None,
) -> LaunchPlan:
    """The plan of one job of a smoke run.

    `order` is the inventory's: the nodes of it that are not `missing` (node -> why) take part, and their places are
    their ranks; or, of them, the one that trains `alone`. Raises PlanError with all the problems.
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
    draft = Draft(run_id, recipe, mine, theirs, smoke, alone is not None, problems=problems)
    return _complete(draft, missing if alone is None else {})


def _complete(draft: Draft, missing: dict[str, str]) -> LaunchPlan:
    smoke, recipe = draft.smoke, draft.recipe
    runtime = smoke.runtime or recipe.family.runtimes[0]
    if runtime not in recipe.family.runtimes:
        expected_runtime = f"{' or '.join(recipe.family.runtimes)} with {recipe.name}"
        draft.refuse("smoke", "smoke.runtime", runtime, expected_runtime)
    chosen, problems = choose(recipe, smoke)
    draft.problems += problems
    for name, why in chosen.forced.items():
        draft.tell(name, chosen.given[name], why)
    for name, why in recipe.entry.corrected.items():
        value = chosen.value(name)
        draft.tell(name, "left out" if value is None else value, why)
    derive.node_count(draft)
    derive.supported_gpus(draft)
    ranks = ranks_per_node(recipe, smoke, draft.states, draft.problems, draft.derived)
    sizes = derive.division(draft, chosen, ranks) if ranks else None
    meeting = derive.meeting(draft)
    port = derive.master_port(draft)
    hcas = derive.hcas(draft)
    image, equipment = derive.equipment(draft, chosen) if runtime == "container" else (None, {})
    derive.environment(draft, chosen)
    reference = _reference(draft)
    derive.versions(draft, chosen, reference)
    token = derive.tokenizer(draft, chosen, reference)
    figures, recorded, told = expected(chosen, smoke, draft.desired)
    draft.derived += told
    if draft.problems or ranks is None or sizes is None or meeting is None or port is None:
        raise PlanError(draft.problems)

    places = meeting.places
    address = places[draft.master].address
    job = Job(draft.run_id, chosen, sizes, len(places), ranks, address, port, image, hf_token=token)
    seats = [_seat(draft, rank, name, places[name], hcas, equipment) for rank, name in enumerate(places)]
    derive.warnings_heard(draft, job, seats)
    return LaunchPlan(
        run_id=draft.run_id,
        recipe=recipe.name,
        runtime=runtime,
        image=image,
        nodes=[RUNTIMES[runtime](job, seat) for seat in seats],
        missing=missing,
        world_size=sizes.world_size,
        tensor_parallel=sizes.tensor,
        pipeline_parallel=sizes.pipeline,
        data_parallel=sizes.data,
        micro_batch=sizes.micro_batch,
        global_batch=sizes.global_batch,
        seq_length=chosen.role("seq_length"),
        iterations=chosen.role("iterations"),
        master_address=address,
        master_port=port,
        derived=draft.derived,
        expect=figures,
        recorded=recorded,
        start_timeout_s=smoke.start_timeout_s,
        stall_timeout_s=smoke.stall_timeout_s,
        timeout_s=smoke.timeout_s,
        unreachable_s=smoke.unreachable_s,
    )


def _reference(draft: Draft) -> str | None:
    """The image as the desired state names it; None: none, or none of that name."""
    images = draft.desired[draft.master].images
    return images[draft.smoke.image].reference if draft.smoke.image in images else None


def _seat(
    draft: Draft, rank: int, name: str, place: Place, hcas: Mapping[str, Hcas], equipment: Mapping[str, Equipment]
) -> Seat:
    return Seat(
        name=name,
        node_rank=rank,
        address=place.address,
        interface=place.interface,
        hca=hcas[name].names,
        gid_index=hcas[name].gid_index,
        desired=draft.desired[name],
        state=draft.states[name],
        equipment=equipment.get(name, Equipment()),
    )
