"""A group of commands: what each does in one line that is never cut off, and the nearest names for a name of none."""

import difflib
import re
from collections.abc import Mapping
from typing import Any

import click

from shakedown.cli.completion import prepare


def summary(text: str) -> str:
    """Return what a docstring's first sentence says before it goes into detail."""
    first = re.sub(r" \([^)]*\)", "", " ".join(text.strip().split("\n\n")[0].split()))
    return re.split(r"[.:;](?:\s|$)", first)[0]


class Group(click.Group):
    """A group that lists its commands in sections, and suggests the nearest where a name is none."""

    def texts(self, ctx: click.Context) -> Mapping[str, Mapping[str, str]]:
        """Return the sections: title -> names of commands -> their help texts."""
        names = self.list_commands(ctx)
        return {"Commands": {name: command.help or "" for name in names if (command := self.get_command(ctx, name))}}

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write a line for each command, as long as it is."""
        for title, texts in self.texts(ctx).items():
            with formatter.section(title):
                formatter.write_dl([(name, summary(text)) for name, text in texts.items()])

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        """Return the command that the first word names."""
        names = self.list_commands(ctx)
        if args[0] not in names and args[0][:1] != "-" and not ctx.resilient_parsing:
            near = difflib.get_close_matches(args[0], names, cutoff=0.5) or [
                name for name in names if name.startswith(args[0][:3])
            ]
            hint = f" Did you mean {' or '.join(near)}?" if near else ""
            ctx.fail(f"No such command {args[0]!r}.{hint}")
        name, command, rest = super().resolve_command(ctx, args)
        if ctx.resilient_parsing and command is not None:
            prepare(command)
        return name, command, rest
