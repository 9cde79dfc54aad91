"""Where a group, a key or a host stands in the files that a site wrote, and what is wrong in their text: no UTF-8, no
Python, or something written twice, of which Python keeps the last and says nothing."""

import ast
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from shakedown.common.lists import grouped
from shakedown.common.secrets import MASK, is_secret
from shakedown.desired.layers import leaves
from shakedown.desired.problems import Problem, shown
from shakedown.hosts import few, nodes

_NAMED = re.compile(r"(?:group|host)s? (.+?)(?: of hosts? .*)?")
_SHORT = {"rdma.family": "nic"}  # as a site writes it


def files(inventory: str, more: Iterable[str] = ()) -> list[Path]:
    """Return an inventory file and the files of group_data that pyinfra reads with it; nothing where it is no file."""
    file = Path(inventory)
    if not file.is_file():
        return []
    folders = {folder.resolve(): folder for folder in (Path(), file.parent)}
    read = [*(folder / "group_data" for folder in folders.values()), *map(Path, more)]
    found = (path for there in read for path in ([there] if there.is_file() else sorted(there.glob("*.py"))))
    return [file, *(path for path in found if path.suffix == ".py")]


def other_languages(inventory: str) -> Iterator[Problem]:
    """Yield the files of group_data that pyinfra passes over, as they are no Python, and that no Python file names."""
    python = "".join(path.read_text(errors="replace") for path in files(inventory))
    for folder in sorted({Path("group_data"), Path(inventory).parent / "group_data"}):
        for path in sorted(folder.glob("*.*")):
            if path.suffix in (".yml", ".yaml", ".json", ".toml", ".ini") and path.name not in python:
                yield Problem(str(path), "the file", path.name, f"Python: {path.stem}.py")


def unreadable(file: Path) -> Iterator[Problem]:
    """Yield why a file is no text or no Python, with the line. One that is no .py may be of another language."""
    content = file.read_bytes()
    try:
        text = content.decode()
        ast.parse(text)
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start)
        wrong = _shown(content.split(b"\n")[line])
        yield Problem(f"{file}:{line + 1}", "the text", wrong, "UTF-8: save the file in this encoding")
    except (SyntaxError, ValueError) as error:  # ValueError: a null byte
        number = getattr(error, "lineno", None) or text.count("\n", 0, max(text.find("\0"), 0)) + 1
        why = f"Python: {getattr(error, 'msg', error)}"
        if text[0] == "\ufeff":
            why = "no byte order mark: save the file as UTF-8 without it"
        if file.suffix == ".py":
            lines = re.split("\r\n?|\n", text)  # as Python counts them
            yield Problem(f"{file}:{number}", "the text", _shown(lines[min(number, len(lines)) - 1]), why)


def _shown(line: str | bytes) -> str:
    words = re.findall(r"\w+", str(line))
    return MASK if any(map(is_secret, words)) else shown(line.strip())


def twice(file: Path, groups: bool) -> Iterator[Problem]:
    """Yield what stands twice in a file: names at its top whose first value is not used, keys of a dictionary, and, of
    a file of `groups`, hosts of one of them."""
    tree = ast.parse(file.read_bytes())
    top = _top(tree)
    ends = {line: value.end_lineno for _name, line, value in top}
    for name, first, line, values in _again(top):
        until = ends[line] or line
        used = any(name == other and start <= until and first <= end for other, start, end in _read(tree))
        if name.strip("_") and not used:
            yield Problem(f"{file}:{first},{line}", name, values, _ONE)
    for table in (node for node in ast.walk(tree) if isinstance(node, ast.Dict)):
        pairs = zip(table.keys, table.values, strict=True)
        texts = [(key, value) for key, value in pairs if isinstance(key, ast.Constant) and isinstance(key.value, str)]
        keys = [(str(key.value), key.lineno, value) for key, value in texts]
        yield from (Problem(f"{file}:{first},{line}", key, values, _ONE) for key, first, line, values in _again(keys))
    for name, _line, value in top if groups and nodes.__name__ not in _others(tree) else ():
        group = value.elts[0] if isinstance(value, ast.Tuple) and value.elts else value
        lines = grouped((host, line) for host, line in _hosts(group))
        again = grouped((tuple(at), host) for host, at in lines.items() if len(at) > 1 and name[0] != "_")
        for at, hosts in again.items():
            where = f"{file}:{','.join(map(str, at))}"
            yield Problem(where, name, f"{few(hosts)} twice", "each host once in a group")


