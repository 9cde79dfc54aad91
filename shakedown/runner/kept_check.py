"""A drift check that is kept like a run."""

from collections.abc import Mapping
from pathlib import Path

from pyinfra.api import State

from shakedown.checks.examination import Examination
from shakedown.ledger.compared import keep
from shakedown.report import terminal
from shakedown.runner.examine import without_secrets
from shakedown.runner.inventory import hosts_in_limit
from shakedown.runner.progress import progress
from shakedown.runner.pyinfra import host_keys
from shakedown.runner.pyinfra.invocation import invocation
from shakedown.runs.directory import RunDirectory
from shakedown.runs.folder import place_of_inventory, remove_old_checks
from shakedown.runs.records import RunNode, RunRecord, desired_digest, new_run_id, now
from shakedown.runs.signing.statement import sign
from shakedown.state.findings import Verdict


def keep_check(state: State, examination: Examination, verdict: Verdict, ledger: bool = True) -> Path | None:
    """Keep a drift check like a run: a directory with the findings and the states, and the ledger if requested. Return
    the directory. A check that was to be kept in the ledger and has none has failed (`invocation.unrecorded`)."""
    hosts = hosts_in_limit(state)
    new_keys, shown = host_keys.new_keys(hosts), {host.name: host_keys.shown_fingerprint(host) for host in hosts}
    record = RunRecord(
        run_id=progress(state).run_id or new_run_id(),
        nonce=progress(state).nonce,
        kind="drift",
        started_at=now(),
        finished_at=now(),
        verdict=verdict,
        inventory=invocation.inventory,
        inventory_path=place_of_inventory(invocation.inventory),
        desired_digest=desired_digest(dict(examination.desired)),
        findings=examination.all_findings(),
        nodes=[_node(state, examination, name, new_keys, shown) for name in examination.desired],
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
    progress(state).evidence = str(directory.path)
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


def _node(
    state: State, examination: Examination, name: str, new_keys: Mapping[str, str], shown: Mapping[str, str]
) -> RunNode:
    read = name in examination.states
    return RunNode(
        name=name,
        group=examination.groups.get(name, ""),
        verdict=examination.verdict_of(name),
        part="examined" if read else "unreached",
        why="" if read else progress(state).hosts[name].lost,
        host_key=shown.get(name, "") if progress(state).nonce else "",
        new_host_key=new_keys.get(name, ""),
    )


def _notice(text: str) -> None:
    terminal.console(stderr=True).print(text, style="yellow", markup=False, highlight=False, soft_wrap=True)
