"""The folder of runs: which there are, by which names they are found, whether another can be kept."""

import json
import re
import shutil
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from shakedown.common import private
from shakedown.common.nearest import meant
from shakedown.common.runs_folder import runs_folder
from shakedown.common.text import some
from shakedown.node.owners import closed, place
from shakedown.runs.directory import SIGNATURES, STATEMENT, RunDirectory
from shakedown.runs.rolling import Rolling


def why_none_can_be_kept(root: Path | None = None) -> str:
    """Return why runs cannot be kept in this folder, with the remedy; empty: they can."""
    root = root or runs_folder()
    why = private.why_unwritable(root)
    return f"no run can be kept in {root}, since {why}: set $SHAKEDOWN_RUNS to another folder" if why else ""


def find_run(name: str, root: Path | None = None) -> Path:
    """Find a run's directory by id, unique beginning, `latest`, or path (also of run.json). Raises ValueError."""
    root = root or runs_folder()
    if not name:
        raise ValueError(f"an empty text names no run: is a variable of the shell not set? {_there_are(root)}")
    path = Path(name)
    found = run_ids(root)
    if name in found:
        return root / name
    if name == "latest":
        return root / _latest(root, found)
    begin = [run for run in found if run.startswith(name)]
    if len(begin) == 1:
        return root / begin[0]
    if begin:
        raise ValueError(f"{name}: {len(begin)} runs in {root} begin so: {some(begin)}")
    if path.name == "run.json" and path.is_file():
        return path.parent
    if (path / "run.json").is_file():
        return path
    if path.is_dir():
        why = "no run directory, for it has no run.json; of logs that lie in it give each"
        raise ValueError(f"{name}: {why}. {_there_are(root)}")
    if path.exists():
        raise ValueError(f"{name}: a file and no run; a log is judged with: shakedown judge {name}. {_there_are(root)}")
    raise ValueError(f"{name}: no such file, and no such run{_meant(name, found)}. {_there_are(root)}")


def _meant(name: str, found: list[str]) -> str:
    """Return the question that follows an unknown name; the last part of an id is not what `find_run` reads."""
    behind = [run for run in found if name and run.endswith(name)]
    return f" (did you mean {some(behind)}?)" if behind else meant(name, ["latest", *found] if found else ())


def own(path: Path, *names: str) -> None:
    """Raise ValueError where another user could have written or put these files of a run directory. Raises OSError."""
    _mine(path, *names)
    try:
        place(str(path))
    except PermissionError as error:
        why = f"others may write in {error.filename}, and could have put it there"
        raise ValueError(f"{path}: {why}: chmod g-w,o-w that folder, or +t where several keep runs") from None


def _mine(path: Path, *names: str) -> None:
    """Raise ValueError where another user could have written these files, in the directory as it is. Raises OSError."""
    for file in (path, *(path / name for name in names)):
        found = file.stat() if file is path else file.lstat()
        if not closed(found):
            mode = stat.S_IMODE(found.st_mode)
            why = f"it belongs to uid {found.st_uid} and has mode {mode:04o}, so others than you could have written it"
            raise ValueError(f"{file}: {why}: look at it, and go on from a copy of your own")


def place_of_inventory(inventory: str) -> str:
    """Return what tells an inventory from another of the same name: the path of its file; nothing for hosts' names."""
    return str(Path(inventory).resolve()) if inventory and Path(inventory).exists() else ""


def remove_old_checks(inventory: str, newest: int, current: str, root: Path | None = None) -> list[str]:
    """Remove an inventory's drift checks but for the newest and the `current` one; return the others' ids. A directory
    goes only with a check's files alone, this user's, not open here. A run with a job stays. Raises OSError."""
    wanted, root = (inventory, place_of_inventory(inventory)), root or runs_folder()
    found = sorted(run_ids(root), key=lambda run: (run[:15], run == current), reverse=True)  # its second's newest
    heads = {run: _head(root / run) for run in found if _is_check(root / run)}
    # A record that does not say where its inventory is, is of no known one.
    alike = [run for run, head in heads.items() if (head.get("inventory", ""), head.get("inventory_path")) == wanted]
    removed = []
    for run in alike[newest:]:
        path = root / run
        with suppress(ValueError, FileNotFoundError):  # not this user's alone, no record, or another check removed it
            _mine(path, "run.json", "states", "logs")
            record = RunDirectory(path).load()
            over = record.kind == "drift" and record.run_id == run and record.finished_at and not record.jobs
            if over and run != current and not any(file.is_relative_to(path.resolve()) for file in _open()):
                shutil.rmtree(path.rename(root / f".removed-{run}"))  # no reader finds half of it
                removed.append(run)
    return removed


