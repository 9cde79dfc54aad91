"""What the end of a run does with the ledger. It changes no verdict, and is never silent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from shakedown.common.text import printable
from shakedown.runs.directory import RunDirectory
from shakedown.runs.records import Evidence, RunRecord
from shakedown.state.node import NodeState

if TYPE_CHECKING:
    from shakedown.ledger.history import RunRow


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
        entry, _, store = _modules()
        if states is None:
            store.open_ledger().add(directory, record, origin)
        else:
            store.open_ledger().put(entry.entry_of(record, states, directory, evidence or {}))
    except Exception as error:  # whatever it is, the run has come to what it has come to
        known = isinstance(error, ValueError | OSError)
        why = str(error) if known else f"ledger: {type(error).__name__}: {error}"
        return f"not in the ledger: {printable(why, 500)}; later: shakedown ledger add {directory.path.name}"
    return ""


def earlier(limit: int) -> list[RunRow]:
    """Return the newest runs of the ledger; without a ledger there are none. Raise LedgerError."""
    _, history, store = _modules()
    ledger = store.open_ledger()
    runs: list[RunRow] = history.history(ledger, history.Asked(limit=limit)).runs if ledger.exists() else []
    return runs


def _modules() -> tuple[Any, Any, Any]:
    from shakedown.ledger import entry, history, store  # SQLAlchemy, 100 ms: not at the start of a run

    return entry, history, store
