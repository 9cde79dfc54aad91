"""What commands over earlier runs say of one of them."""

from collections.abc import Sequence

from shakedown.runs.directory import RunDirectory
from shakedown.runs.records import RunRecord
from shakedown.runs.watch.reading import unfinished

APART = "is kept as evidence of {origin}: it changes no node's service and no baseline (shakedown ledger import)"


def no_end(directory: RunDirectory, record: RunRecord, messages: Sequence[str]) -> list[str]:
    """Return a line on a run without an end. An archive has `messages`; its run had no end when it was packed."""
    if record.finished_at is not None:
        return []
    return ["the run had no end when it was packed" if messages else unfinished(directory.path)]
