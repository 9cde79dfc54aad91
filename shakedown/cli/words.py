"""What several commands share: the exit codes, refusals, the time of --since, and the options over an inventory."""

import functools
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NoReturn

import click

from shakedown.common.nearest import meant
from shakedown.common.private import why_unwritable
from shakedown.common.text import printable

EXIT_CODES = """
\b
Exit codes:
  0  every node in its desired state, every gate passed
  1  failed: a node unreachable, a check or a gate failed
  2  usage, or input that cannot be used
  3  drift
  4  unknown: something could not be read
  130  Ctrl-C, SIGTERM or SIGHUP
The worst wins: 1, then 4, then 3.
"""


def unusable(message: object) -> NoReturn:
    """End with 2: the input cannot be used, and nothing was done."""
    click.echo(f"shakedown: {printable(str(message), lines=True)}", err=True)
    sys.exit(2)


@contextmanager
def usable(errors: type[Exception] | tuple[type[Exception], ...] = (OSError, ValueError)) -> Iterator[None]:
    """End with 2 where a file, a run, the ledger or a value cannot be used, as one of these errors says."""
    try:
        yield
    except errors as error:
        unusable(error)


def reason(name: str, error: OSError | ValueError) -> str:
    """Return why a file could not be used, with its name where the error does not have it."""
    if not isinstance(error, OSError):
        return str(error)
    return f"{name}: {error.strerror or error}{meant(name) if isinstance(error, FileNotFoundError) else ''}"


def in_a_folder(_context: click.Context, _parameter: click.Parameter, path: Path | None) -> Path | None:
    """Refuse the file that an option names where its folder does not exist, or nothing can be written there."""
    if path is not None and not path.absolute().parent.is_dir():
        raise click.BadParameter(f"there is no folder {path.absolute().parent}")
    if path is not None and (path.is_file() or not path.exists()):
        in_a_writable_folder(_context, _parameter, path.resolve().parent)  # what a link leads to is written
    return path


def new_file(what: str) -> Callable[..., Any]:
    """Return the option --output of a command that makes a file, and overwrites none."""
    kind = click.Path(path_type=Path)
    text = f"{what} in this folder. Nothing is overwritten"
    return click.option("--output", metavar="FILE", type=kind, callback=in_a_folder, help=text)


def in_a_writable_folder(_context: click.Context, _parameter: click.Parameter, folder: Path) -> Path:
    """Refuse a folder in which nothing can be written, before the work and not after it."""
    if why := why_unwritable(folder):
        raise click.BadParameter(f"{why}: give another one")
    return folder


def read_by(read: Callable[[str], Any], without: Any = None) -> Callable[..., Any]:
    """Return an option's callback that reads its text; a ValueError is refused. `without`: the value without it."""

    def callback(_context: click.Context, _parameter: click.Parameter, value: str | None) -> Any:
        try:
            return without if value is None else read(value)
        except ValueError as error:
            raise click.BadParameter(str(error)) from error

    return callback


def names_by(check: Callable[[tuple[str, ...]], Any]) -> Callable[[str], tuple[str, ...]]:
    """Return what reads names with commas between them, which `check` refuses with a ValueError."""

    def read(text: str) -> tuple[str, ...]:
        names = tuple(name.strip() for name in text.split(",") if name.strip())
        check(names)
        return names

    return read


_AGO = re.compile(r"(\d{1,5})([mhdw])")
_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


class Since(click.ParamType[datetime]):
    """A day, a time, or how long ago."""

    name = "time"

    def convert(self, value: Any, param: Any, ctx: Any) -> datetime:
        """Return the time; what has no zone is UTC."""
        if isinstance(value, datetime):
            return value
        if ago := _AGO.fullmatch(str(value)):
            return datetime.now(UTC) - timedelta(**{_UNITS[ago[2]]: int(ago[1])})
        try:
            at = datetime.fromisoformat(str(value))
        except ValueError:
            self.fail(f"{value!r} is neither 2026-11-22 or 2026-11-22T06:00 (UTC) nor 12h, 7d or 4w ago", param, ctx)
        at = at if at.tzinfo else at.replace(tzinfo=UTC)
        if at > datetime.now(UTC):
            self.fail(f"{value!r} lies in the future: give a time that is over", param, ctx)
        return at


def _an_inventory(_context: click.Context, _parameter: click.Parameter, value: str) -> str:
    """Return what stands for INVENTORY. Raises BadParameter for what pyinfra would wait for: pipes, devices, /proc."""
    if not value:
        raise click.BadParameter("an empty text names no inventory: is a variable of the shell not set?")
    path = Path(value)
    if path.exists() and not path.is_dir() and not (path.is_file() and path.stat().st_size):
        kinds = "an inventory is a Python file, or names such as @local"
        raise click.BadParameter(f"{value} is no file, or an empty one: {kinds}")
    return value


@dataclass(frozen=True)
class Target:
    """The nodes that a command is about, as its argument and options name them, and how much it shows of its work."""

    inventory: str
    limit: tuple[str, ...]
    data: tuple[str, ...]
    parallel: int | None
    verbose: int


def over_inventory(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the argument and options that every command over an inventory takes; the command gets them as `target`."""

    @functools.wraps(function)
    def decorated(*, inventory: str, limit: Any, data: Any, parallel: int | None, verbose: int, **options: Any) -> Any:
        return function(target=Target(inventory, limit, data, parallel, verbose), **options)

    for decorate in (
        click.option("-v", "--verbose", count=True, help="evidence, and pyinfra's lines, folded; -vv (run: -v): each"),
        click.option("--parallel", type=click.IntRange(min=1), help="how many nodes are worked on at once"),
        click.option(
            "--data",
            multiple=True,
            metavar="KEY=VALUE",
            help="override host data: gpu=mi300x, smoke.iterations=5, ssh_port=2222; repeatable",
        ),
        click.option(
            "--limit",
            multiple=True,
            metavar="HOSTS",
            help="only these hosts: names, ranges, groups, * for any text, commas between them, ! before what to leave "
            "out: 'node[01-24,30],rack8,!node17'; repeatable",
        ),
        click.argument("inventory", callback=_an_inventory),
    ):
        decorated = decorate(decorated)
    return decorated
