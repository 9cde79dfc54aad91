"""The launch plans of trials: runtime, image and environment of a node's section `smoke` (else the embedded default),
with another program. Rounds say which pairs measure at the same time: by the circle method all pairs, in n - 1 rounds
(n where n is odd); beyond `ALL_PAIRS` nodes `DRAWN` of these."""

import json
import random
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from shakedown.common.nearest import refuse_unknown
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
from shakedown.trials.soak import count_gpus as gpus_of
from shakedown.trials.workload.registry import TOOL, trials

ALL_PAIRS = 32  # nodes up to which all pairs are measured: 31 rounds
DRAWN = 8  # rounds beyond that
PEERS = 4  # nodes beside one that is measured again alone: enough to show what is usual

Pair = tuple[int, int]


def circle(nodes: int) -> list[list[Pair]]:
    """Divide all pairs of so many nodes into the fewest rounds. A pair has its lower place first."""
    if nodes < 2:
        return []
    ring: list[int | None] = [*range(nodes), *([None] if nodes % 2 else [])]
    rounds = []
    for _ in range(len(ring) - 1):
        half = len(ring) // 2
        pairs = zip(ring[:half], reversed(ring[half:]), strict=True)
        rounds.append([(min(a, b), max(a, b)) for a, b in pairs if a is not None and b is not None])
        ring = [ring[0], ring[-1], *ring[1:-1]]
    return rounds


def schedule(nodes: int, seed: str) -> list[list[Pair]]:
    """Make the rounds for so many nodes: all pairs, or a draw of them by the seed, the run's id."""
    rounds = circle(nodes)
    if nodes <= ALL_PAIRS:
        return rounds
    chosen = random.Random(seed)
    order = list(range(nodes))
    chosen.shuffle(order)
    drawn = chosen.sample(rounds, DRAWN)
    return [[(min(order[a], order[b]), max(order[a], order[b])) for a, b in pairs] for pairs in drawn]


def peers_for(suspects: int) -> int:
    """Return how many peers to measure: more than suspects, as the lower half of all others decides."""
    return max(PEERS, suspects + 2)


def beside(suspects: Collection[int], nodes: int, measured: Collection[Pair], seed: str) -> list[int]:
    """Choose the places of a fresh run: suspects, twice as many others and two more; first those not yet paired."""
    others = [node for node in range(nodes) if node not in suspects]
    random.Random(seed).shuffle(others)
    had = {frozenset(pair) for pair in measured}
    others.sort(key=lambda node: sum(frozenset((node, suspect)) in had for suspect in suspects))
    return sorted([*suspects, *others[: 2 * len(suspects) + 2]])


EMBEDDED = "gpt-small"
REQUEST = "request.json"
LOG = "{run_dir}/logs/parts.log"  # standard error of the processes
START_S = 120  # to import torch and open a device, on a busy host; longer where `trials.limit_s` is longer
CPU_RANKS = 2  # processes of a collective where there are no GPUs
SECONDS = 0.3  # of measuring, for each figure


def chosen_trials(wanted: Trials, only: Sequence[str] = ()) -> list[str]:
    """Choose the trials to run, in their order. Raises ValueError for an unknown name."""
    registered = trials()
    names = list(only) or wanted.only or [name for name, trial in registered.items() if not trial.by_name]
    refuse_unknown(names, registered, "trial")
    return [name for name in registered if name in names]


def between_nodes(names: Sequence[str]) -> list[str]:
    """Select the trials that measure between two nodes."""
    return [name for name in names if trials()[name].on == PAIRS]


def expected_seconds(names: Sequence[str], repetitions: int, rounds: int, rails: Mapping[str, int]) -> float:
    """Estimate seconds where nothing is slow. Nodes measure at once; rounds and `rails` between them add up."""
    registered, pairs = trials(), between_nodes(names)
    alone = sum(registered[name].seconds for name in names if name not in pairs) * repetitions
    starts = len({registered[name].on for name in names})
    of_rounds = sum(registered[name].seconds * 2 * max(rails.get(name, 1), 1) for name in pairs)
    return alone + 10.0 * starts + rounds * repetitions * of_rounds


def count_rails(
    names: Sequence[str], desired: Collection[DesiredState], states: Collection[NodeState]
) -> dict[str, int]:
    """Return the rails of each trial between nodes. Trials in torch use them only with GPUs, RDMA tools always."""
    count = min((state.rdma.count for state in desired), default=0)
    gpus = all(not is_unreadable(state.gpus) and state.gpus for state in states)
    return {name: count if gpus or not trials()[name].needs_torch else 0 for name in between_nodes(names)}


def ceilings(desired: Collection[DesiredState], rails: Mapping[str, int]) -> dict[str, float]:
    """Return TRIAL.FIGURE -> the most that a link between nodes carries by the wanted RDMA rate, in its unit."""
    rates = [state.rdma.rate_gbps for state in desired if state.rdma.rate_gbps]
    if not rates:
        return {}
    of = {"perftest": ("ib_write_bw", 1.0), PAIRS: ("bandwidth", 1 / 8)}
    return {f"{name}.{of[name][0]}": max(rates) * of[name][1] for name, count in rails.items() if count and name in of}


