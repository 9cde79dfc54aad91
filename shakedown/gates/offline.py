"""Logs from anywhere, judged without a plan: what a plan would say is taken from the logs, from who asks, or from a
recipe, in this order, and what could not be compared with anything is named."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from shakedown import gates
from shakedown.desired import profiles
from shakedown.desired.models import Smoke
from shakedown.gates import NodeLog
from shakedown.gates.judgement import Judgement, judged
from shakedown.jobs.plan.expectations import published
from shakedown.logs.job_shape import RANKS_PER_NODE, JobShape, shape_of
from shakedown.recipes.options import ResolvedOptions, choose
from shakedown.recipes.recipe import recipes

RDMA, SOCKETS = "rdma", "sockets"


@dataclass(frozen=True)
class Asked:
    """What somebody says of the run. None: as the logs or the recipe say."""

    recipe: str | None = None
    gpu: str | None = None
    nodes: int | None = None
    iterations: int | None = None
    seq_length: int | None = None
    global_batch: int | None = None
    world_size: int | None = None
    transport: str | None = None  # between nodes; None: RDMA where there are several
    merged: bool | None = None  # whether the logs hold what every node said, in fewer files
    expect: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Sizes:
    """What the run was, and where that is known from."""

    nodes: int | None  # None: several, and the logs do not state how many
    seq_length: int | None
    global_batch: int | None
    world_size: int | None


def judge_logs(logs: Mapping[str, NodeLog], asked: Asked) -> tuple[Judgement, list[str]]:
    """The judgement of one run's logs, one for each node or one for all, and what a person should know of it.

    Raises ValueError with every fault of what was asked.
    """
    chosen = _chosen(asked)
    said = shape_of([log.shape for log in logs.values()])
    seen, _damaged = gates.iterations_of(logs)
    batch = next((it.global_batch_size for it in seen if it.global_batch_size), None) or said.global_batch
    sizes = _sizes(asked, said, chosen, len(logs))
    expect, notes = _expected(asked, chosen, sizes, asked.global_batch or batch)
    expect |= asked.expect
    rdma = sizes.nodes != 1 and asked.transport != SOCKETS
    unlogged = 0 if asked.merged or not asked.nodes or _seen(logs) >= asked.nodes else asked.nodes - len(logs)
    notes.insert(0, _told(sizes, rdma, asked))
    of_logs = gates.of_logs(
        logs,
        expect,
        asked.iterations,
        seq_length=sizes.seq_length,
        world_size=sizes.world_size,
        global_batch=sizes.global_batch,
        rdma=rdma,
        unlogged=unlogged,
        gpus=[asked.gpu] if asked.gpu else (),
        own=False,
    )
    another = chosen if chosen and chosen.changed and _published_for(chosen, asked.gpu, sizes.nodes) else None
    job = replace(
        of_logs,
        to_be_whole=logs if unlogged or any(log.incomplete for log in logs.values()) else None,
        recipe=another.recipe.name if another else None,
        otherwise=another.changed if another else None,
    )
    return judged(job), notes


def _seen(logs: Mapping[str, NodeLog]) -> int:
    """How many nodes the logs are of. RCCL's lines name the host that wrote them, so one log may show several; one
    without such lines is of one node."""
    hosts = frozenset().union(*(log.shape.hosts for log in logs.values()))
    return max(len(logs), len(hosts) + sum(not log.shape.hosts for log in logs.values()))


def _chosen(asked: Asked) -> ResolvedOptions | None:
    """The recipe's own options. Raises ValueError for a recipe or a GPU that there is none of."""
    faults = []
    known = [name for name in profiles.names("gpu") if name != "cpu"]
    if asked.recipe is not None and asked.recipe not in recipes():
        faults.append(f"--recipe {asked.recipe}: there are {', '.join(recipes())}")
    if asked.recipe is not None and asked.gpu is None:
        faults.append(f"--recipe {asked.recipe}: figures are per GPU model, so --gpu is needed with it")
    if asked.gpu is not None and asked.gpu not in known:
        faults.append(f"--gpu {asked.gpu}: there are {', '.join(known)}")
    if faults:
        raise ValueError("; ".join(faults))
    if asked.recipe is None:
        return None
    chosen, _problems = choose(recipes()[asked.recipe], Smoke(recipe=asked.recipe))
    return chosen


def _of_recipe(chosen: ResolvedOptions | None, role: str) -> int | None:
    """A size of the recipe; None where its program alone knows it."""
    option = chosen.recipe.family.roles.items().get(role) if chosen else None
    value = chosen.value(option) if chosen and option else None
    return int(value) if value is not None else None


def _sizes(asked: Asked, said: JobShape, chosen: ResolvedOptions | None, logs: int) -> Sizes:
    if asked.nodes is not None and asked.nodes < logs:
        raise ValueError(f"--nodes {asked.nodes}: there are {logs} logs, and each is of a node of its own")
    nodes = asked.nodes or said.node_count(logs)
    ranks = chosen.recipe.ranks_per_node or RANKS_PER_NODE if chosen else None
    return Sizes(
        nodes=nodes,
        seq_length=asked.seq_length or said.seq_length or _of_recipe(chosen, "seq_length"),
        global_batch=asked.global_batch or said.global_batch or _of_recipe(chosen, "global_batch"),
        world_size=asked.world_size or said.world_size or (nodes * ranks if ranks and nodes else None),
    )


def _expected(
    asked: Asked, chosen: ResolvedOptions | None, sizes: Sizes, batch: int | None
) -> tuple[dict[str, float], list[str]]:
    """The recipe's figures, where they hold for what was run."""
    if chosen is None or asked.gpu is None:
        return {}, []
    entries = chosen.recipe.entry.expect
    if not any(asked.gpu in entry.gpus for entry in entries):
        known = sorted({name for entry in entries for name in entry.gpus})
        raise ValueError(
            f"--recipe {asked.recipe}: no figures for {asked.gpu} (there are for {', '.join(known) or 'none'})"
        )
    for role, value in (("seq_length", sizes.seq_length), ("global_batch", batch)):
        own = _of_recipe(chosen, role)
        if own is not None and value is not None and value != own:
            chosen.changed.append(f"{chosen.recipe.family.roles.items()[role]} = {own}, and the run had {value}")
    if sizes.nodes is None:
        raise ValueError(f"--recipe {asked.recipe}: the logs do not state how many nodes there were: add --nodes")
    figures, derived = published(chosen, [asked.gpu], sizes.nodes)
    return figures, [f"{each.name} {each.value}: {each.why}" for each in derived]


def _published_for(chosen: ResolvedOptions, gpu: str | None, nodes: int | None) -> bool:
    return any(each.nodes == nodes and gpu in each.gpus for each in chosen.recipe.entry.expect)


def _told(sizes: Sizes, rdma: bool, asked: Asked) -> str:
    nodes = "one node" if sizes.nodes == 1 else f"{sizes.nodes or 'an unknown number of'} nodes"
    how = "" if sizes.nodes == 1 else ", with RDMA between them" if rdma else ", with sockets between them"
    says = " (--nodes)" if asked.nodes else ""
    return f"judged as a run of {nodes}{says}{how}"
