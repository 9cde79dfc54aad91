"""The argument and options of commands over an inventory."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])


def _an_inventory(_context: click.Context, _parameter: click.Parameter, value: str) -> str:
    """Return what stands for INVENTORY. Raises BadParameter for what pyinfra would wait for: pipes, devices, /proc."""
    path = Path(value)
    if path.exists() and not path.is_dir() and not (path.is_file() and path.stat().st_size):
        kinds = "an inventory is a Python file, or names such as @local"
        raise click.BadParameter(f"{value} is no file, or an empty one: {kinds}")
    return value


def over_inventory(function: Command) -> Command:
    """Add the argument and options that every command over an inventory takes."""
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
        function = decorate(function)
    return function
