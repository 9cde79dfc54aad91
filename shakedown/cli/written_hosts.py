"""The groups and hosts that an inventory's text has. Nothing of it runs: a shell asks for them at a press of a key."""

import ast
from collections.abc import Iterator
from pathlib import Path

from shakedown.hosts import nodes
from shakedown.runs.folder import nodes_read


def written_hosts(inventory: str) -> list[str]:
    """Return the groups and hosts that are written out in an inventory, else those of its newest run."""
    path = Path(inventory)
    try:
        if not path.is_file():
            return [*nodes(inventory), "all"]
        body = ast.parse(path.read_bytes()).body
        groups = {
            target.id: list(_hosts(statement.value))
            for statement in body
            if isinstance(statement, ast.Assign) and isinstance(target := statement.targets[0], ast.Name)
        }
    except (OSError, SyntaxError, ValueError):
        return []
    named = [group for group, hosts in groups.items() if hosts and not group.startswith("_")]
    hosts = dict.fromkeys(host for group in named for host in groups[group]) or nodes_read(inventory=inventory)
    return list(dict.fromkeys([*named, path.stem, *hosts, "all"])) if hosts else []


def _hosts(value: ast.expr) -> Iterator[str]:
    """Yield the hosts of a group, or of a part of one."""
    if isinstance(value, ast.Tuple):  # a group, or a host, with its values
        yield from _hosts(value.elts[0]) if value.elts else ()
    elif isinstance(value, ast.List):
        for item in value.elts:
            yield from _hosts(item)
    elif isinstance(value, ast.BinOp):
        yield from (*_hosts(value.left), *_hosts(value.right))
    elif isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "nodes":
        yield from nodes(*(word for argument in value.args for word in _hosts(argument)))
    elif isinstance(value, ast.Constant) and isinstance(value.value, str):
        yield value.value
