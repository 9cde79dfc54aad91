"""The registry of gates: a function with `@gate` in a module of this package is a gate.

    @gate
    def no_negative_loss(training: Training) -> Outcome:
        \"\"\"What holds when the gate passes, in a sentence.\"\"\"

The name of the function is the name of the gate. Its parameters name groups of `Observed`. A parameter without a
default is needed: without that group the gate is skipped. A gate that finds nothing to judge in its groups returns
None, and is skipped as well. A gate with several names returns their outcomes by name.
"""

import functools
import importlib
import inspect
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, TypeVar, overload

from shakedown.gates.model import Outcome
from shakedown.gates.observed import Observed
from shakedown.state.findings import Verdict

# In this order gates are shown; those of other modules of this package come after them, by the modules' names.
ORDER = ("job_end", "benchmark", "iterations", "speed", "log_lines", "nodes")
OF_LINES = {"training", "in_image", "speed", "benchmark"}  # read from lines: over a part of a log they prove nothing
# Gates that say whether a job reached its end.
OF_THE_END = frozenset({"exit_codes", "logs_complete", "iterations_complete", "ran_to_its_end"})

Uncertain = Literal[Verdict.FAIL, Verdict.UNKNOWN]
Function = TypeVar("Function", bound=Callable[..., Outcome | Mapping[str, Outcome] | None])


@dataclass(frozen=True)
class Rule:
    """A registered gate. `names` describes the names of a gate that has several, and is empty otherwise."""

    name: str
    function: Callable[..., Outcome | Mapping[str, Outcome] | None]
    names: str
    stands: bool
    contradicted: Uncertain
    needs: frozenset[str]
    takes: frozenset[str]

    @property
    def holds_when(self) -> str:
        """The first paragraph of the function's documentation, on one line."""
        return " ".join((inspect.getdoc(self.function) or "").partition("\n\n")[0].split())

    @property
    def of_lines(self) -> bool:
        """Whether the gate rests on lines of a log."""
        return not self.needs.isdisjoint(OF_LINES)

    def outcomes(self, job: Observed) -> Mapping[str, Outcome]:
        """Judge a job: the outcomes by the gates' names; none where there is no evidence."""
        groups = {name: group for name in self.takes if (group := getattr(job, name)) is not None}
        outcome = self.function(**groups) if self.needs <= groups.keys() else None
        return {self.name: outcome} if isinstance(outcome, Outcome) else outcome or {}


@overload
def gate(function: Function, /) -> Function: ...
@overload
def gate(
    *, names: str = "", stands: bool = False, contradicted: Uncertain = Verdict.UNKNOWN
) -> Callable[[Function], Function]: ...
def gate(
    function: Any = None, /, *, names: str = "", stands: bool = False, contradicted: Uncertain = Verdict.UNKNOWN
) -> Any:
    """Register a gate under its function's name. `names`: documentation of several outcomes. `stands`: a failure in a
    part holds for the whole log. `contradicted`: the verdict for logs of several runs."""

    def register(function: Function) -> Function:
        parameters = inspect.signature(function).parameters.values()
        takes = frozenset(parameter.name for parameter in parameters)
        needs = frozenset(parameter.name for parameter in parameters if parameter.default is parameter.empty)
        if unknown := sorted(takes - {group.name for group in fields(Observed)}):
            raise TypeError(f"gate {function.__name__}: Observed has no group {', '.join(unknown)}")
        if not needs:
            raise TypeError(f"gate {function.__name__}: it needs no group, so it would judge every job")
        rule = Rule(function.__name__, function, names, stands, contradicted, needs, takes)
        registered = [other for rules_of_module in _RULES.values() for other in rules_of_module]
        if not names and any((other.name, other.needs) == (rule.name, needs) for other in registered):
            raise ValueError(f"two gates are named {rule.name}, and need the same groups")
        _RULES.setdefault(function.__module__, []).append(rule)
        return function

    return register if function is None else register(function)


def rules() -> list[Rule]:
    """Return every registered gate, in the order in which gates are shown."""
    _load()
    return [rule for module in sorted(_RULES, key=_place) for rule in _RULES[module]]


_RULES: dict[str, list[Rule]] = {}


@functools.cache
def _load() -> None:
    package = importlib.import_module(__package__)
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{__package__}.{module.name}")


def _place(module: str) -> tuple[int, str]:
    name = module.rpartition(".")[2]
    return (ORDER.index(name) if name in ORDER else len(ORDER)), name
