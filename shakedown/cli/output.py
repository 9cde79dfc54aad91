"""The options --format, --output and --all, and showing a document as they ask for."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import click

from shakedown.cli.words import in_a_folder
from shakedown.common.text import complaint
from shakedown.report import formats
from shakedown.report.files import SUFFIXES, format_for, write_to
from shakedown.state.findings import Verdict

Command = TypeVar("Command", bound=Callable[..., Any])


def format_of(kind: type, none: str | None = None) -> Callable[[Command], Command]:
    """Add the option --format, with this kind's formats; the first is the default unless `none` says otherwise."""
    names = formats.names(kind)
    return click.option("--format", "form", type=click.Choice(names), default=None if none else names[0], help=none)


_OUTPUT = click.option(
    "--output",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    callback=in_a_folder,  # before the hours of a run, not after them
    help="write there, whole or not at all, and not on standard output, in the format of FILE's suffix (.html, .json) "
    "unless --format says another; a file that is there keeps its mode",
)


def format_and_output(kind: type, none: str | None = None) -> Callable[[Command], Command]:
    """Add the options --format and --output. The format is the requested one, or that of the file's suffix, or the
    default of `format_of`. A suffix that no format of this command has is refused before anything is done."""

    def decorate(function: Command) -> Command:
        @functools.wraps(function)
        def chosen(*args: Any, form: str | None, output: Path | None, **options: Any) -> Any:
            names = formats.names(kind)
            output = None if str(output) == "-" else output  # standard output, as for other programs
            if form is None and output is not None:
                form = format_for(output, names)
                if form is None:
                    endings = ", ".join(suffix for suffix, name in SUFFIXES.items() if name in names)
                    why = f"{output}: no format has the suffix {output.suffix!r} here: --format, or one of {endings}"
                    raise click.BadParameter(why, param_hint="'--output'")
            return function(*args, form=form or (None if none else names[0]), output=output, **options)

        return format_of(kind, none or "otherwise by the suffix of --output, or table")(_OUTPUT(cast(Command, chosen)))

    return decorate


def show_document(document: Any, form: str, output: Path | None, verdict: Verdict) -> int:
    """Show a document, and return the verdict's exit code; a file that cannot be written makes 2 of 0."""
    if output is None:
        formats.write(document, form)
        return verdict.exit_code
    try:
        write_to(output, document, form)
    except OSError as error:
        click.echo(complaint(f"{output}: it could not be written: {error.strerror or error}"), err=True)
        return verdict.exit_code or 2
    return verdict.exit_code


def with_view(function: Command) -> Command:
    """Add the options of a command that shows the findings of many nodes on a screen."""
    quiet = click.option("-q", "--quiet", is_flag=True, help="the headline alone")
    wide = click.option("--wide", is_flag=True, help="every node and every text whole, in lines of any width")
    return wide(quiet(with_all(function)))


def with_all(function: Command) -> Command:
    """Add the option --all of a command that shows many nodes."""
    help_text = "in the table, also what is as it should be, and each node alone"
    return click.option("--all", "show_all", is_flag=True, help=help_text)(function)
