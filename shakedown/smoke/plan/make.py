"""From desired states and node states to one launch plan, or to everything that stands in its way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from shakedown.desired.models import DesiredState, Smoke
from shakedown.desired.problems import Problem
from shakedown.smoke.launch import Derived, LaunchPlan
from shakedown.smoke.options import Chosen, choose
from shakedown.smoke.plan import expectations, image, memory, network
from shakedown.smoke.plan.batch import Split, split
from shakedown.smoke.plan.error import PlanError
from shakedown.smoke.plan.participants import participants, ranks_per_node, same_smoke
from shakedown.smoke.plan.rdma import Hcas, find_hcas
from shakedown.smoke.recipe import Recipe, recipes
from shakedown.smoke.runtimes import RUNTIMES, Job, Seat
from shakedown.state import NodeState


@dataclass
class _Draft:
    """What is known so far, and what is wrong so far."""

    run_id: str
    desired: dict[str, DesiredState]
    states: dict[str, NodeState]  # of the participants, in rank order
    smoke: Smoke
    derived: list[Derived] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)

    def tell(self, name: str, value: object, why: str) -> None:
        self.derived.append(Derived(name=name, value=str(value), why=why))


def make_plan(
    desired: Mapping[str, DesiredState],
    states: Mapping[str, NodeState],
    order: Sequence[str],
    run_id: str,
    missing: Mapping[str, str] | None = None,
) -> LaunchPlan:
    """The plan of one smoke run.

    `order` is the inventory's: the nodes of it that are not `missing` (node -> why) take part, and their places are
    their ranks. Raises PlanError with all the problems.
    """
    missing = dict(missing or {})
    names, problems = participants(desired, states, order, missing)
    if not names:
        raise PlanError(problems)
    smokes = {name: smoke for name in names if (smoke := desired[name].smoke) is not None}
    problems += same_smoke(smokes)
    first = smokes[names[0]]
    recipe = recipes().get(first.recipe)
    if recipe is None:
        problems.append(Problem("smoke", "smoke.recipe", repr(first.recipe), f"one of {', '.join(recipes())}"))
        raise PlanError(problems)
    draft = _Draft(run_id, {n: desired[n] for n in names}, {n: states[n] for n in names}, first, problems=problems)
    return _draw(draft, recipe, missing)


def _draw(draft: _Draft, recipe: Recipe, missing: dict[str, str]) -> LaunchPlan:
    runtime = draft.smoke.runtime or recipe.family.runtimes[0]
    if runtime not in recipe.family.runtimes:
        expected = f"{' or '.join(recipe.family.runtimes)} with {recipe.name}"
        draft.problems.append(Problem("smoke", "smoke.runtime", runtime, expected))
    chosen, problems = choose(recipe, draft.smoke)
    draft.problems += problems
    for name, why in chosen.forced.items():
        draft.tell(name, chosen.given[name], why)
    _node_count(draft, recipe)
    ranks = ranks_per_node(recipe, draft.smoke, draft.states, draft.problems, draft.derived)
    sizes = _divide(draft, chosen, ranks) if ranks else None
    meeting = _meet(draft)
    port = _port(draft)
    hcas = _hcas(draft)
    reference = None
    if runtime == "container":
        reference, told, problems = image.pin(recipe, draft.desired[next(iter(draft.states))], draft.states)
        draft.derived += told
        draft.problems += problems
    if draft.problems or sizes is None or meeting is None or ranks is None:
        raise PlanError(draft.problems)

    expect, recorded, told = expectations.expected(chosen, draft.smoke, draft.desired)
    draft.derived += told
    master = next(iter(meeting.places.values())).address
    job = Job(
        run_id=draft.run_id,
        chosen=chosen,
        split=sizes,
        nodes=len(draft.states),
        ranks=ranks,
        master_address=master,
        master_port=port,
        image=reference,
        hf_token=draft.smoke.hf_token_file is not None,
    )
    seats = [
        Seat(
            name,
            rank,
            place.address,
            place.interface,
            hcas[name].names,
            hcas[name].gid_index,
            draft.desired[name],
            state,
        )
        for rank, ((name, state), place) in enumerate(zip(draft.states.items(), meeting.places.values(), strict=True))
    ]
    return LaunchPlan(
        run_id=draft.run_id,
        recipe=recipe.name,
        runtime=runtime,
        image=reference,
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
        master_address=master,
        master_port=port,
        derived=draft.derived,
        expect=expect,
        recorded=recorded,
        start_timeout_s=draft.smoke.start_timeout_s,
        stall_timeout_s=draft.smoke.stall_timeout_s,
        timeout_s=draft.smoke.timeout_s,
    )


def _node_count(draft: _Draft, recipe: Recipe) -> None:
    count, limits = len(draft.states), recipe.family.limits
    if limits and limits.max_nodes is not None and count > limits.max_nodes:
        expected = f"at most {limits.max_nodes} with {recipe.name}: {limits.why}"
        draft.problems.append(Problem("plan", "nodes", str(count), expected))
    elif recipe.entry.nodes not in (None, count):
        draft.tell("nodes", count, f"{recipe.document} describes {recipe.name} for {recipe.entry.nodes}")


def _divide(draft: _Draft, chosen: Chosen, ranks: int) -> Split | None:
    nodes = len(draft.states)
    sizes, problems = split(chosen, nodes * ranks)
    draft.problems += problems
    if sizes is None or problems:
        return None
    draft.tell(
        "world size",
        sizes.world_size,
        f"{nodes} {'node' if nodes == 1 else 'nodes'} x {ranks} {'rank' if ranks == 1 else 'ranks'}",
    )
    parts = f"tensor {sizes.tensor} x pipeline {sizes.pipeline} x context {sizes.context}"
    draft.tell("data parallel", sizes.data, f"world size / ({parts})")
    draft.tell(
        "micro batches",
        sizes.micro_batches,
        f"global batch {sizes.global_batch} / (micro batch {sizes.micro_batch} x data parallel {sizes.data})",
    )
    if sizes.tensor > ranks:
        draft.tell("tensor parallel", sizes.tensor, f"spans nodes of {ranks} ranks: each layer waits for the network")
    for name, state in draft.states.items():
        told, problems = memory.room(name, chosen, sizes, ranks, draft.desired[name], state)
        draft.derived += told
        draft.problems += problems
    return sizes


def _meet(draft: _Draft) -> network.Meeting | None:
    meeting, problems = network.meet(draft.states, draft.smoke.interface)
    draft.problems += problems
    if meeting is None:
        return None
    master, *others = meeting.places
    place = meeting.places[master]
    draft.tell("master address", place.address, f"{master}, {place.interface}: {meeting.why}")
    for name in others:
        way = "as the desired state says" if draft.smoke.interface else "the one that routes to the master"
        draft.tell(f"{name}: interface", meeting.places[name].interface, way)
    return meeting


def _port(draft: _Draft) -> int:
    master, state = next(iter(draft.states.items()))
    try:
        port, why = network.free_port(state, draft.run_id, draft.smoke.master_port)
    except ValueError as error:
        asked = draft.smoke.master_port
        path = "listening" if asked is None else "smoke.master_port"
        draft.problems.append(Problem(master, path, str(asked or "unknown"), str(error)))
        return 0
    draft.tell("master port", port, why)
    return port


def _hcas(draft: _Draft) -> dict[str, Hcas]:
    """Only a job that spans nodes needs them; on one node what is missing is a finding, and no reason not to train."""
    found = {name: find_hcas(name, draft.desired[name].rdma, state) for name, state in draft.states.items()}
    for name, hcas in found.items():
        if len(draft.states) > 1:
            draft.problems += hcas.problems
        if hcas.names:
            draft.tell(f"{name}: HCA list", ",".join(hcas.names), hcas.why)
        if hcas.gid_index is not None:
            draft.tell(f"{name}: GID index", hcas.gid_index, "the RoCE v2 entry of each device's own IPv4 address")
    return found
