"""The result of a run that another one resumes."""

from pathlib import Path

from shakedown.runs.directory import RunDirectory
from shakedown.runs.folder import own
from shakedown.runs.rolling.model import Rolling


def earlier_of(path: Path) -> Rolling:
    """Return the result of a run in batches. Raise ValueError for another kind of run, or an unreadable one."""
    try:
        own(path, "run.json")
        record = RunDirectory(path).load()
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror or error}") from error
    if record.rolling is None:
        raise ValueError(
            f"{path}: it was no run in batches (--batch), so there is nothing to go on with: leave out --resume"
        )
    return record.rolling
