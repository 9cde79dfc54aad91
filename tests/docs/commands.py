"""docs/reference/commands.md: what every command says of itself."""

from __future__ import annotations

import ast
from pathlib import Path

import click

from shakedown.cli import main
from tests.docs.markdown import table

_DEPLOYS = Path(__file__).parents[2] / "deploy"
_WIDTH = 110


def every() -> dict[str, click.Command]:
    """The commands by name."""
    context = click.Context(main, info_name="shakedown")
    found = {name: main.get_command(context, name) for name in main.list_commands(context)}
    commands = {name: command for name, command in found.items() if command is not None}
    for name, group in list(commands.items()):
        if isinstance(group, click.Group):
            commands |= {f"{name} {each}": command for each, command in group.commands.items()}
    return commands


def help_of(name: str, command: click.Command) -> str:
    """What `shakedown NAME --help` prints, at a width of its own."""
    parent = click.Context(main, info_name="shakedown", **main.context_settings)
    command._help_option = None  # click keeps that of the first context, which had no parent where a test called it
    with click.Context(
        command, info_name=name, parent=parent, max_content_width=_WIDTH, terminal_width=_WIDTH
    ) as context:
        return command.get_help(context)


def commands() -> str:
    """The help of every command."""
    parts = [f"### shakedown {name}\n\n```text\n{help_of(name, command)}\n```\n" for name, command in every().items()]
    return "\n".join(parts)


def deploys() -> str:
    """The deploys that a user names, by their first line."""
    rows = []
    for path in sorted(_DEPLOYS.glob("*.py")):
        text = ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""
        if f"deploy/{path.name}" in text:  # it shows how it is called: the others are not called
            rows.append((f"`pyinfra INVENTORY deploy/{path.name}`", " ".join(text.split("\n\n")[0].split())))
    return table(("command", "what it does"), rows)