def replaced(groups: Mapping[str, Mapping[str, Any]], read: Sequence[Path]) -> Iterator[Problem]:
    """Yield the keys of groups' own data that a file of group_data has with another value, which pyinfra takes, and
    what a file beside the inventory drops of a section of the working folder's file: it replaces values, and pyinfra
    takes sections whole. A name that stands in its file once more may get its value there."""
    given = {group: {key: (read[0], value) for key, value in data.items()} for group, data in groups.items()}
    for path in read[1:]:
        of_group, tree = given.setdefault(path.stem, {}), ast.parse(path.read_bytes())
        times = Counter(node.id for node in ast.walk(tree) if isinstance(node, ast.Name))
        for name, line, value in _top(tree):
            with suppress(ValueError, TypeError):  # no literal
                file, before = of_group.get(name, (path, None))
                here = ast.literal_eval(value)
                old, new = dict(leaves({name: before})), dict(leaves({name: here}))
                lost = file != read[0] and isinstance(here, dict) and ", ".join(old.keys() - new.keys())
                if file != path and times[name] == 1 and (lost if file != read[0] else old != new):
                    other = f"{file} gives the group {path.stem} {lost or 'another one'}, which pyinfra passes over"
                    expected = f"the whole section: {other}" if lost else f"one value: {other}: leave one out"
                    yield Problem(f"{path}:{line}", name, MASK if is_secret(name) else shown(here), expected)
                of_group[name] = path, here


_ONE = "one value, as Python uses the last alone"


def _top(tree: ast.Module) -> list[tuple[str, int, ast.expr]]:
    """Return the names that a file gives a value at its top, each with its line and the value."""
    assigned = [(target, node.value) for node in tree.body if isinstance(node, ast.Assign) for target in node.targets]
    return [(target.id, target.lineno, value) for target, value in assigned if isinstance(target, ast.Name)]


def _read(tree: ast.Module) -> Iterator[tuple[str, int, float]]:
    """Yield each name that is read or changed, with its first and last line: a function may run anywhere below."""
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.Lambda)]
    later = {id(inside) for function in functions for inside in ast.walk(function)}
    for node in ast.walk(tree):
        name = node.target if isinstance(node, ast.AugAssign) else node
        if isinstance(name, ast.Name) and (name is not node or not isinstance(name.ctx, ast.Store)):
            yield name.id, name.lineno, math.inf if id(name) in later else name.lineno


def _again(rows: Iterable[tuple[str, int, ast.expr]]) -> Iterator[tuple[str, int, int, str]]:
    """Yield each name that has a second value: the line before, its own, and the values where they are short."""
    before: dict[str, tuple[int, ast.expr]] = {}
    for name, line, value in rows:
        if name in before:
            first, old = before[name]
            plain = isinstance(old, ast.Constant) and isinstance(value, ast.Constant)
            yield name, first, line, f"{ast.unparse(old)} and {ast.unparse(value)}" if plain else "two values"
        before[name] = line, value


def _others(tree: ast.Module) -> Iterator[str]:
    """Yield the names of a file's own functions, and of what it takes from modules that are not Shakedown's."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            yield node.name
        elif isinstance(node, ast.ImportFrom) and node.module != nodes.__module__:
            yield from (alias.asname or alias.name for alias in node.names)


def _hosts(node: ast.AST) -> Iterator[tuple[str, int]]:
    """Yield the hosts that an expression of a list names, each with its line. What a program computes is left out."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value, node.lineno
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == nodes.__name__:
        for pattern in node.args:
            with suppress(ValueError):
                yield from ((host, pattern.lineno) for host in nodes(str(getattr(pattern, "value", ""))))
    elif isinstance(node, ast.BinOp):  # lists; of two texts one name is made
        sides = (node.left, node.right) if isinstance(node.op, ast.Add) else ()
        yield from (host for side in sides if not isinstance(side, ast.Constant) for host in _hosts(side))
    elif isinstance(node, ast.List | ast.Tuple | ast.Starred):
        for child in ast.iter_child_nodes(node):
            yield from _hosts(child)


