"""The launch plans of trials: the machinery, runtime, image and environment of the smoke run, with another program.

What a node's section `smoke` says of runtime, image, volumes, devices, variables, interface and virtual environment
holds here too: a trial that measured in another container would measure another library. A node without one takes the
embedded default.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from shakedown.desired.models import DesiredState, Smoke, Trials
from shakedown.jobs.launch import LaunchPlan
from shakedown.jobs.plan.container import equip
from shakedown.jobs.plan.draft import PlanDraft, PlanError, PlannedJob
from shakedown.jobs.plan.environment import chosen_gpus
from shakedown.jobs.plan.network import assignment_of, hcas_of, master_port, rendezvous_of
from shakedown.jobs.plan.participants import same_smoke
from shakedown.jobs.plan.runtimes import RUNTIMES
from shakedown.recipes.options import ResolvedOptions
from shakedown.recipes.recipe import Entry, Launch, Recipe, recipes
from shakedown.state.node import NodeState, is_unreadable
from shakedown.trials.models import PAIRS
from shakedown.trials.rounds import Pair
from shakedown.trials.workload.registry import TOOL, trials

EMBEDDED = "gpt-small"
REQUEST = "request.json"
LOG = "{run_dir}/logs/parts.log"  # what the processes said on standard error
START_S = 120  # for torch to be imported and a device to be opened, on a busy host or from a shared file system
CPU_RANKS = 2  # processes of a collective where there are no GPUs
SECONDS = 0.3  # of measuring, for each figure


def chosen_trials(wanted: Trials, only: Sequence[str] = ()) -> list[str]:
    """The trials to run, in their order. Raises ValueError for a name that is none."""
    known = trials()
    names = list(only) or wanted.only or [name for name, each in known.items() if not each.by_name]
    if unknown := [name for name in names if name not in known]:
        raise ValueError(f"no such trial: {', '.join(unknown)}; there are {', '.join(known)}")
    return [name for name in known if name in names]


def between_nodes(names: Sequence[str]) -> list[str]:
    """Those that two nodes at a time take."""
    return [name for name in names if trials()[name].on == PAIRS]


def expected_seconds(names: Sequence[str], repetitions: int, rounds: int, rails: Mapping[str, int]) -> float:
    """About how long the trials take where nothing is slow: all nodes measure at once, so only the rounds between them
    grow with their number, and with that of the `rails` which a trial takes one after the other. Starting torch counts
    10 s for each kind of part."""
    known, pairs = trials(), between_nodes(names)
    alone = sum(known[name].seconds for name in names if name not in pairs) * repetitions
    starts = len({known[name].on for name in names})
    of_rounds = sum(known[name].seconds * 2 * max(rails.get(name, 1), 1) for name in pairs)
    return alone + 10.0 * starts + rounds * repetitions * of_rounds


def rails_of(names: Sequence[str], desired: Collection[DesiredState], states: Collection[NodeState]) -> dict[str, int]:
    """Over how many rails each trial between nodes is taken, as far as the desired state says it: torch's over its
    devices only where GPUs are, a tool of the RDMA devices over each."""
    count = min((each.rdma.count for each in desired), default=0)
    gpus = all(not is_unreadable(state.gpus) and state.gpus for state in states)
    return {name: count if gpus or not trials()[name].needs_torch else 0 for name in between_nodes(names)}


def ceilings(desired: Collection[DesiredState], rails: Mapping[str, int]) -> dict[str, float]:
    """What a link between two nodes can carry at most: the rate that is asked of the RDMA devices. TRIAL.FIGURE -> the
    trial's unit. Nothing for what does not go over them."""
    rates = [each.rdma.rate_gbps for each in desired if each.rdma.rate_gbps]
    if not rates:
        return {}
    of = {"perftest": ("ib_write_bw", 1.0), PAIRS: ("bandwidth", 1 / 8)}
    return {f"{name}.{of[name][0]}": max(rates) * of[name][1] for name, count in rails.items() if count and name in of}


def _with_smoke(desired: DesiredState) -> DesiredState:
    return desired if desired.smoke else desired.model_copy(update={"smoke": Smoke(recipe=EMBEDDED)})


def _recipe(smoke: Smoke, torch: bool) -> Recipe:
    """The smoke run's recipe, with the trials' program in the place of its own. `torch`: whether it imports it."""
    known = recipes().get(smoke.recipe) or recipes()[EMBEDDED]
    change: dict[str, Any] = {
        "launcher": "python",
        "command": ["{run_dir}/workload/run.py", f"{{run_dir}}/{REQUEST}"],
        "upload": ["shakedown.trials.workload"],
        "modules": ["torch"] if torch else [],
        "workdir": None,
        "options": {},
        "conditional": [],
        "launch": Launch(),
        "limits": None,
    }
    return known.model_copy(
        update={
            "name": "trials",
            "family": known.family.model_copy(update=change),
            "entry": Entry(description="trials"),
        }
    )


def gpus_of(desired: DesiredState, state: NodeState) -> int:
    """How many GPUs of a node are measured: those that the job may see."""
    chosen, _ = chosen_gpus(desired.smoke.environment if desired.smoke else {})
    there = 0 if is_unreadable(state.gpus) else len(state.gpus)
    return len(chosen) if chosen is not None else there


