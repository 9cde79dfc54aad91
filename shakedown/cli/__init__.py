"""The `shakedown` command."""

from __future__ import annotations

import sys

# Before what takes longer to load than a person takes to change their mind. Who only imports this keeps their handlers.
_words = [word for word in sys.argv[1:] if not word.startswith("-") and word not in ("console", "json")]
if sys.argv[0].endswith("shakedown") and _words[:1] in (["run"], ["drift"], ["plan"]):
    from shakedown.runner.invocation import install_signal_handlers

    install_signal_handlers()

from collections.abc import Callable  # noqa: E402
from importlib import import_module  # noqa: E402
from typing import Any, TypeVar  # noqa: E402

import click  # noqa: E402

from shakedown.log import configure  # noqa: E402

Command = TypeVar("Command", bound=Callable[..., Any])

# Where each command stands. Loaded when it is called: a drift check has no use for the log parser.
COMMANDS = {
    "show": "nodes",
    "plan": "nodes",
    "drift": "nodes",
    "run": "nodes",
    "parse": "logs",
    "judge": "logs",
    "report": "logs",
    "import-cvs": "cvs",
    "init": "site",
}

EXIT_CODES = """
\b
Exit codes:
  0  every node in its desired state, every gate passed
  1  failed: a node unreachable, a check or a gate failed
  2  usage, or input that cannot be used
  3  drift
  4  unknown: something could not be read
The worst wins: 1, then 4, then 3.
"""


def format_of(kind: type) -> Callable[[Command], Command]:
    """The option --format of a command, with the formats that show this kind of document."""
    from shakedown.report import formats  # the group itself has no use for them

    known = formats.names(kind)
    return click.option("--format", "form", type=click.Choice(known), default=known[0])


def with_all(function: Command) -> Command:
    """The option --all of a command that shows many nodes."""
    help_text = "in the table, also what is as it should be, and each node by itself"
    return click.option("--all", "show_all", is_flag=True, help=help_text)(function)


class Commands(click.Group):
    """A group whose commands are imported when they are needed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: Any = getattr(import_module(f"shakedown.cli.{COMMANDS[cmd_name]}"), cmd_name.replace("-", "_"))
        assert isinstance(command, click.Command)
        return command


@click.group(cls=Commands, epilog=EXIT_CODES, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="shakedown")
@click.option("--log-format", type=click.Choice(["console", "json"]), default="console", help="of the tool's own log")
def main(log_format: str) -> None:
    """Bring AMD Instinct GPU nodes into a declared state, prove it, and let them train together.

    \b
    shakedown drift inventories/rack.py        has anything drifted? changes nothing
    shakedown plan inventories/rack.py         the smoke run, node by node, without starting it
    shakedown run inventories/rack.py          bring-up: the same as pyinfra ... deploy/megatron.py -y
    shakedown judge train.log --expect throughput_per_gpu=380
    """
    configure(log_format)
