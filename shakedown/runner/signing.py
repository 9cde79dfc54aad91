"""The site's signature on a run, once nothing is written into its directory any more."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from shakedown.desired import DesiredState
from shakedown.runs.directory import STATEMENT, RunDirectory
from shakedown.runs.records import Evidence, RunRecord
from shakedown.runs.signing import envelope, statement
from shakedown.runs.signing.nodes import LogSigner
from shakedown.state.node import NodeState


def sign(
    directory: RunDirectory,
    record: RunRecord,
    evidence: Mapping[str, Evidence],
    states: Mapping[str, NodeState],
    desired: Iterable[DesiredState],
    logs: LogSigner | None = None,
) -> str:
    """Sign a run where the inventory names a key. `logs`: what nodes have signed of their logs. Return why there is no
    signature though there is to be one."""
    signing = next((state.signing for state in desired if state.signing), None)
    if signing is None:
        return ""
    try:
        if logs is not None:
            logs.write()
        key = envelope.private_key(signing.key_file)
        made = statement.of_run(directory, record, evidence, states.items(), Path(record.inventory))
        directory.write(STATEMENT, envelope.signed(made.payload(), key).decode())
    except (OSError, ValueError) as error:
        return f"{directory.path}: the run is not signed: {error}"
    return ""
