"""Which program's log it is, by lines that only it prints. Data: `forms.toml`."""

import re
from functools import cache

from shakedown.common.data import read_toml
from shakedown.common.frozen import Frozen
from shakedown.common.text import strip_escapes

_LONGEST = 2000  # characters of a line that are looked at
_MOST = 100_000  # lines that are looked at


class Form(Frozen):
    """One program's. `read`: its iteration lines are read here."""

    name: str
    read: bool = False
    marks: tuple[str, ...]
    pattern: re.Pattern[str]
    source: str = ""
    shows: tuple[str, ...]

    def matches(self, line: str) -> bool:
        """Return whether a line is of this form."""
        return any(mark in line for mark in self.marks) and self.pattern.search(line) is not None


@cache
def forms() -> tuple[Form, ...]:
    """Return every form, those first that say more."""
    return tuple(Form(**form) for form in read_toml("shakedown.logs", "forms.toml")["form"])


@cache
def _step() -> re.Pattern[str]:
    return re.compile(read_toml("shakedown.logs", "forms.toml")["step"])


@cache
def marks() -> tuple[str, ...]:
    """Return the texts of which a line of any form holds one."""
    return tuple(mark for form in forms() for mark in form.marks)


class FormReader:
    """Finds the form of a log among the lines that hold one of `marks`."""

    def __init__(self) -> None:
        self._seen: set[str] = set()
        self._looked_at = 0

    def line(self, line: str) -> bool:
        """Take one line. Return whether it shows that a step of training is done."""
        if self._looked_at >= _MOST or not any(map(line.__contains__, marks())):
            return False
        self._looked_at += 1
        line = strip_escapes(line[:_LONGEST])
        self._seen |= {form.name for form in forms() if form.name not in self._seen and form.matches(line)}
        return _step().search(line) is not None

    def form(self) -> str:
        """Return its name; empty: of none that is known."""
        return next((form.name for form in forms() if form.name in self._seen), "")


def is_read(name: str) -> bool:
    """Return whether a log of that form has iteration lines that are read."""
    return any(form.read for form in forms() if form.name == name)