def plan_alone(
    desired: DesiredState, state: NodeState, node: str, run_id: str, names: Sequence[str], wanted: Trials
) -> LaunchPlan:
    """One node's trials by itself. Raises PlanError with all that stands in the way."""
    pairs, known = between_nodes(names), trials()
    mine = [name for name in names if name not in pairs]
    draft = _draft({node: desired}, {node: state}, run_id, torch=any(known[name].on != TOOL for name in mine))
    gpus = gpus_of(draft.desired[node], state)
    request = {"trials": mine, "gpus": gpus, "ranks": CPU_RANKS, **_common(wanted)}
    request["model"] = desired.gpu.profile
    kinds = {known[name].on for name in mine}
    each_s = [max(wanted.limit_s, 4 * known[name].seconds) for name in mine]
    stages = len(kinds) * START_S + sum(each_s) * wanted.repetitions + wanted.limit_s
    return _complete(draft, {node: request}, stages)


def plan_between(
    desired: Mapping[str, DesiredState],
    states: Mapping[str, NodeState],
    run_id: str,
    rounds: Sequence[Sequence[Pair]],
    wanted: Trials,
    missing: Mapping[str, str],
    names: Sequence[str] = (PAIRS,),
) -> LaunchPlan:
    """The rounds between nodes, in the order of `desired`, of each trial that two nodes take. Raises PlanError with all
    that stands in the way."""
    pairs = between_nodes(names)
    draft = _draft(desired, states, run_id, missing)
    repeated = [(list(each), n + 1) for n in range(wanted.repetitions) for each in rounds]
    # In all: nobody waits longer for a round than a measurement may take, and then for one that is begun again.
    total = START_S + len(repeated) * 4 * wanted.limit_s * len(pairs)
    request = {
        **_common(wanted),
        "trials": pairs,
        "nodes": len(desired),
        "rounds": [each for each, _ in repeated],
        "repetitions": [number for _, number in repeated],
        "total_s": total,
    }
    requests = {
        name: {**request, "place": place, "gpus": gpus_of(draft.desired[name], states[name])}
        for place, name in enumerate(desired)
    }
    return _complete(draft, requests, total)


def _common(wanted: Trials) -> dict[str, Any]:
    return {"repetitions": wanted.repetitions, "seconds": SECONDS, "limit_s": wanted.limit_s, "start_s": START_S}


def _draft(
    desired: Mapping[str, DesiredState],
    states: Mapping[str, NodeState],
    run_id: str,
    missing: Mapping[str, str] | None = None,
    torch: bool = True,
) -> PlanDraft:
    mine = {name: _with_smoke(each) for name, each in desired.items()}
    smokes = {name: each.smoke for name, each in mine.items() if each.smoke is not None}
    smoke = next(iter(smokes.values()))
    # What the training does is nothing to a trial; only how it is run has to be the same.
    of_the_run = {name: each.model_copy(update={"options": {}, "expect": {}}) for name, each in smokes.items()}
    problems = same_smoke(of_the_run)
    return PlanDraft(run_id, _recipe(smoke, torch), mine, dict(states), smoke, len(mine) == 1, problems=problems)


def _complete(draft: PlanDraft, requests: Mapping[str, dict[str, Any]], seconds: float) -> LaunchPlan:
    smoke = draft.smoke
    known = recipes().get(smoke.recipe)
    runtime = smoke.runtime or (known.family.runtimes[0] if known else "process")
    chosen = ResolvedOptions(draft.recipe)
    rendezvous, port, hcas = rendezvous_of(draft), master_port(draft), hcas_of(draft)
    image, equipment = equip(draft, chosen) if runtime == "container" else (None, {})
    if draft.problems or rendezvous is None or port is None:
        raise PlanError(draft.problems)
    endpoints = rendezvous.endpoints
    address = endpoints[draft.master].address
    job = PlannedJob(draft.run_id, chosen, len(endpoints), 1, address, port, image)
    nodes = []
    rails = min((len(each.names) for each in hcas.values()), default=0)
    for rank, (name, endpoint) in enumerate(endpoints.items()):
        assignment = assignment_of(draft, rank, name, endpoint, hcas, equipment)
        node = RUNTIMES[runtime](job, assignment)
        request = requests[name]
        if "rounds" in request:
            where = {"address": address, "port": port, "own": endpoint.address}
            request = {**request, **where, "rails": hcas[name].names[:rails], "gid_index": hcas[name].gid_index}
        files = {**node.files, REQUEST: json.dumps(request)}
        nodes.append(node.model_copy(update={"files": files, "logs": [LOG]}))
    limit = seconds + START_S
    return LaunchPlan(
        run_id=draft.run_id,
        recipe="trials",
        runtime=runtime,
        image=image,
        nodes=nodes,
        world_size=len(nodes),
        micro_batch=0,
        global_batch=0,
        seq_length=0,
        iterations=0,
        master_address=address,
        master_port=port,
        derived=draft.derived,
        start_timeout_s=limit,
        stall_timeout_s=limit,
        timeout_s=limit,
        unreachable_s=smoke.unreachable_s,
    )
