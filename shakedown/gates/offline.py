"""Logs from anywhere, judged without a plan. What a plan holds comes from the logs, from the request, or from a recipe,
in this order. What could not be compared is named."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import islice

from shakedown.common.nearest import there_are
from shakedown.desired import profiles
from shakedown.desired.models import Smoke
from shakedown.gates import NodeLog
from shakedown.gates.judge import JobSpec, from_logs, fullest_log
from shakedown.gates.judgement import Judgement, judge_observed
from shakedown.gates.observed import Expected, LogCopies, Observed, Reading
from shakedown.jobs.plan.make import published
from shakedown.logs import mad
from shakedown.logs.job_shape import RANKS_PER_NODE, JobShape, shape_of
from shakedown.logs.metrics import METRICS_OF
from shakedown.logs.source import LogSource
from shakedown.recipes.fitting import fit
from shakedown.recipes.options import ResolvedOptions, choose
from shakedown.recipes.recipe import recipes

RDMA, SOCKETS = "rdma", "sockets"
_BLOCKS = 1024  # of a program's output that are read at once: 64 MiB


@dataclass(frozen=True)
class Request:
    """What the user says of the run. None: as the logs or the recipe say."""

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


def judge_logs(logs: Mapping[str, NodeLog], request: Request) -> tuple[Judgement, list[str]]:
    """Judge a run's logs, one a node or one for all, with notes. Raises ValueError with every fault of the request."""
    chosen = _chosen(request)
    shape = shape_of([log.shape for log in logs.values()])
    lines = fullest_log(logs).iterations
    batch = next((line.global_batch_size for line in lines if line.global_batch_size), None) or shape.global_batch
    known = _with_sizes(request, shape, chosen, len(logs))
    expect, notes = _expected(known, chosen, request.global_batch or batch)
    expect |= request.expect
    rdma = known.nodes != 1 and request.transport != SOCKETS
    every_node = request.merged or not request.nodes or _nodes_seen(logs) >= request.nodes
    unlogged = 0 if every_node else (request.nodes or 0) - len(logs)
    notes.insert(0, _note(known.nodes, rdma, bool(request.nodes), shape.states_nodes))
    spec = JobSpec(
        expect=expect,
        iterations=known.iterations,
        seq_length=known.seq_length,
        world_size=known.world_size,
        global_batch=known.global_batch,
        rdma=rdma,
        unlogged=unlogged,
        gpus=[request.gpu] if request.gpu else (),
        prints_iterations=False,
    )
    job = from_logs(logs, spec)
    if unlogged or any(log.incomplete for log in logs.values()):
        job = replace(job, copies=LogCopies(logs, unlogged=unlogged))
    published_for = chosen.recipe.entry.expect if chosen and chosen.changed else ()
    if chosen and any(figures.nodes == known.nodes and request.gpu in figures.gpus for figures in published_for):
        expected = replace(job.expected, recipe=chosen.recipe.name, differences=chosen.changed)
        job = replace(job, expected=expected)
    return judge_observed(job), notes


def reads_report(recipe: str | None) -> bool:
    """Return whether a recipe's program is judged by its own report and summary, and not by iteration lines."""
    return recipe in recipes() and recipes()[recipe].family.parser == "mad"


def judge_report(sources: Mapping[str, LogSource], request: Request) -> tuple[Judgement, list[str]]:
    """Judge what one node's program printed, its report (.csv), or both. Raises OSError, ValueError for more."""
    texts: dict[bool, str] = {}
    cut = []
    for name, source in sources.items():
        if (of_report := name.removesuffix(".gz").endswith(".csv")) in texts:
            raise ValueError(f"--recipe {request.recipe}: each node trains alone: give one log, one report, or both")
        blocks = list(islice(source, _BLOCKS + 1))
        texts[of_report] = b"".join(blocks[:_BLOCKS]).decode("utf-8", "replace")
        cut += [source.incomplete] if source.incomplete else [f"{name} is too long"] if len(blocks) > _BLOCKS else []
    results = mad.read(texts.get(False), texts.get(True))
    if wrong := request.expect.keys() - METRICS_OF["mad"].keys():
        raise ValueError(f"--expect {min(wrong)}: {there_are(min(wrong), METRICS_OF['mad'])}")
    seen = Observed(benchmark=results, expected=Expected(request.expect), reading=Reading(cut="; ".join(cut)))
    return judge_observed(seen), [_note(1, False, False)]


