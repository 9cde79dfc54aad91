"""Writes the arguments of a Megatron-LM checkout as a file of shakedown/recipes/programs:

    python tests/program_arguments.py CHECKOUT SOURCE COMMIT DATE [SCRIPT...] > shakedown/recipes/programs/NAME.toml

Names, types, choices, defaults and numbers of values come from the program's own parser, which is built and never run;
of Primus they are the keys of its configuration files. Packages that the program imports and that are not installed are
replaced by ones that do nothing.
Of a SCRIPT of the checkout: the variables that it takes from its environment with their defaults, and those that it
sets whatever stands there.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.abc
import importlib.machinery
import json
import re
import sys
import typing
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import MagicMock

ABSENT = ("amp_C", "apex", "einops", "flashinfer", "megablocks", "nltk", "regex", "stk", "triton")


class _Nothing(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds every package of ABSENT, and everything in it, for the checkout alone: torch looks for triton too."""

    def __init__(self, checkout: str) -> None:
        self.checkout = checkout

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        if name.split(".")[0] not in ABSENT or not self._asked_by_the_checkout():
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def _asked_by_the_checkout(self) -> bool:
        frame = sys._getframe(2)
        while frame.f_back is not None and "importlib" in frame.f_code.co_filename:
            frame = frame.f_back
        return frame.f_code.co_filename.startswith(self.checkout)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        module: Any = MagicMock(__spec__=spec, __path__=[], __version__="0")
        return module

    def exec_module(self, module: ModuleType) -> None:
        pass


def parser_of(checkout: str) -> argparse.ArgumentParser:
    """The parser that the checkout's programs build, before it has parsed anything."""
    importlib.import_module("torch._inductor.compile_fx")  # before there is a triton that does nothing
    vars(typing).setdefault("override", lambda function: function)  # python 3.12's
    sys.path.insert(0, checkout)
    sys.meta_path.append(_Nothing(checkout))
    old = (Path(checkout) / "megatron" / "arguments.py").exists()
    module = importlib.import_module("megatron.arguments" if old else "megatron.training.arguments")
    built: list[argparse.ArgumentParser] = []

    def stop(self: argparse.ArgumentParser, *_words: Any, **_more: Any) -> None:
        built.append(self)
        raise SystemExit

    argparse.ArgumentParser.parse_args = argparse.ArgumentParser.parse_known_args = stop  # type: ignore[method-assign,assignment]
    try:
        module.parse_args()
    except SystemExit:
        return built[0]
    raise RuntimeError(f"{module.__file__} parsed nothing")


def described(parser: argparse.ArgumentParser) -> dict[str, dict[str, Any]]:
    """Argument (without dashes) -> what it takes."""
    found: dict[str, dict[str, Any]] = {}
    for action in parser._actions:
        for name in action.option_strings:
            if not name.startswith("--") or name == "--help":
                continue
            flag = action.nargs == 0
            kind = "flag" if flag else {int: "int", float: "float"}.get(action.type, "text")  # type: ignore[arg-type]
            row: dict[str, Any] = {"type": kind}
            if not flag:
                if action.choices:
                    row["values"] = [
                        str(getattr(each, "name", each)) if kind == "text" else each for each in action.choices
                    ]
                if action.nargs in ("+", "*") or isinstance(action.nargs, int):
                    row["many"] = True
                if isinstance(action.default, int | float | str) and not isinstance(action.default, bool):
                    row["default"] = action.default
            found[name[2:]] = row
    return found


def keys_of(checkout: Path) -> dict[str, dict[str, Any]]:
    """The keys of Primus' configuration files for Megatron, which its command line takes as arguments."""
    yaml = importlib.import_module("yaml")
    found: dict[str, dict[str, Any]] = {}
    for file in sorted((checkout / "primus/configs").glob("mod*/megatron/*.yaml")):
        for name, value in (yaml.safe_load(file.read_text("utf-8")) or {}).items():
            if isinstance(value, bool):
                found[name] = {"type": "choice", "values": ["true", "false"]}
            else:
                found.setdefault(name, {"type": {int: "int", float: "float"}.get(type(value), "text")})
    return found


def variables_of(script: str) -> tuple[dict[str, str], list[str]]:
    """The variables that a shell script takes from its environment -> default, and those that it sets itself."""
    script = re.sub(r"^\s*#.*$", "", script, flags=re.MULTILINE)
    taken = dict(re.findall(r"\$\{([A-Z][A-Z0-9_]*):-\"?'?([^}\"']*)", script))
    for name in re.findall(r"-[nz] \"?\$\{?([A-Z][A-Z0-9_]*)", script):
        taken.setdefault(name, "")
    assigned = re.findall(r"^\s*(?:export )?([A-Z][A-Z0-9_]*)=", script, re.MULTILINE)
    return taken, sorted({name for name in assigned if name not in taken})


def main(words: Sequence[str]) -> None:
    """Write the file to standard output."""
    checkout, source, commit, date, *scripts = words
    primus = (Path(checkout) / "primus/configs").is_dir()
    rows = keys_of(Path(checkout)) if primus else described(parser_of(checkout))
    print("# Written by tests/program_arguments.py: the arguments of the program's own parser.")
    print(f"source = {json.dumps(source)}\ncommit = {json.dumps(commit)}\ndate = {json.dumps(date)}")
    print(f"read = {json.dumps(f'{datetime.now(UTC):%Y-%m-%d}')}\n\n[arguments]")
    for name, row in sorted(rows.items()):
        print(f"{name} = {{ {', '.join(f'{key} = {json.dumps(value)}' for key, value in row.items())} }}")
    for script in scripts:
        taken, own = variables_of((Path(checkout) / script).read_text("utf-8"))
        print(f'\n[scripts."{script}"]\nsets = {json.dumps(own)}\n\n[scripts."{script}".variables]')
        for name, default in sorted(taken.items()):
            print(f"{name} = {json.dumps(default)}")


if __name__ == "__main__":
    main(sys.argv[1:])
