"""What pyinfra takes for something else, or passes over, in an inventory file and in the group_data beside it."""

import difflib
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pyinfra.api import Inventory

from shakedown.desired import DesiredStateError, Problem
from shakedown.desired.problems import shown

_HOSTS = 'a list of hosts, as ["node01", "node02"] or nodes("node[01-02]")'
_DATA = 'a dictionary, as {"gpu": "mi300x"}'
SEVERAL = frozenset("[], \n")  # in a name: it is several, or none


def groups_of(file: str) -> dict[str, Any]:
    """Run an inventory file and return its groups, as pyinfra takes them. Raise DesiredStateError with every group that
    pyinfra would take for something else."""
    # pyinfra's command line has gevent patch the process that imports it.
    from pyinfra_cli import inventory as pyinfras

    values: dict[str, Any] = pyinfras.exec_file(file, return_locals=True)
    wrong = [problem for name, value in values.items() if name[:1] != "_" for problem in _misread(file, name, value)]
    if wrong:
        raise DesiredStateError(wrong)
    return {name: value for name, value in values.items() if pyinfras._is_inventory_group(name, value)}


def _misread(file: str, name: str, value: Any) -> Iterator[Problem]:
    hosts = value
    if isinstance(value, tuple):
        if len(value) != 2 or isinstance(value[1], str | tuple):
            yield Problem(file, name, shown(value), 'a list of hosts and a dictionary, as (["n1"], {"gpu": "cpu"})')
            return
        hosts, data = value
        if not isinstance(data, dict):
            yield Problem(file, f"{name}, its data", shown(data), _DATA)
        if not isinstance(hosts, list | tuple):
            yield Problem(file, f"{name}, its hosts", shown(hosts), _HOSTS)
            return
    elif not isinstance(value, list) or not any(isinstance(host, str | tuple | list) for host in value):
        return  # another variable of the file
    for host in hosts:
        host, data = host if isinstance(host, tuple) and len(host) == 2 else (host, {})
        if isinstance(host, list):
            yield Problem(file, name, shown(host), "hosts without lists among them, as [*nodes(...), *nodes(...)]")
        elif not isinstance(host, str) or not host:
            yield Problem(file, name, shown(host), "the name of a host, or a pair of the name and its data")
        elif not host.isprintable():
            yield Problem(file, name, shown(host), "a name of printable characters")
        elif host[0] != "@" and not SEVERAL.isdisjoint(host):
            yield Problem(file, name, shown(host), f"one name: nodes({host!r}) makes several of it")
        if not isinstance(data, dict):
            yield Problem(file, f"{name}, {host}", shown(data), _DATA)


def without_group(inventory: str, made: Inventory, cwd: str | None, more: Sequence[str]) -> Iterator[Problem]:
    """Yield the files of group_data that pyinfra reads for a group that no inventory of this folder names."""
    file = Path(inventory)
    if not file.is_file():
        return
    read = (Path(cwd or ".", "group_data"), file.parent / "group_data", *map(Path, more))
    files = [path for folder in {folder.resolve(): None for folder in read} for path in sorted(folder.glob("*.py"))]
    files = [path for path in files if path.stem != "all" and not made.groups.get(path.stem)]
    beside = list(file.resolve().parent.glob("*.py")) if files else []
    named = {word for path in beside for word in (path.stem, *re.findall(r"\w+", path.read_text("utf-8", "replace")))}
    groups = [group for group, hosts in made.groups.items() if hosts]
    for path in files:
        if path.stem not in named:
            near = difflib.get_close_matches(path.stem, groups, n=1) or groups
            expected = f"{' or '.join(near)}: no inventory beside {file.name} has a group of that name"
            yield Problem(str(path), "the group", path.stem, expected)