def _nodes_seen(logs: Mapping[str, NodeLog]) -> int:
    """Count the nodes of logs, by the hosts in RCCL's lines; a log without them is of one node."""
    hosts = frozenset().union(*(log.shape.hosts for log in logs.values()))
    return max(len(logs), len(hosts) + sum(not log.shape.hosts for log in logs.values()))


def _chosen(request: Request) -> ResolvedOptions | None:
    """Return the recipe's own options. Raises ValueError for an unknown recipe or GPU."""
    faults = []
    models = [name for name in profiles.names("gpu") if name != "cpu"]
    if request.recipe is not None and request.recipe not in recipes():
        faults.append(f"--recipe {request.recipe}: {there_are(request.recipe, recipes())}")
    if request.recipe is not None and request.gpu is None:
        faults.append(f"--recipe {request.recipe}: figures are per GPU model, so --gpu is needed with it")
    if request.gpu is not None and request.gpu not in models:
        faults.append(f"--gpu {request.gpu}: {there_are(request.gpu, models)}")
    if faults:
        raise ValueError("; ".join(faults))
    if request.recipe is None:
        return None
    smoke = Smoke(recipe=request.recipe)
    recipe, problems = fit(recipes()[request.recipe], smoke, [request.gpu])
    if problems:
        raise ValueError("; ".join(f"--recipe {request.recipe}: expected {problem.expected}" for problem in problems))
    chosen, _problems = choose(recipe, smoke)
    return chosen


def _recipe_size(chosen: ResolvedOptions | None, role: str) -> int | None:
    """Return a size of the recipe; None where its program alone knows it."""
    option = chosen.recipe.family.role_options.get(role) if chosen else None
    value = chosen.value(option) if chosen and option else None
    return int(value) if value is not None else None


def _with_sizes(request: Request, shape: JobShape, chosen: ResolvedOptions | None, logs: int) -> Request:
    """Fill in the sizes of the run. Nodes that stay None: several, and the logs do not state how many."""
    if request.nodes is not None and request.nodes < logs:
        raise ValueError(f"--nodes {request.nodes}: there are {logs} logs, and each is of a node of its own")
    nodes = request.nodes or shape.node_count(logs)
    ranks = chosen.recipe.ranks_per_node or RANKS_PER_NODE if chosen else None
    return replace(
        request,
        nodes=nodes,
        seq_length=request.seq_length or shape.seq_length or _recipe_size(chosen, "seq_length"),
        global_batch=request.global_batch or shape.global_batch or _recipe_size(chosen, "global_batch"),
        world_size=request.world_size or shape.world_size or (nodes * ranks if ranks and nodes else None),
    )


def _expected(
    request: Request, chosen: ResolvedOptions | None, batch: int | None
) -> tuple[dict[str, float], list[str]]:
    """Return the recipe's figures, where they hold for what was run, with notes on derived figures."""
    if chosen is None or request.gpu is None:
        return {}, []
    entries = chosen.recipe.entry.expect
    if not any(request.gpu in entry.gpus for entry in entries):
        gpus = ", ".join(sorted({name for entry in entries for name in entry.gpus})) or "none"
        raise ValueError(f"--recipe {request.recipe}: no figures for {request.gpu} (there are for {gpus})")
    for role, value in (("seq_length", request.seq_length), ("global_batch", batch)):
        own = _recipe_size(chosen, role)
        if own is not None and value is not None and value != own:
            chosen.changed.append(f"{chosen.recipe.family.role_options[role]} = {own}, and the run had {value}")
    if request.nodes is None:
        raise ValueError(f"--recipe {request.recipe}: the logs do not state how many nodes there were: add --nodes")
    figures, derived = published(chosen, [request.gpu], request.nodes)
    return figures, [f"{figure.name} {figure.value}: {figure.why}" for figure in derived]


def _note(count: int | None, rdma: bool, requested: bool, stated: bool = True) -> str:
    nodes = "one node" if count == 1 else f"{count or 'an unknown number of'} nodes"
    transport = "" if count == 1 else ", with RDMA between them" if rdma else ", with sockets between them"
    origin = " (--nodes)" if requested else "" if stated or count is None else " (no log states how many)"
    return f"judged as a run of {nodes}{origin}{transport}"