def _recipe(smoke: Smoke, torch: bool) -> Recipe:
    """Replace the program of the smoke run's recipe by the trials' program. `torch`: whether the program imports it."""
    recipe = recipes().get(smoke.recipe) or recipes()[EMBEDDED]
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
    family, entry = recipe.family.model_copy(update=change), Entry(description="trials")
    return recipe.model_copy(update={"name": "trials", "family": family, "entry": entry})


def count_gpus(desired: DesiredState, state: NodeState) -> int:
    """Count the GPUs of a node that trials measure: those that the job may see."""
    chosen, _ = chosen_gpus(desired.smoke.environment if desired.smoke else {})
    return gpus_of(state) if chosen is None else len(chosen)


def plan_alone(
    desired: DesiredState, state: NodeState, node: str, run_id: str, names: Sequence[str], wanted: Trials
) -> LaunchPlan:
    """Plan the trials of one node alone. Raises PlanError with all problems."""
    pairs, registered = between_nodes(names), trials()
    mine = [name for name in names if name not in pairs]
    draft = _draft({node: desired}, {node: state}, run_id, torch=any(registered[name].on != TOOL for name in mine))
    gpus = count_gpus(draft.desired[node], state)
    request = {"trials": mine, "gpus": gpus, "ranks": CPU_RANKS, **_common(wanted)}
    request["model"] = desired.gpu.profile
    request["folders"] = list(dict.fromkeys(dataset.folder for dataset in desired.datasets.values()))
    kinds = {registered[name].on for name in mine}
    each_s = [max(wanted.limit_s, 4 * registered[name].seconds) for name in mine]
    stages = len(kinds) * _start_s(wanted) + sum(each_s) * wanted.repetitions + wanted.limit_s
    return _complete(draft, {node: request}, stages)


def plan_between(
    desired: Mapping[str, DesiredState],
    states: Mapping[str, NodeState],
    run_id: str,
    rounds: Sequence[Sequence[Pair]],
    wanted: Trials,
    names: Sequence[str] = (PAIRS,),
) -> LaunchPlan:
    """Plan the rounds between nodes, in the order of `desired`. Raises PlanError with all problems."""
    draft = _draft(desired, states, run_id)
    repeated = [(list(pairs), n + 1) for n in range(wanted.repetitions) for pairs in rounds]
    chosen = between_nodes(names)
    # A round lasts no longer than a measurement, and once more where a process is started again.
    total = _start_s(wanted) + len(repeated) * 4 * wanted.limit_s * len(chosen)
    request = {
        **_common(wanted),
        "trials": chosen,
        "nodes": len(desired),
        "rounds": [pairs for pairs, _ in repeated],
        "repetitions": [number for _, number in repeated],
        "total_s": total,
    }
    requests = {
        name: {**request, "place": place, "gpus": count_gpus(draft.desired[name], states[name])}
        for place, name in enumerate(desired)
    }
    return _complete(draft, requests, total)


def _start_s(wanted: Trials) -> float:
    return max(START_S, wanted.limit_s)


def _common(wanted: Trials) -> dict[str, Any]:
    limits = {"limit_s": wanted.limit_s, "start_s": _start_s(wanted)}
    return {"repetitions": wanted.repetitions, "seconds": SECONDS, **limits}


def _draft(
    desired: Mapping[str, DesiredState], states: Mapping[str, NodeState], run_id: str, torch: bool = True
) -> PlanDraft:
    embedded = {"smoke": Smoke(recipe=EMBEDDED)}
    mine = {name: state if state.smoke else state.model_copy(update=embedded) for name, state in desired.items()}
    smokes = {name: state.smoke for name, state in mine.items() if state.smoke is not None}
    smoke = next(iter(smokes.values()))
    # Options and expectations of the training do not matter to a trial; the rest has to be the same on all nodes.
    of_the_run = {name: smoke.model_copy(update={"options": {}, "expect": {}}) for name, smoke in smokes.items()}
    problems = same_smoke(of_the_run)
    return PlanDraft(run_id, _recipe(smoke, torch), mine, dict(states), smoke, len(mine) == 1, problems=problems)


def _complete(draft: PlanDraft, requests: Mapping[str, dict[str, Any]], seconds: float) -> LaunchPlan:
    smoke = draft.smoke
    recipe = recipes().get(smoke.recipe)
    runtime = smoke.runtime or (recipe.family.runtimes[0] if recipe else "process")
    chosen = ResolvedOptions(draft.recipe)
    endpoints, port, hcas = rendezvous_of(draft), master_port(draft), hcas_of(draft)
    image, equipment = equip(draft, chosen) if runtime == "container" else (None, {})
    if draft.problems or not endpoints or port is None:
        raise PlanError(draft.problems)
    address = endpoints[draft.master].address
    job = PlannedJob(draft.run_id, chosen, len(endpoints), 1, address, port, image)
    nodes = []
    rails = min((len(devices.names) for devices in hcas.values()), default=0)
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
        master_address=address,
        master_port=port,
        derived=draft.derived,
        start_timeout_s=limit,
        stall_timeout_s=limit,
        timeout_s=limit,
        unreachable_s=smoke.unreachable_s,
    )
