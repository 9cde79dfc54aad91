"""Deploy files, and which checks each needs, by what it calls."""

import ast
from dataclasses import dataclass
from pathlib import Path

# A deploy of this project is one that calls something of this package, wherever the file lies.
RUNNER = "shakedown.runner."


@dataclass(frozen=True)
class Deploy:
    """One deploy file. `calls`: dotted names of what it calls of the packages that it imports."""

    name: str
    calls: frozenset[str]

    @property
    def trains(self) -> bool:
        """Whether a smoke run is part of it."""
        return bool(self._stages & {"stages.smoke", "isolation.run"})

    @property
    def changes(self) -> bool:
        """Whether it changes what differs."""
        return "stages.tune" in self._stages

    @property
    def checks(self) -> bool:
        """Whether it compares, and does nothing else."""
        return bool(self._stages) and self._stages <= {"stages.examine", "stages.drifted"}

    @property
    def compares(self) -> bool:
        """Whether it looks at the nodes side by side: all but a rollback do."""
        return bool(self._stages - {"rollback.restore"})

    @property
    def section(self) -> str | None:
        """The section of the desired state without which it has nothing to do."""
        if "benchmark.run" in self._stages:
            return "benchmark"
        return "datasets" if self._stages - {"stages.examine"} == {"data.datasets"} else None

    @property
    def _stages(self) -> set[str]:
        return {call.removeprefix(RUNNER) for call in self.calls if call.startswith(RUNNER)}


def own_deploys(files: tuple[str, ...]) -> list[Deploy]:
    """Return those of the files that run our stages. One that cannot be parsed is none: pyinfra says so itself."""
    found = []
    for name in files:
        path = Path(name)
        try:
            calls = _calls(ast.parse(path.read_bytes())) if path.suffix == ".py" else frozenset()
        except (OSError, SyntaxError, ValueError):
            continue
        if any(call.startswith(RUNNER) for call in calls):
            found.append(Deploy(path.stem, calls))
    return found


def _calls(tree: ast.Module) -> frozenset[str]:
    known: dict[str, str] = {}  # a name of the file -> what it stands for
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            known |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            known |= {alias.asname: alias.name for alias in node.names if alias.asname}
    return frozenset(_dotted(node.func, known) for node in ast.walk(tree) if isinstance(node, ast.Call))


def _dotted(node: ast.expr, known: dict[str, str]) -> str:
    if isinstance(node, ast.Name):
        return known.get(node.id) or node.id
    return f"{_dotted(node.value, known)}.{node.attr}" if isinstance(node, ast.Attribute) else ""
