"""The plan as plain text: the job, every derived value with its reason, and each node's exact command."""

from __future__ import annotations

import shlex

from shakedown.smoke.launch import LaunchPlan, NodePlan


def render(plan: LaunchPlan) -> str:
    """Text for a terminal or a file, without colours."""
    nodes = "1 node" if len(plan.nodes) == 1 else f"{len(plan.nodes)} nodes"
    lines = [
        f"{plan.recipe} ({plan.runtime}) on {nodes}, run {plan.run_id}",
        *([f"  image          {plan.image}"] if plan.image else []),
        f"  ranks          {plan.world_size} = TP {plan.tensor_parallel} x PP {plan.pipeline_parallel}"
        f" x DP {plan.data_parallel}" + (f" x CP {cp}" if (cp := _context(plan)) > 1 else ""),
        f"  batch          global {plan.global_batch}, micro {plan.micro_batch}, {plan.seq_length} tokens a sequence",
        f"  iterations     {plan.iterations}",
        f"  master         {plan.master_address}:{plan.master_port} on {plan.driver}; {plan.reporter} reports",
        f"  judged         {_figures(plan)}",
        f"  recorded       {', '.join(plan.recorded) or 'nothing more'}",
    ]
    lines += [f"  without        {name}: {why}" for name, why in plan.missing.items()]
    if plan.derived:
        width = max(len(item.name) for item in plan.derived)
        lines += ["", "derived"]
        lines += [f"  {item.name:{width}}  {item.value}  ({item.why})" for item in plan.derived]
    for node in plan.nodes:
        lines += ["", *_node(node)]
    return "\n".join(lines) + "\n"


def _context(plan: LaunchPlan) -> int:
    return plan.world_size // (plan.tensor_parallel * plan.pipeline_parallel * plan.data_parallel)


def _figures(plan: LaunchPlan) -> str:
    return ", ".join(f"{metric} {bound:g}" for metric, bound in plan.expect.items()) or "no figures"


def _node(node: NodePlan) -> list[str]:
    first = node.node_rank * node.ranks
    ranks = f"rank {first}" if node.ranks == 1 else f"ranks {first} to {first + node.ranks - 1}"
    lines = [f"{node.name}: {ranks}, {node.address} on {node.interface}"]
    lines += [f"  before       {shlex.join(argv)}" for argv in node.setup]
    lines += [f"  environment  {name}={shlex.quote(value)}" for name, value in sorted(node.environment.items())]
    lines += [f"  environment  {name}=(from the controller, not shown)" for name in node.secrets]
    lines += [f"  command      {shlex.join(node.command)}"]
    for name, text in node.files.items():
        lines += [f"  file         {name}", *(f"    | {line}" for line in text.splitlines())]
    lines += [f"  afterwards   {shlex.join(argv)}" for argv in node.cleanup]
    return lines