def written_hosts(inventory: str) -> list[str]:
    """Return the groups and hosts that are written out in an inventory, else those of its newest run. Nothing of it
    runs: a shell asks for them at a press of a key."""
    path = Path(inventory)
    try:
        if not path.is_file():
            return [*nodes(inventory), "all"]
        top = _top(ast.parse(path.read_bytes()))
    except (OSError, SyntaxError, ValueError):
        return []
    groups = {name: found for name, _line, value in top if (found := [host for host, _line in _hosts(value)])}
    from shakedown.runs.folder import nodes_read  # 200 ms that who reads an inventory does not need

    named = [group for group in groups if not group.startswith("_")]
    hosts = dict.fromkeys(host for group in named for host in groups[group]) or nodes_read(inventory=inventory)
    return list(dict.fromkeys([*named, path.stem, *hosts, "all"])) if hosts else []


def placed(problems: Iterable[Problem], read: Sequence[Path]) -> list[Problem]:
    """Return the problems; those of groups and hosts with the places in the files where they can be repaired."""
    return [replace(problem, at=_places(problem, read)) for problem in problems]


def _places(problem: Problem, read: Sequence[Path]) -> str:
    named = _NAMED.fullmatch(problem.where)
    keys = _SHORT.get(problem.path, problem.path).split(".")
    paths = [".".join(keys[:end]) for end in range(len(keys), 0, -1)]
    names = named[1].split(", ") if named else ()
    places = (next(filter(None, (_place(name, path, read) for path in [*paths, name])), "") for name in names)
    return ", ".join(filter(None, places))


def _place(name: str, path: str, read: Sequence[Path]) -> str:
    """Return the last place of a path of keys that is of a group or host, else the only one in the inventory."""
    rows = [(file, keys, line) for file in read for keys, line in _index(file).get(path, ())]
    own = [row for row in rows if name in row[1] or (row[0] in read[1:] and row[0].stem == name)]
    own = own or [row for row in rows if len(rows) == 1 and row[0] == read[0]]
    return f"{own[-1][0]}:{own[-1][2]}" if own else ""


def line_of(group: str, file: str) -> str:
    """Return an inventory file with the line of a group; without one where a program made the group."""
    return _place(group, group, [Path(file)]) or file


@cache
def _index(file: Path) -> Mapping[str, list[tuple[tuple[str, ...], int]]]:
    """Return the places of a file by every end of their path: recipe, smoke.recipe, rack7.smoke.recipe."""
    try:
        rows = list(_keys(ast.parse(file.read_bytes())))
    except (OSError, SyntaxError, ValueError):
        rows = []
    return grouped((".".join(keys[start:]), (keys, line)) for keys, line in rows for start in range(len(keys)))


def _keys(node: ast.AST, above: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], int]]:
    """Yield the names, keys and hosts of a program, each below those that it stands in, with its line."""
    pairs: list[tuple[object, int, ast.AST]] = []
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
        pairs = [(node.targets[0].id, node.lineno, node.value)]
    elif isinstance(node, ast.Dict):
        table = zip(node.keys, node.values, strict=True)
        pairs = [(getattr(key, "value", None), (key or value).lineno, value) for key, value in table]
    elif isinstance(node, ast.Call):
        pairs = [(word.arg, word.value.lineno, word.value) for word in node.keywords]
    elif isinstance(node, ast.Tuple) and len(node.elts) == 2 and isinstance(node.elts[1], ast.Dict):
        pairs = [(getattr(node.elts[0], "value", None), node.lineno, node.elts[1])]
    for name, line, value in pairs:
        below = (*above, name) if isinstance(name, str) else above
        yield from [(below, line)] if isinstance(name, str) else []
        yield from _keys(value, below)
    values = {id(value) for _name, _line, value in pairs}
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Constant) and isinstance(node, ast.List | ast.Tuple | ast.Call):
            yield (*above, str(child.value)), child.lineno
        elif id(child) not in values:
            yield from _keys(child, above)
