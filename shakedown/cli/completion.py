"""A group of commands: one line for each, the nearest names for a name of none, and what the shell completes."""

import contextlib
import difflib
import io
import re
from collections.abc import Mapping
from importlib import import_module
from typing import Any

import click
from click.shell_completion import CompletionItem

_MOST = 1000  # names that a shell is given
_FILES = ("inventory", "log", "logs", "file")
_RUNS = ("run", "runs", "first", "second", "resume")
_HOSTS = ("host", "limit", "taken")
# Names of parameters -> the function that returns their values, and its arguments. A shell waits for what is loaded.
_VALUES: dict[str, tuple[str, str, tuple[str, ...]]] = {
    **dict.fromkeys(_RUNS, ("shakedown.runs.folder", "run_ids", ())),
    **dict.fromkeys(_HOSTS, ("shakedown.runner.engine", "load", ())),
    "recipe": ("shakedown.recipes.recipe", "recipes", ()),
    "names": ("shakedown.runner.demo.scenario", "faults", ()),
    "gpu": ("shakedown.desired.profiles", "names", ("gpu",)),
    "only": ("shakedown.trials.workload.registry", "trials", ()),
}


def prepare(command: click.Command) -> None:
    """Have the parameters of a command that are texts completed by what their names mean."""
    for parameter in command.params:
        if parameter.type is click.STRING and parameter.name in {*_FILES, *_VALUES}:
            parameter._custom_shell_complete = _complete  # what `shell_complete=` sets


def _complete(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete a text; of several with commas between them the last."""
    name = parameter.name or ""
    files = [CompletionItem(incomplete, type="file")] if name in (*_FILES, *_RUNS) else []
    if name not in _VALUES:
        return files
    module, function, arguments = _VALUES[name]
    values = getattr(import_module(module), function)
    names = _hosts(context, values) if name in _HOSTS else list(values(*arguments))
    before = incomplete[: max(incomplete.rfind(","), incomplete.rfind("!")) + 1]
    found = (f"{before}{value}" for value in (["latest", *names] if name in _RUNS else names))
    return files + [CompletionItem(value) for value in found if value.startswith(incomplete)][:_MOST]


def _hosts(context: click.Context, load: Any) -> list[str]:
    """Return the groups and hosts of the inventory that stands before."""
    inventory = context.params.get("inventory") or "".join(context.args[:1])  # no parameter yet behind an option
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        try:
            made = load(inventory, connects=False).inventory
        except Exception:  # an inventory is a user's program: nothing of it can be completed
            return []
    groups = [group for group, own in made.groups.items() if own]
    return list(dict.fromkeys([*groups, *(host.name for host in made), "all"]))


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
