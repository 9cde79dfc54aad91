"""The commands that pages show: their names, options and files have to exist."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import click

from shakedown.cli import main
from tests.docs.commands import every

ROOT = Path(__file__).parents[2]
_BLOCK = re.compile(r"^```(?:bash|sh)?\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_FENCE = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
_INLINE = re.compile(r"`([^`\n]+)`")
_STARTS = ("shakedown ", "pyinfra ", "make ", ".venv/bin/pytest ")
_TARGET = re.compile(r"^([a-z-]+):", re.MULTILINE)


def shown(text: str) -> Iterator[list[str]]:
    """The commands of a page, as words: of indented blocks, of shell blocks, and of inline code. Console blocks, which
    have an answer, are performed by tests of their own (docs/extending.md)."""
    lines = [line for block in _BLOCK.findall(text) for line in block.splitlines()]
    prose = _FENCE.sub("", text)
    lines += [line.strip() for line in prose.splitlines() if line.startswith("    ")]
    lines += _INLINE.findall(prose)
    for line in lines:
        for part in re.split(r" && | \| ", line):
            if part.startswith(_STARTS):
                yield shlex.split(part.replace("...", ""), comments=True)


def wrong(words: list[str]) -> str:
    """What is wrong with a command; empty: nothing."""
    program, *arguments = words
    if program == "make":
        return _wrong_make(arguments)
    if program == "pyinfra":
        return _wrong_pyinfra(arguments)
    if program == "shakedown":
        return _wrong_shakedown(arguments)
    return _missing(arguments)


def _wrong_make(arguments: list[str]) -> str:
    files = (ROOT / "Makefile", ROOT / "tests/lab/lab.mk")
    targets = {name for file in files for name in _TARGET.findall(file.read_text("utf-8"))}
    variables = "".join(file.read_text("utf-8") for file in files)
    for word in arguments:
        name, equals, _ = word.partition("=")
        if equals and f"$({name})" not in variables and f"$(if $({name})" not in variables:
            return f"make has no variable {name}"
        if not equals and word not in targets:
            return f"make has no target {word}"
    return ""


def _wrong_pyinfra(arguments: list[str]) -> str:
    unknown = [word for word in arguments if word.startswith("-") and word not in _options_of_pyinfra()]
    return f"pyinfra has no option {unknown[0]}" if unknown else _missing(arguments)


@cache
def _options_of_pyinfra() -> set[str]:
    """As its help has them: importing its command changes the process that does it."""
    command = [sys.executable, "-m", "pyinfra", "--help"]
    text = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    return set(re.findall(r"(?<![\w-])--?[a-z][a-z-]*", text))


def _wrong_shakedown(arguments: list[str]) -> str:
    name, *rest = arguments
    if name.startswith("-"):
        return ""
    if name not in every():
        return f"no command {name}"
    try:
        parent = click.Context(main, info_name="shakedown", **main.context_settings)  # click keeps its help option
        every()[name].make_context(name, list(rest), parent=parent)
    except click.exceptions.Exit:
        return ""  # its help, or a version
    except click.MissingParameter:
        return ""  # "`shakedown plan`", which is named and not called
    except click.UsageError as error:
        return error.format_message()
    return _missing(rest)


def _missing(words: list[str]) -> str:
    """A file of this project that is not there; a word in capitals stands for the reader's own."""
    paths = [
        word for word in words if re.match(r"(inventories|deploy|tests|docs)/", word) and not re.search("[A-Z]", word)
    ]
    gone = [path for path in paths if not (ROOT / path).exists()]
    return f"no file {gone[0]}" if gone else ""
