"""A group of commands: one line for each, the nearest names for a name of none, and what the shell completes."""

import difflib
import re
from collections.abc import Mapping
from importlib import import_module
from itertools import pairwise
from typing import Any

import click
from click.shell_completion import CompletionItem

from shakedown.common.nearest import nearest

_MOST = 1000  # names that a shell is given
_WORD = re.compile(r"[\w@.,:/+=~\[\]-]+")  # a shell runs what else a file's name may hold: $(...) in a run of others
_FILES = ("inventory", "log", "logs", "file")
_RUNS = ("run", "runs", "first", "second", "resume")
_HOSTS = ("host", "limit", "taken")  # of the inventory that stands before
_NODES = ("node", "hosts")  # of runs
# Names of parameters, with the command where it matters -> the function that returns their values, and its arguments.
# A shell waits for what is loaded.
_VALUES: dict[str, tuple[str, str, tuple[Any, ...]]] = {
    **dict.fromkeys((*_RUNS, "isolate inventory"), ("shakedown.runs.folder", "run_ids", ())),
    **dict.fromkeys(_HOSTS, ("shakedown.runner.pyinfra.written", "written_hosts", ())),
    **dict.fromkeys(_NODES, ("shakedown.runs.folder", "nodes_read", ())),
    "recipe": ("shakedown.recipes.recipe", "recipes", ()),
    "names": ("shakedown.runner.demo.scenario", "faults", ()),
    "gpu": ("shakedown.desired.profiles", "names", ("gpu",)),
    "only": ("shakedown.trials.workload.registry", "trials", ()),
    "soak only": ("shakedown.trials.soak", "chosen_stages", ((),)),
}


def prepare(command: click.Command) -> None:
    """Have the parameters of a command that are texts completed by what their names mean."""
    for parameter in command.params:
        if parameter.type is click.STRING and parameter.name in {*_FILES, *_VALUES}:
            parameter._custom_shell_complete = _complete  # what `shell_complete=` sets


def _complete(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete a text; of several with commas between them the last."""
    name = parameter.name or ""
    own = f"{context.command.name} {name}"
    files = [CompletionItem(incomplete, type="file")] if name in (*_FILES, *_RUNS) else []
    if not (value := _VALUES.get(own) or _VALUES.get(name)):
        return files
    module, function, arguments = value
    # What stands before; no parameter has it yet behind an option.
    if name in _HOSTS:
        arguments = (context.params.get("inventory") or "".join(context.args[:1]),)
    elif name in _NODES:
        arguments = (context.params.get("run") or "",)
    values = list(getattr(import_module(module), function)(*arguments))
    names = [name for name in (["latest"] * (function == "run_ids") + values) if _WORD.fullmatch(name)]
    before = incomplete[: max(incomplete.rfind(","), incomplete.rfind("!")) + 1]
    found = (f"{before}{value}" for value in names)
    return files + [CompletionItem(value) for value in found if value.startswith(incomplete)][:_MOST]


def summary(text: str) -> str:
    """Return what a docstring's first sentence says before it goes into detail."""
    first = re.sub(r" \([^)]*\)", "", " ".join(text.strip().split("\n\n")[0].split()))
    return re.split(r"[.:;](?:\s|$)", first)[0]


def with_others(error: click.BadParameter) -> click.UsageError:
    """Return the error with those of the other parameters, and the nearest choices: click stops at the first."""
    errors, context = [error], error.ctx
    if context is not None and error.param is not None:
        values, _, _ = context.command.make_parser(context).parse_args(list(context.meta.get(__name__, ())))
        for param in context.command.get_params(context):
            try:
                if param is not error.param and not param.is_eager:
                    param.handle_parse_result(context, values, [])
            except click.BadParameter as other:
                other.ctx = other.ctx or context
                errors.append(other)
    return click.UsageError("\n".join(map(_with_nearest, errors)), context)


def _with_nearest(error: click.BadParameter) -> str:
    kind, word = getattr(error.param, "type", None), re.match("'(.*?)' is", error.message)
    choices = map(str, kind.choices) if word and isinstance(kind, click.Choice) else ()
    return error.format_message() + nearest(word[1] if word else "", choices, " Did you mean ", "?")


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
            alike = [name for name in names if name.startswith(args[0][:3])]
            near = difflib.get_close_matches(args[0], names, cutoff=0.5) or alike
            hint = f" Did you mean {' or '.join(near)}?" if near else ""
            ctx.fail(f"No such command {args[0]!r}.{hint}")
        name, command, rest = super().resolve_command(ctx, args)
        options = [param for param in command.params if isinstance(param, click.Option)] if command else []
        names = [name for option in options if not (option.is_flag or option.count) for name in option.opts]
        pairs = [word.partition("=")[::2] for word in rest if word[-1:] == "="] + list(pairwise(rest))
        empty = [word for word, value in pairs if value == "" and word in names]
        if empty and not ctx.resilient_parsing:
            ctx.fail(f"{', '.join(empty)}: an empty text: is a variable of the shell not set?")
        ctx.meta[__name__] = tuple(rest)  # parsing takes them out of the list
        if ctx.resilient_parsing and command is not None:
            prepare(command)
        return name, command, rest
