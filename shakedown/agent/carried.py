"""The checks as they travel to a node: their own source, less what only a controller needs.

A check is written once, against pydantic's models and for the controller's Python. What travels is the text of these
very modules without annotations and docstrings, and of what they import only what they use. Their imports of pydantic
and dataclasses lead to `shakedown/node/agent/plain.py`, those of what a standard module costs more to load than to use
to `lean.py` and `regex.py` beside it, those of recipes, profiles and models of the desired state to
what is compiled of them (`shakedown/node/agent/compiled.py`).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from shakedown import checks
from shakedown.transport.program import ROOT, Bare

_PLAIN = "shakedown.node.agent.plain"
_COMPILED = "shakedown.node.agent.compiled"
_LEAN = "shakedown.node.agent.lean"
# Where a node finds what these modules define.
LEADS_TO = {
    "pydantic": _PLAIN,
    "dataclasses": _PLAIN,
    "enum": _PLAIN,
    "functools": _LEAN,
    "importlib": _LEAN,
    "fnmatch": _LEAN,
    "re": "shakedown.node.agent.regex",
    "shakedown.desired.models": _COMPILED,
    "shakedown.desired.profiles": _COMPILED,
    "shakedown.smoke.recipe": _COMPILED,
}
# Only annotations need them; each costs milliseconds, or is newer than Python 3.8.
_FOR_TYPES = {"typing", "typing_extensions", "collections.abc", "__future__"}
ONLY_ON_THE_CONTROLLER = {"fleet"}  # compares nodes with each other
# What the agent itself calls of them.
_CALLED = [("shakedown.findings", {"worst"}), ("shakedown.text", {"file_name", "printable"})]
_CHECKS = Path(checks.__file__).parent


class CannotTravel(Exception):
    """A module of the checks needs something that a node has not; says what."""


class _Plain(Bare):
    """Puts the fields of a class into `__fields__`, since their annotations go, and leads imports elsewhere."""

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        fields = [each for each in node.body if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)]
        node.body = [each for each in node.body if each not in fields]
        made = super().visit_ClassDef(node)
        assert isinstance(made, ast.ClassDef)
        if fields:
            keys: list[ast.expr | None] = [ast.Constant(each.target.id) for each in fields]  # type: ignore[union-attr]
            values = [each.value or ast.Name("REQUIRED", ast.Load()) for each in fields]
            made.body.insert(0, ast.Assign([ast.Name("__fields__", ast.Store())], ast.Dict(keys, values)))
        made.body = made.body or [ast.Pass()]
        return made

    def visit_If(self, node: ast.If) -> ast.AST | None:
        if isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            return None
        return self.generic_visit(node)

    def visit_Import(self, node: ast.Import) -> ast.AST | list[ast.AST]:
        """A module by its name, which the place that it leads to then has."""
        return [
            ast.ImportFrom(where.rpartition(".")[0], [ast.alias(where.rpartition(".")[2], each.asname or each.name)], 0)
            if (where := LEADS_TO.get(each.name))
            else ast.Import([each])
            for each in node.names
        ]

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST | list[ast.AST]:
        module = node.module or ""
        here = {
            alias.name: LEADS_TO[f"{module}.{alias.name}"]
            for alias in node.names
            if f"{module}.{alias.name}" in LEADS_TO
        }
        if here:  # a module by its name: from shakedown.desired import profiles
            return [
                ast.ImportFrom(where.rpartition(".")[0], [ast.alias(where.rpartition(".")[2], name)], 0)
                for name, where in here.items()
            ]
        node.module = LEADS_TO.get(module, module)
        return node


class _Module:
    """One module's statements, and what each of them defines and uses."""

    def __init__(self, name: str) -> None:
        self.name = name
        path = ROOT / (name.replace(".", "/") + ".py")
        self.package = not path.exists()
        self.path = ROOT / name.replace(".", "/") / "__init__.py" if self.package else path
        tree = _Plain().visit(ast.parse(self.path.read_text("utf-8")))
        body = tree.body[1:] if ast.get_docstring(tree) else tree.body
        self.body: list[ast.stmt] = [each for each in body if not _is_for_types(each)]
        needs_required = any(isinstance(n, ast.Name) and n.id == "REQUIRED" for each in body for n in ast.walk(each))
        if needs_required:
            self.body.insert(0, ast.ImportFrom(_PLAIN, [ast.alias("REQUIRED")], 0))
        self.kept: list[ast.stmt] = [each for each in self.body if _always(each)]
        self._follow()

    def need(self, names: set[str]) -> None:
        """Keep what defines these names. Raises CannotTravel where nothing does."""
        for name in names:
            found = [each for each in self.body if name in _defined(each)]
            if not found:
                raise CannotTravel(f"{self.name} defines no {name}")
            self.kept += [each for each in found if each not in self.kept]
        self._follow()

    def _follow(self) -> None:
        while True:
            used = self.used()
            more = [each for each in self.body if each not in self.kept and _defined(each) & used]
            if not more:
                return
            self.kept += more

    def used(self) -> set[str]:
        return {name for each in self.kept for name in _used(each)}

    def imports(self) -> Iterator[tuple[str, set[str]]]:
        """Our own modules that what is kept imports, with the names that are used of each."""
        used = self.used()
        for node in (node for each in self.kept for node in ast.walk(each)):
            if not isinstance(node, ast.ImportFrom) or not (node.module or "").startswith("shakedown"):
                continue
            for alias in node.names:
                if node in self.kept and (alias.asname or alias.name) not in used:
                    continue
                module = f"{node.module}.{alias.name}"
                if _is_module(module):
                    yield module, self._attributes(alias.asname or alias.name)
                else:
                    yield str(node.module), {alias.name}

    def _attributes(self, name: str) -> set[str]:
        nodes = (node for each in self.kept for node in ast.walk(each))
        return {
            n.attr
            for n in nodes
            if isinstance(n, ast.Attribute) and isinstance(n.value, ast.Name) and n.value.id == name
        }

    def text(self) -> str:
        used = self.used()
        body = []
        for each in self.body:
            if each not in self.kept:
                continue
            if isinstance(each, ast.Import | ast.ImportFrom):
                each.names = [alias for alias in each.names if (alias.asname or alias.name).partition(".")[0] in used]
                if not each.names:
                    continue
                module = each.module if isinstance(each, ast.ImportFrom) else each.names[0].name
                if module in _FOR_TYPES:
                    raise CannotTravel(f"{self.name} uses {module} for more than annotations")
            body.append(each)
        return ast.unparse(ast.fix_missing_locations(ast.Module(body, []))) + "\n"


