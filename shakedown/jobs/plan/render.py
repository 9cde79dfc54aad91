"""The plan as plain text: the job, every derived value with its reason, and each node's exact command."""

import shlex
from collections.abc import Iterator
from itertools import pairwise

from shakedown.common.text import columns, counted, wrapped
from shakedown.desired.models import TOGETHER
from shakedown.desired.values import format_size
from shakedown.hosts import folded
from shakedown.jobs.launch import LaunchPlan, Need, NodePlan
from shakedown.jobs.plan.runtimes import ARGUMENTS


def render(plan: LaunchPlan, job: str = TOGETHER) -> str:
    """Text for a file, without colours. `job` is the name of a job that is not the only one."""
    lines = _head(plan, job)
    for node in plan.nodes:
        lines += ["", *_node(node)]
    return "\n".join(lines) + "\n"


def brief(plan: LaunchPlan, job: str = TOGETHER) -> str:
    """Return the same for a screen: the first node's environment and command, and what differs on each other one."""
    width, (first, *others) = columns(), plan.nodes
    lines = [part for line in _head(plan, job) for part in wrapped(line, width, "      ")] + [""]
    for line in _node(first):
        words = line.lstrip().partition(" ")[0]
        if words == "command":
            lines += _continued(first, width)
        elif words not in ("before", "afterwards") and (not line or line[0] == " " or line == _title(first)):
            lines += wrapped(line, width, " " * 15)
    for node in others:
        entries = ", ".join(_differing(first, node, plan.run_id))
        lines += wrapped(f"{_title(node)}: as {first.name}{f', with {entries}' if entries else ''}", width)
    lines += ["", "each node's whole command, and what runs before and after it: -v"]
    return "\n".join(lines) + "\n"


def _differing(first: NodePlan, node: NodePlan, run_id: str) -> Iterator[str]:
    """Yield what a node's command and environment have other than the first node's, but for the names of the run."""
    own, known = _words(node), _words(first)
    yield from (word for word in own if word not in known and run_id not in word)
    if len(own) < len(known):
        yield from (f"no {word}" for word in known if word not in own and run_id not in word)
    yield from (f"no {name}" for name in sorted(first.environment.keys() - node.environment.keys()))
    for name, value in sorted(node.environment.items()):
        if first.environment.get(name) != value:
            yield f"{name}={shlex.quote(value)}"


def _words(node: NodePlan) -> list[str]:
    """Return the words of a command as a shell takes them, an option's value behind it."""
    words = pairwise(["", *node.command, *node.files.get(ARGUMENTS, "").splitlines()])
    return [f"{before} {shlex.quote(word)}" if before.startswith("-") else shlex.quote(word) for before, word in words]


def _continued(node: NodePlan, width: int) -> Iterator[str]:
    """Yield a command as a shell takes it, over several lines; an option and its value stand together."""
    parts: list[str] = []
    for before, word in pairwise(["", *node.command]):
        pair = before.startswith("--") and "=" not in before and not word.startswith("-")
        parts[-1:] = [f"{parts[-1]} {shlex.quote(word)}"] if pair else [*parts[-1:], shlex.quote(word)]
    line = f"  command      {parts[0]}"
    for part in parts[1:]:
        if len(line) + len(part) > width - 3:
            yield f"{line} \\"
            line = f"{'':15}{part}"
        else:
            line += f" {part}"
    yield line


def _head(plan: LaunchPlan, job: str) -> list[str]:
    nodes = counted(len(plan.nodes), "node")
    figures = ", ".join(f"{metric} {bound:g}" for metric, bound in plan.expect.items()) or "no figures"
    lines = [
        f"{'' if job == TOGETHER else f'{job}: '}{plan.recipe} ({plan.runtime}) on {nodes}, run {plan.run_id}",
        *([f"  image          {plan.image}"] if plan.image else []),
        *(f"  {label:14} {text}" for label, text in ([] if plan.has_report else sizes_of(plan))),
        f"  judged         {figures}",
        f"  recorded       {', '.join(plan.recorded) or 'nothing more'}",
    ]
    lines += [f"  without        {name}: {reason}" for name, reason in plan.missing.items()]
    if folded := _folded(plan):
        width = max(len(name) for name, _, _ in folded)
        lines += ["", "derived"]
        lines += [f"  {name:{width}}  {value}  ({reason})" for name, value, reason in folded]
    return lines


def sizes_of(plan: LaunchPlan) -> list[tuple[str, str]]:
    """Return the ranks, batch, iterations and meeting point of a job, each with its label."""
    parallel = plan.world_size // (plan.tensor_parallel * plan.pipeline_parallel * plan.data_parallel)
    context, address = f" x CP {parallel}" if parallel > 1 else "", plan.master_address or "unknown address"
    shape = f"TP {plan.tensor_parallel} x PP {plan.pipeline_parallel} x DP {plan.data_parallel}{context}"
    return [
        ("ranks", f"{plan.world_size} = {shape}"),
        ("batch", f"global {plan.global_batch}{_steps(plan)}, {plan.seq_length} tokens a sequence"),
        ("iterations", str(plan.iterations)),
        ("master", f"{address}:{plan.master_port} on {plan.driver}; {plan.reporter} reports"),
    ]


def _folded(plan: LaunchPlan) -> list[tuple[str, str, str]]:
    """Return the derived values. What is the same on several nodes is one line, with the nodes as a range."""
    names = {node.name: node.address for node in plan.nodes}
    groups: dict[tuple[str, str, str], list[str]] = {}
    for item in plan.derived:
        node, _, what = item.name.partition(": ")
        if node in names:  # its address stands with its name below
            value = item.value.removesuffix(f" {names[node]}")
            groups.setdefault((what, value, item.why), []).append(node)
        else:
            groups[item.name, item.value, item.why] = []
    rows = ((f"{folded(nodes)}: {what}" if nodes else what, value, why) for (what, value, why), nodes in groups.items())
    return list(rows)


def _steps(plan: LaunchPlan) -> str:
    replica = plan.micro_batch * plan.data_parallel
    steps = counted(plan.global_batch // replica, "step") if replica else "no steps"
    return f" = {steps} x micro {plan.micro_batch} x DP {plan.data_parallel}"


def words_of(need: Need) -> str:
    words = {
        "python": f"{need.path}{' with ' if need.modules else ''}{', '.join(need.modules)}",
        "image": f"image {need.image} of {need.path}",
        "data": f"data {need.path}",
        "room": f"{format_size(need.size)} {f'in {need.path}' if need.path else 'for the run folder'}",
        "port": f"port {need.port}",
    }
    return words.get(need.kind, need.path)


def _title(node: NodePlan) -> str:
    first = node.node_rank * node.ranks
    ranks = f"rank {first}" if node.ranks == 1 else f"ranks {first} to {first + node.ranks - 1}"
    return f"{node.name}: {ranks}, {node.address} on {node.interface}" if node.ranks else f"{node.name}:"


def _node(node: NodePlan) -> list[str]:
    lines = [_title(node)]
    lines += [f"  needs        {words_of(need)}" for need in node.needs]
    lines += [f"  before       {shlex.join(argv)}" for argv in node.setup]
    lines += [f"  environment  {name}={shlex.quote(value)}" for name, value in sorted(node.environment.items())]
    lines += [f"  environment  {name}=(from the controller, not shown)" for name in node.secrets]
    lines += [f"  command      {shlex.join(node.command)}"]
    lines += [f"  argument     {word}" for word in node.files.get(ARGUMENTS, "").splitlines()]
    lines += [f"  afterwards   {shlex.join(argv)}" for argv in node.cleanup]
    return lines
