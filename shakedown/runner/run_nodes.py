"""The part of every node in a record: of a run, and of a drift check that is kept like a run."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pyinfra.api import State

from shakedown.checks.examination import Examination
from shakedown.evidence.results import NodeResult
from shakedown.ledger.compared import keep
from shakedown.report import terminal
from shakedown.runner.examine import without_secrets
from shakedown.runner.inventory import hosts_in_limit
from shakedown.runner.progress import progress
from shakedown.runner.pyinfra import host_keys
from shakedown.runner.pyinfra.invocation import invocation
from shakedown.runs.directory import RunDirectory, RunNode, RunRecord, desired_digest, new_run_id, now
from shakedown.runs.folder import place_of_inventory, remove_old_checks
from shakedown.runs.signing.statement import sign
from shakedown.state.findings import Verdict, worst

if TYPE_CHECKING:
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
    parts, directory = current.parts(), current.directory
    nodes = []
    for host in current.hosts:
        name, run, own, ended = host.name, current.run_of(host.name), outcomes[host.name], parts.get(host.name)
        part: Literal["trained", "measured", "excluded", "unreached", "examined"] = "examined"
        if current.examination.state_of(name) is None:
            part = "unreached"
        elif run.excluded:
            part = "excluded"
        elif any(node.started_at for node in own):
            part = "trained" if name in trained else "measured"
        ends = [ended[0]] if ended else []
        failed = [Verdict.FAIL] if run.failure else []
        node = RunNode(
            name=name,
            group=current.examination.groups.get(name, ""),
            verdict=worst([current.examination.verdict_of(name), *ends, *failed]),
            part=part,
            why=run.failure or run.excluded or run.lost or (ended[1] if ended else ""),
            stopped=not run.fails and ended is not None and ended[0] == Verdict.OK,
            node_rank=ranks.get(name),
            exit_code=own[-1].exit_code if own and not own[-1].stopped else None,
            changes=run.changed(),
            **host_keys.in_record(host, current.record.nonce if current.record else ""),
            logs=[directory.relative(path) for outcome in own for path in outcome.logs] if directory else [],
            notes=[note for outcome in own for note in outcome.notes],
        )
        nodes.append(node)
    return nodes


def keep_check(state: State, examination: Examination, verdict: Verdict, ledger: bool = True) -> Path | None:
    """Keep a drift check like a run: a directory with the findings and the states, and the ledger if requested. Return
    the directory. A check that was to be kept in the ledger and has none has failed (`invocation.unrecorded`)."""
    whole = progress(state)
    record = RunRecord(
        run_id=whole.run_id or new_run_id(),
        nonce=whole.nonce,
        kind="drift",
        started_at=now(),
        finished_at=now(),
        verdict=verdict,
        inventory=invocation.inventory,
        inventory_path=place_of_inventory(invocation.inventory),
        desired_digest=desired_digest(dict(examination.desired)),
        findings=examination.all_findings(),
        nodes=[
            RunNode(
                name=host.name,
                group=examination.groups.get(host.name, ""),
                verdict=examination.verdict_of(host.name),
                part="examined" if examination.state_of(host.name) else "unreached",
                why=whole.hosts[host.name].lost,
                **host_keys.in_record(host, whole.nonce),
            )
            for host in hosts_in_limit(state)
        ],
    )
    try:
        directory = RunDirectory.create(record.run_id, latest=False)
        kept = without_secrets(record, examination)
        directory.save(kept)
        for node, answer in examination.states.items():
            directory.write_state(node, answer)
            if signed := examination.readings[node].signed:
                signed.write(directory, node)
    except (OSError, ValueError) as error:
        reason = f"the check is not kept: {error}"
        if ledger:
            invocation.unrecorded = reason
        _notice(reason)
        return None
    whole.evidence = str(directory.path)
    try:
        newest = max(desired.kept_checks for desired in examination.desired.values())
        remove_old_checks(kept.inventory, newest, record.run_id)
    except OSError as error:
        _notice(f"an old check could not be removed: {error}")
    if ledger and (reason := keep(directory, kept, examination.states, {})):
        kept = kept.model_copy(update={"not_in_ledger": reason})
        directory.save(kept)
        _notice(reason)
    if reason := sign(directory, kept, {}, examination.states, examination.desired.values()):
        _notice(reason)
    return directory.path


def _notice(text: str) -> None:
    terminal.console(stderr=True).print(text, style="yellow", markup=False, soft_wrap=True)