@cache
def modules() -> dict[str, str]:
    """The text of each module that goes to a node besides shakedown/node, by its path. Raises CannotTravel for what
    no node could import."""
    known: dict[str, _Module] = {}
    waiting: list[tuple[str, set[str]]] = [("shakedown.checks", {"evaluate"}), *_CALLED]
    for path in sorted(_CHECKS.glob("*.py")):
        if path.stem not in {"__init__", *ONLY_ON_THE_CONTROLLER}:
            waiting.append((f"shakedown.checks.{path.stem}", set()))
    while waiting:
        name, names = waiting.pop()
        if name.startswith("shakedown.node"):
            continue  # travels as it is
        fresh = name not in known
        module = known.setdefault(name, _Module(name)) if fresh else known[name]
        before = len(module.kept)
        module.need(names)
        if fresh or len(module.kept) > before:
            waiting += list(module.imports())
    return {
        f"{name.replace('.', '/')}{'/__init__' if module.package else ''}.py": module.text()
        for name, module in sorted(known.items())
    }


def _is_module(name: str) -> bool:
    path = ROOT / name.replace(".", "/")
    return path.with_suffix(".py").exists() or (path / "__init__.py").exists()


def _always(node: ast.stmt) -> bool:
    """Statements that do something when the module is imported: a check registers itself so."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return any(isinstance(each, ast.Call) and _name(each.func) == "check" for each in node.decorator_list)
    return not isinstance(node, ast.Import | ast.ImportFrom | ast.Assign)


def _name(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else ""


def _defined(node: ast.stmt) -> set[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return {node.name}
    if isinstance(node, ast.Import | ast.ImportFrom):
        return {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
    targets = node.targets if isinstance(node, ast.Assign) else []
    return {each.id for target in targets for each in ast.walk(target) if isinstance(each, ast.Name)}


def _used(node: ast.stmt) -> set[str]:
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Load)}


def _is_for_types(node: ast.stmt) -> bool:
    return isinstance(node, ast.ImportFrom) and node.module == "__future__"
