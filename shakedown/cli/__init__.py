"""The `shakedown` command.

A command is one file of the folder `commands`; the file's name is the command's, with "_" for "-". A line
`PREPARE = (...)` of the file names what the process needs before the file is loaded:

signals   Ctrl-C, SIGTERM and SIGHUP end the run in words from the first moment on
gevent    gevent's patches, which are cheap only while few objects exist
stream    nothing: without a reader of its output the command ends silently (the others go on)

A line `SECTION = "..."` says where `--help` lists the command: one of SECTIONS, else "Find out".
"""

import os
import signal
import sys

# Before all else is loaded, which takes longer than a person takes to change their mind. A process that only imports
# this module keeps its signal handlers, and its modules as they are.
if sys.argv[0].endswith("shakedown"):
    for _number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(_number) != signal.SIG_IGN:  # nohup stays nohup
            signal.signal(_number, lambda *_: os._exit(os.write(2, b"shakedown: interrupted\n") and 130))

# isort: split
import ast
import atexit
import gc
from pathlib import Path
from typing import Any

SECTIONS = ("Prepare", "Run", "Find out", "Operate")  # of --help
_FOLDER = Path(__file__).with_name("commands")
COMMANDS = tuple(sorted(file.stem.replace("_", "-") for file in _FOLDER.glob("[a-z]*.py")))


def _source(name: str) -> str:
    return (_FOLDER / f"{name.replace('-', '_')}.py").read_text("utf-8")


def _constant(name: str, constant: str, default: Any) -> Any:
    """Return a constant of a command's file, without loading the file."""
    lines = _source(name).splitlines() if name in COMMANDS else []
    value = next((line for line in lines if line.startswith(f"{constant} = ")), "")
    return ast.literal_eval(value.removeprefix(f"{constant} = ")) if value else default


def needs(name: str) -> tuple[str, ...]:
    """Return what a command's file asks of the process."""
    return tuple(_constant(name, "PREPARE", ()))


if sys.argv[0].endswith("shakedown"):
    # What is loaded stays until the end: looking through it for garbage every 700 objects, and once more when the
    # process ends and its memory goes back as a whole, takes a quarter of a short command's time.
    gc.set_threshold(50_000, 10, 10)
    atexit.register(gc.freeze)
    _needs = needs(next((word for word in sys.argv[1:] if word[:1] != "-" and word not in ("console", "json")), ""))
    if "signals" in _needs:
        from shakedown.runner.pyinfra.invocation import install_signal_handlers

        install_signal_handlers()
    if "gevent" in _needs:
        from shakedown.runner.pyinfra import patched  # noqa: F401

from importlib import import_module  # noqa: E402

import click  # noqa: E402
from click.shell_completion import CompletionItem  # noqa: E402

from shakedown.cli.completion import Group, summary, with_others  # noqa: E402
from shakedown.cli.words import EXIT_CODES, unusable  # noqa: E402
from shakedown.common.log import LOG_FORMAT, configure, go_on_without_a_reader  # noqa: E402
from shakedown.ledger import NEEDS_SQLALCHEMY  # noqa: E402


class Commands(Group):
    """A group whose commands are imported when they are needed."""

    def invoke(self, ctx: click.Context) -> Any:
        """Exit with 130 after a signal: click's own code is 1, which says here that something has failed."""
        for number in signal.valid_signals():
            if getattr(signal.getsignal(number), "__module__", "") == __name__:
                signal.signal(number, signal.default_int_handler)  # all is loaded that a traceback could begin in
        try:
            return super().invoke(ctx)
        except click.BadParameter as error:
            raise with_others(error) from error
        except KeyboardInterrupt:
            click.echo("shakedown: interrupted", err=True)
            sys.exit(130)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands."""
        return list(COMMANDS)

    def texts(self, ctx: click.Context) -> dict[str, dict[str, str]]:
        """Return the help texts, from the sources: to import all commands takes ten times as long."""
        sections: dict[str, dict[str, str]] = {title: {} for title in SECTIONS}
        for name in COMMANDS:
            sections[_constant(name, "SECTION", "Find out")][name] = _help(name)
        return sections

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete the name of a command, from the sources too, or an option of the group."""
        names = [name for name in COMMANDS if name.startswith(incomplete)]
        found = [CompletionItem(name, help=summary(_help(name))) for name in names]
        return found + click.Command.shell_complete(self, ctx, incomplete)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Load a command; None: there is none of that name."""
        if cmd_name not in COMMANDS:
            return None
        name = cmd_name.replace("-", "_")
        try:
            command: Any = getattr(import_module(f"shakedown.cli.commands.{name}"), name)
        except ModuleNotFoundError as error:
            if error.name != "sqlalchemy":
                raise
            unusable(NEEDS_SQLALCHEMY)
        assert isinstance(command, click.Command)
        return command


def _help(name: str) -> str:
    functions = {node.name: node for node in ast.parse(_source(name)).body if isinstance(node, ast.FunctionDef)}
    return ast.get_docstring(functions[name.replace("-", "_")]) or ""


@click.group(cls=Commands, epilog=EXIT_CODES, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="shakedown")
@click.option(
    "--log-format",
    type=click.Choice(["console", "json"]),
    default="console",
    envvar=LOG_FORMAT,
    help=f"json: every event of a run on stderr too, one object a line; plain pyinfra takes it from ${LOG_FORMAT}",
)
@click.pass_context
def main(context: click.Context, log_format: str) -> None:
    """Bring AMD Instinct GPU nodes into a declared state, prove it, and let them train together.

    \b
    shakedown drift inventories/rack.py  has anything drifted? changes nothing
    shakedown plan inventories/rack.py   the smoke run, without starting it
    shakedown run inventories/rack.py    bring-up, as deploy/megatron.py
    shakedown judge train.log --expect throughput_per_gpu=380
    """
    if "stream" not in needs(context.invoked_subcommand or ""):
        go_on_without_a_reader()
    configure(log_format)
