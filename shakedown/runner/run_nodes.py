"""The part of every node in a run, as its record has it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Literal

from pyinfra.api import Host

from shakedown.evidence.results import NodeResult
from shakedown.runner.pyinfra import host_keys
from shakedown.runs.records import RunNode
from shakedown.state.findings import Verdict, worst

if TYPE_CHECKING:  # which makes its record of these
    from shakedown.runner.session import Session


def run_nodes(current: Session) -> list[RunNode]:
    """Return the part of every node, each job and each outcome read once for all of them."""
    plans = [job.plan for job in current.record.jobs if job.plan] if current.record else []
    ranks = {node.name: node.node_rank for plan in plans for node in plan.nodes}
    outcomes: dict[str, list[NodeResult]] = defaultdict(list)
    for outcome in current.outcomes():
        outcomes[outcome.name].append(outcome)
    results = [node for job in current.jobs if job.result and not job.trials for node in job.result.nodes]
    trained = {node.name for node in results if node.started_at}
    parts = current.parts()
    return [
        _node(current, host, ranks.get(host.name), outcomes.get(host.name, []), trained, parts.get(host.name))
        for host in current.hosts
    ]


def _node(
    current: Session,
    host: Host,
    rank: int | None,
    outcomes: Sequence[NodeResult],
    trained: Collection[str],
    ended: tuple[Verdict, str] | None,
) -> RunNode:
    name, run, directory = host.name, current.run_of(host.name), current.directory
    part: Literal["trained", "measured", "excluded", "unreached", "examined"] = "examined"
    if current.examination.state_of(name) is None:
        part = "unreached"
    elif run.excluded:
        part = "excluded"
    elif any(node.started_at for node in outcomes):
        part = "trained" if name in trained else "measured"
    return RunNode(
        name=name,
        group=current.examination.groups.get(name, ""),
        verdict=worst([current.examination.verdict_of(name), *([ended[0]] if ended else [])]),
        part=part,
        why=run.failure or run.excluded or run.lost or (ended[1] if ended else ""),
        stopped=not run.fails and ended is not None and ended[0] == Verdict.OK,
        node_rank=rank,
        exit_code=outcomes[-1].exit_code if outcomes and not outcomes[-1].stopped else None,
        changes=run.changed(),
        host_key=host_keys.shown_fingerprint(host) if current.record and current.record.nonce else "",
        new_host_key=host_keys.new_keys([host]).get(name, ""),
        logs=[directory.relative(path) for outcome in outcomes for path in outcome.logs] if directory else [],
        notes=[note for outcome in outcomes for note in outcome.notes],
    )
