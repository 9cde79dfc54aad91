"""What the end of a run does with the ledger. It changes no verdict, and is never silent."""

from collections.abc import Mapping

from shakedown.common.text import printable
from shakedown.runs.directory import RunDirectory
from shakedown.runs.records import Evidence, RunRecord
from shakedown.state.node import NodeState


def keep(
    directory: RunDirectory,
    record: RunRecord,
    states: Mapping[str, NodeState] | None = None,
    evidence: Mapping[str, Evidence] | None = None,
    origin: str = "",
) -> str:
    """Keep a run that has ended; what is not given is read from its directory. `origin`: whose evidence the run is,
    where others sent it. Returns why it could not be kept, with the remedy; nothing where it is."""
    if record.simulated:
        return "not in the ledger: the run is simulated"
    try:
        from shakedown.ledger import entry, store  # SQLAlchemy, 100 ms: at the end of a run, not at its start

        if states is None:
            store.open_ledger().add(directory, record, origin)
        else:
            store.open_ledger().put(entry.entry_of(record, states, directory, evidence or {}))
    except Exception as error:  # whatever it is, the run has come to what it has come to
        known = isinstance(error, ValueError | OSError)
        why = str(error) if known else f"ledger: {type(error).__name__}: {error}"
        return f"not in the ledger: {printable(why, 500)}; later: shakedown ledger add {directory.path.name}"
    return ""
