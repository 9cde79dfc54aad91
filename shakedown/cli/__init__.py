"""The `shakedown` command."""

from __future__ import annotations

import ast
import atexit
import functools
import gc
import sys

# Before all else is loaded, which takes longer than a person takes to change their mind, and makes the objects that
# gevent's patches look through. Who only imports this keeps what they have.
_command = next((word for word in sys.argv[1:] if word[:1] != "-" and word not in ("console", "json")), "")
if sys.argv[0].endswith("shakedown"):
    # What is loaded stays until the end: looking through it for garbage every 700 objects, and once more when the
    # process ends and its memory goes back as a whole, takes a quarter of a short command's time.
    gc.set_threshold(50_000, 10, 10)
    atexit.register(gc.freeze)
    if _command in ("run", "drift", "plan", "trials", "isolate"):
        from shakedown.runner.pyinfra.invocation import install_signal_handlers

        install_signal_handlers()
    if _command in ("run", "drift", "plan", "trials", "isolate", "show", "service"):
        from shakedown.runner.pyinfra import patched  # noqa: F401

from collections.abc import Callable  # noqa: E402
from importlib import import_module  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, cast  # noqa: E402

import click  # noqa: E402

from shakedown.common.log import configure  # noqa: E402

if TYPE_CHECKING:
    from shakedown.state.findings import Verdict

Command = TypeVar("Command", bound=Callable[..., Any])

# Where each command stands. Loaded when it is called: a drift check has no use for the log parser.
COMMANDS = {
    "show": "nodes",
    "plan": "nodes",
    "drift": "nodes",
    "run": "nodes",
    "calibrate": "calibrate",
    "trials": "trials",
    "watch": "watch",
    "isolate": "isolation",
    "parse": "parse",
    "service": "service",
    "explain": "explain",
    "judge": "logs",
    "report": "logs",
    "bundle": "archive",
    "history": "ledger",
    "compare": "ledger",
    "ledger": "ledger",
    "import-cvs": "cvs",
    "init": "site",
}

_STREAMS = ("parse", "watch", "ledger")  # without a reader these have nothing left to do


def unusable(message: object) -> NoReturn:
    """End with 2: what was given cannot be used, and nothing was done."""
    from shakedown.common.text import printable  # the group itself has no use for it

    click.echo(f"shakedown: {printable(str(message), lines=True)}", err=True)
    sys.exit(2)


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


def format_of(kind: type, none: str | None = None) -> Callable[[Command], Command]:
    """The option --format of a command, with the formats that show this kind of document. The first of them is the
    default, unless there is `none`, whose words say what the option does."""
    from shakedown.report import formats  # the group itself has no use for them

    known = formats.names(kind)
    return click.option("--format", "form", type=click.Choice(known), default=None if none else known[0], help=none)


def in_a_folder(_context: click.Context, _parameter: click.Parameter, path: Path | None) -> Path | None:
    """Of an option with a file to write: refuse it where there is no folder for it."""
    if path is not None and not path.absolute().parent.is_dir():
        raise click.BadParameter(f"there is no folder {path.absolute().parent}")
    return path


_OUTPUT = click.option(
    "--output",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    callback=in_a_folder,  # before the hours of a run, not after them
    help="write there, whole or not at all, and not on standard output, in the format of FILE's suffix (.html, .json) "
    "unless --format says another; a file that is there keeps its mode",
)


def format_and_output(kind: type, none: str | None = None) -> Callable[[Command], Command]:
    """The options --format and --output of a command: the format is the one that is asked for, or that of the file's
    suffix, or as `format_of` has it. A suffix that says none of this command's is refused, before anything is done."""

    def decorate(function: Command) -> Command:
        @functools.wraps(function)
        def chosen(*args: Any, form: str | None, output: Path | None, **given: Any) -> Any:
            from shakedown.report import formats

            known = formats.names(kind)
            if form is None and output is not None:
                from shakedown.report.files import SUFFIXES, format_for

                form = format_for(output, known)
                if form is None:
                    endings = ", ".join(suffix for suffix, name in SUFFIXES.items() if name in known)
                    raise click.BadParameter(
                        f"{output}: no format has the suffix {output.suffix!r} here: --format, or one of {endings}",
                        param_hint="'--output'",
                    )
            return function(*args, form=form or (None if none else known[0]), output=output, **given)

        return format_of(kind, none or "otherwise by the suffix of --output, or table")(_OUTPUT(cast(Command, chosen)))

    return decorate


def show(document: Any, form: str, output: Path | None, verdict: Verdict) -> int:
    """A document as a format shows it, on standard output or in a file. Returns the exit code: that of the verdict,
    which a file that cannot be written does not change; but where all was well it is then 2."""
    from shakedown.report import formats

    if output is None:
        formats.write(document, form)
        return verdict.exit_code
    from shakedown.report.files import write_to

    try:
        write_to(output, document, form)
    except OSError as error:
        click.echo(f"shakedown: {output}: it could not be written: {error.strerror or error}", err=True)
        return verdict.exit_code or 2
    return verdict.exit_code


def with_all(function: Command) -> Command:
    """The option --all of a command that shows many nodes."""
    help_text = "in the table, also what is as it should be, and each node by itself"
    return click.option("--all", "show_all", is_flag=True, help=help_text)(function)


class Commands(click.Group):
    """A group whose commands are imported when they are needed."""

    def invoke(self, ctx: click.Context) -> Any:
        """click's own exit code for Ctrl-C is 1, which says here that something has failed."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            click.echo("shakedown: interrupted", err=True)
            sys.exit(130)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """A line for each command, from its source: to import all of them takes ten times as long as the rest."""
        width = formatter.width - 6 - max(map(len, COMMANDS))
        with formatter.section("Commands"):
            formatter.write_dl([(name, _as_written(name).get_short_help_str(width)) for name in COMMANDS])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: Any = getattr(import_module(f"shakedown.cli.{COMMANDS[cmd_name]}"), cmd_name.replace("-", "_"))
        assert isinstance(command, click.Command)
        return command


def _as_written(name: str) -> click.Command:
    """A command that says of itself what its source says, and does nothing."""
    source = Path(__file__).with_name(f"{COMMANDS[name]}.py").read_text("utf-8")
    functions = {each.name: each for each in ast.parse(source).body if isinstance(each, ast.FunctionDef)}
    return click.Command(name, help=ast.get_docstring(functions[name.replace("-", "_")]))


@click.group(cls=Commands, epilog=EXIT_CODES, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="shakedown")
@click.option("--log-format", type=click.Choice(["console", "json"]), default="console", help="of the tool's own log")
@click.pass_context
def main(context: click.Context, log_format: str) -> None:
    """Bring AMD Instinct GPU nodes into a declared state, prove it, and let them train together.

    \b
    shakedown drift inventories/rack.py        has anything drifted? changes nothing
    shakedown plan inventories/rack.py         the smoke run, node by node, without starting it
    shakedown run inventories/rack.py          bring-up: the same as pyinfra ... deploy/megatron.py -y
    shakedown judge train.log --expect throughput_per_gpu=380
    """
    if context.invoked_subcommand not in _STREAMS:
        from shakedown.common.broken_pipe import go_on_without_a_reader

        go_on_without_a_reader()
    configure(log_format)
