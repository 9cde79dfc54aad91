"""Programs that go to a node as text: the code alone, with the modules of this package that it needs in front of it."""

import ast
import json
import shlex
from collections import Counter
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
# Interpreters in the order of preference. RHEL's platform-python is 3.6 on RHEL 8: too old, and it says so itself.
PYTHONS = (
    "python3",
    "/usr/bin/python3",
    "/usr/libexec/platform-python",
    *(f"python3.{minor}" for minor in range(13, 7, -1)),
)
NO_PYTHON = "found no python3 of version 3.8 or newer"


class Bare(ast.NodeTransformer):
    """Takes out what a script does not need on its way: docstrings, annotations, and imports of its own kind."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        if ast.get_docstring(node):
            node.body = node.body[1:] or [ast.Pass()]
        node.returns = None
        every = node.args
        for argument in (*every.posonlyargs, *every.args, *every.kwonlyargs, every.vararg, every.kwarg):
            if argument is not None:
                argument.annotation = None
        return self.generic_visit(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        if ast.get_docstring(node):
            node.body = node.body[1:] or [ast.Pass()]
        return self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST | None:
        if node.value is None:
            return None
        return ast.copy_location(ast.Assign([node.target], node.value), node)


def bare(path: Path) -> str:
    """Return a script's code alone, without docstrings, annotations and imports of our modules at its top."""
    tree = ast.parse(path.read_text())
    tree.body = tree.body[1:] if ast.get_docstring(tree) else tree.body
    imports = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
    omitted = [node for node in imports if _is_own(node) or node.module == "__future__"]
    tree.body = [node for node in tree.body if node not in omitted]
    tree = Bare().visit(tree)
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    for node in tree.body:  # what is left of typing: aliases need it at run time
        if isinstance(node, ast.ImportFrom) and node.module == "typing":
            node.names = [alias for alias in node.names if alias.name in used]
    tree.body = [node for node in tree.body if not isinstance(node, ast.ImportFrom) or node.names]
    return ast.unparse(ast.fix_missing_locations(tree))


@cache
def program(path: Path, *also: Path) -> str:
    """Return the script after the modules that it imports (and those of `also`, with theirs), all in one namespace.
    Raises ValueError for a name that two of them define: one would call the other's."""
    seen: list[Path] = []
    texts = [bare(needed) for module in (*also, path) for needed in _needed(module, seen)]
    defined = Counter(name for text in texts for name in _defined(text))
    twice = sorted(name for name, count in defined.items() if count > 1)
    if twice:
        raise ValueError(f"{path.name}: defined twice among its modules: {', '.join(twice)}")
    return "\n".join(texts)


def command(text: str, *words: str) -> str:
    """Return a shell command that runs a program's text under the first Python of the node that is new enough."""
    return _first_new_enough(f"-c {as_word(text)} {shlex.join(words)}".rstrip())


def command_of_file() -> str:
    """Return the same for a file that is a shell script and the program at once: it runs itself, with its arguments."""
    return _first_new_enough('"$0" "$@"')


def as_word(text: str) -> str:
    """Return a program's text as one word of a shell command, without newlines, which csh (a login shell on some sites)
    would not carry into `sh -c`, and single quotes, which would grow fivefold in every shell."""
    return "'exec(" + json.dumps(text).replace("'", "\\u0027") + ")'"


def search(attempt: str, otherwise: str) -> str:
    """Return a shell command that makes the attempt with each "$python" that the node has, in the order of preference.
    The attempt exits with the first one that will do; `otherwise` follows where none did."""
    return (
        f"for python in {' '.join(PYTHONS)}; do "
        f'command -v "$python" >/dev/null 2>&1 || continue; {attempt}; done; {otherwise}'
    )


def _first_new_enough(rest: str) -> str:
    new_enough = "'import sys; sys.exit(sys.version_info < (3, 8))'"
    attempt = f'"$python" -I -S -c {new_enough} 2>/dev/null </dev/null && exec "$python" -I -S {rest}'
    return search(attempt, f'echo "{NO_PYTHON}" >&2; exit 1')


def _needed(path: Path, seen: list[Path]) -> list[Path]:
    if path in seen:
        return []
    seen.append(path)
    before = [needed for module in _modules(path) for needed in _needed(module, seen)]
    return [*before, path]


def _modules(path: Path) -> list[Path]:
    """Return the files of our own modules that a file imports."""
    found = []
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ImportFrom) and node.module and _is_own(node):
            folder = path.parents[node.level - 1] if node.level else ROOT
            found.append(folder / (node.module.replace(".", "/") + ".py"))
    return found


def _defined(text: str) -> set[str]:
    """Return the functions, classes and variables at the top of a module."""
    found: set[str] = set()
    for node in ast.parse(text).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Assign):
            found |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return found


def _is_own(node: ast.ImportFrom) -> bool:
    return bool(node.level) or (node.module or "").startswith("shakedown.")