_NEWEST = 50  # runs that are looked through while a shell waits
_ID = re.compile(r"\d{8}T\d{6}-[0-9a-f]{6}")


def _is_check(path: Path) -> bool:
    """Tell whether a directory holds what a drift check writes, and nothing else."""
    try:
        return (
            _ID.fullmatch(path.name) is not None
            and {entry.name for entry in path.iterdir()} - {STATEMENT, SIGNATURES} == {"run.json", "states", "logs"}
            and not any((path / "logs").iterdir())
            and all(file.suffix == ".json" and file.is_file() for file in (path / "states").iterdir())
        )
    except OSError:
        return False


def _head(path: Path) -> dict[str, str]:
    """Return the texts at the beginning of a record: a rack's record is large, and they are all that counts it."""
    try:
        with (path / "run.json").open("rb") as file:
            lines = file.read(4096).decode("utf-8", "replace").splitlines()
        pairs = (re.fullmatch(r' "(\w+)": (".*"),', line) for line in lines)
        return {pair[1]: str(json.loads(pair[2])) for pair in pairs if pair}
    except (OSError, ValueError):
        return {}


def _open() -> Iterator[Path]:
    """Yield what processes of this machine have open, or stand in, as far as this user may see it."""
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            for link in (process / "cwd", *(process / "fd").iterdir()):
                with suppress(OSError):
                    yield link.readlink()


def run_ids(root: Path | None = None) -> list[str]:
    """Return the runs that are kept, the newest first."""
    try:
        folders = [entry for entry in (root or runs_folder()).iterdir() if entry.is_dir() and not entry.is_symlink()]
    except OSError:
        return []
    return sorted((folder.name for folder in folders if (folder / "run.json").is_file()), reverse=True)


def nodes_read(name: str = "", inventory: str = "") -> list[str]:
    """Return the nodes that a run has read; without its name those of the newest runs, or an inventory's newest."""
    root, place = runs_folder(), place_of_inventory(inventory)
    with suppress(ValueError):
        found = [find_run(name, root)] if name else [root / run for run in run_ids(root)[:_NEWEST]]
        if inventory:
            found = [run for run in found if _head(run).get("inventory_path") == place][:1]
        return sorted({file.stem for run in found for file in (run / "states").glob("*.json")})
    return []


def _latest(root: Path, found: list[str]) -> str:
    try:
        name = str((root / "latest").readlink())
    except OSError:
        name = found[0] if found else ""
    if name in found:
        return name
    raise ValueError(f"latest: {f'it is {name}, which is not a run' if name else 'no such run'}. {_there_are(root)}")


def _there_are(root: Path) -> str:
    try:
        next(root.iterdir(), None)
    except FileNotFoundError:
        pass
    except OSError as error:  # another user's, most likely: a run is its owner's alone
        return f"{root} cannot be read: {error.strerror}"
    found = run_ids(root)
    return f"In {root} there are {some(found) if found else 'none ($SHAKEDOWN_RUNS names the folder)'}"


def earlier_of(path: Path) -> Rolling:
    """Return the result of a run in batches. Raise ValueError for another kind of run, or an unreadable one."""
    try:
        own(path, "run.json")
        record = RunDirectory(path).load()
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror or error}") from error
    if record.rolling is None:
        why = "it was no run in batches (--batch), so there is nothing to go on with: leave out --resume"
        raise ValueError(f"{path}: {why}")
    return record.rolling
