"""Errors of a desired state: all of them at once, each saying where it stands and what was expected."""

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from shakedown.common.nearest import names_of, nearest
from shakedown.common.secrets import MASK, is_secret
from shakedown.common.text import counted, printable
from shakedown.hosts import few


@dataclass(frozen=True, order=True)
class Problem:
    """An error: `where` is its layer ("group rack7", "profile mi300x"), `path` the dotted path, `hosts` the nodes, `at`
    the file and line where a person repairs it."""

    where: str
    path: str
    value: str
    expected: str
    hosts: tuple[str, ...] = ()
    at: str = ""

    def __str__(self) -> str:
        value = MASK if is_secret(self.path.rpartition(".")[2]) else self.value
        return printable(f"{self.where}: {self.path} = {value}: expected {self.expected}")


def shown(value: object, most: int = 80) -> str:
    """Return a value for a message, cut to `most` characters."""
    text = repr(value)
    return text if len(text) <= most else text[: most - 3] + "..."


def as_lines(problems: Iterable[Problem]) -> list[str]:
    """Return a line for each problem; a problem that several hosts or groups have in common is one line."""
    alike: dict[tuple[str, Problem], dict[str, str]] = {}
    for problem in problems:
        kind, space, name = problem.where.rpartition(" ")
        alike.setdefault((kind + space, replace(problem, where="", hosts=(), at="")), {})[name] = problem.at
    rows = [(kind, few(names) if len(names) > 1 else next(iter(names)), row) for (kind, row), names in alike.items()]
    places = [few(dict.fromkeys(filter(None, names.values()))) for names in alike.values()]
    return [
        f"{f'{printable(at)}: ' if at else ''}{replace(row, where=kind + where)}"
        for at, (kind, where, row) in zip(places, rows, strict=True)
    ]


def listed(beginning: str, problems: Iterable[Problem]) -> str:
    """Return the message of an error with all its problems."""
    lines = as_lines(problems)
    return "\n".join([f"{beginning} {counted(len(lines), 'error')}:", *(f"  {line}" for line in lines)])


class DesiredStateError(ValueError):
    """A desired state that cannot be used. `problems` holds every error, not the first."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__(listed("the desired state has", self.problems))


class InventoryError(ValueError):
    """An inventory that cannot be used: not there, raises, or names no host."""


def bounds(path: str, expect: Mapping[str, float], metrics: Mapping[str, object]) -> Iterator[Problem]:
    """Figures that no run has, and bounds that none can be held against."""
    for metric, bound in expect.items():
        if metric not in metrics:
            yield Problem("smoke", f"{path}.{metric}", f"{bound:g}", one_of(metric, metrics))
        elif not (math.isfinite(bound) and bound > 0):
            yield Problem("smoke", f"{path}.{metric}", f"{bound:g}", "a number above zero")
        elif metric == "mem_usage" and bound > 1:
            yield Problem("smoke", f"{path}.{metric}", f"{bound:g}", "a fraction, at most 1")


def one_of(word: str, known: Collection[str]) -> str:
    """Describe what was expected, the nearest word first."""
    return f"{nearest(word, known, after='? ')}one of {names_of(word, known)}"
