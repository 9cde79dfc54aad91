"""What the shell completes: files, runs, hosts and groups of the inventory, recipes. Formats are choices."""

import contextlib
import io
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
