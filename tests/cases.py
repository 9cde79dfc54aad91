"""Cases of pure functions as data: what a function returns, word for word, for arguments at the edge of a condition.

A file of tests/data/cases has a case per line: `call` (module and function), `with` (the arguments, as the types of the
function's parameters read JSON), `returns` or `raises`, and `thresholds` where the case has its own: a limit is met
exactly only by numbers without rounding. The cases were searched for: per changed condition of the module, one for
which the changed function returns something else. Where a change of behaviour is meant, `python -m tests.cases` writes
the new answers, and its diff is the change as a user sees it.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
import math
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_core import to_jsonable_python

FOLDER = Path(__file__).parent / "data/cases"


def cases(area: str) -> dict[str, list[dict[str, Any]]]:
    """Return the cases of an area by their function."""
    found: dict[str, list[dict[str, Any]]] = {}
    for line in (FOLDER / f"{area}.jsonl").read_text("utf-8").splitlines():
        case = json.loads(line)
        found.setdefault(case["call"], []).append(case)
    return found


@cache
def hints(annotated: Any) -> dict[str, Any]:
    """Return the types of a function's parameters, or of a class' fields."""
    return typing.get_type_hints(annotated)


def read(hint: Any, value: Any) -> Any:
    """Return a value of JSON as a type has it."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if value is None or hint in (Any, object):
        return value
    if origin in (typing.Union, types.UnionType):
        return read(next(kind for kind in arguments if kind is not types.NoneType), value)
    if dataclasses.is_dataclass(hint) or hasattr(hint, "_fields"):
        named = value if isinstance(value, dict) else dict(zip(hint._fields, value, strict=False))
        return hint(**{name: read(hints(hint)[name], one) for name, one in named.items()})
    if isinstance(hint, type) and issubclass(hint, BaseModel):
        return hint.model_validate(value)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return hint(value)
    if origin is tuple and len(arguments) > 1 and arguments[1] is not ...:
        return tuple(read(kind, one) for kind, one in zip(arguments, value, strict=True))
    if isinstance(value, list):
        made = [read(arguments[0], one) for one in value]
        return origin(made) if origin in (tuple, set, frozenset) else made
    if isinstance(value, dict):
        return {read(arguments[0], key): read(arguments[1], one) for key, one in value.items()}
    if isinstance(value, str) and hint in (int, bytes):
        return int(value) if hint is int else value.encode()
    return value


def answer(function: Callable[..., Any], arguments: dict[str, Any]) -> dict[str, Any]:
    """Call the function: what it returns, as JSON has it, or what it raises."""
    values = {name: read(hints(function)[name], value) for name, value in arguments.items()}
    try:
        result = function(**values)
    except Exception as error:
        return {"raises": f"{type(error).__name__}: {error}"}
    return {"returns": json.loads(json.dumps(plain(result)))}


def plain(value: Any) -> Any:
    """Return a value as JSON has it; a set in an order, since its own differs from process to process, and a number
    without the digits in which one processor's sums differ from another's."""
    if isinstance(value, float) and math.isfinite(value):
        return float(f"{value:.9g}")
    if isinstance(value, BaseModel):
        return {name: plain(getattr(value, name)) for name in type(value).model_fields}
    if dataclasses.is_dataclass(value):
        return {one.name: plain(getattr(value, one.name)) for one in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, set | frozenset):
        return sorted((plain(one) for one in value), key=repr)
    if isinstance(value, Iterable) and not isinstance(value, str | bytes):
        return [plain(one) for one in value]
    return to_jsonable_python(value, inf_nan_mode="strings", fallback=repr)


def asked(case: dict[str, Any], module: types.ModuleType, name: str, patch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Return the answer of a case, by its own thresholds."""
    if own := case.get("thresholds"):
        real = module.threshold
        patch.setattr(module, "threshold", lambda name: own.get(name, real(name)))
    return answer(getattr(module, name), case["with"])


def wrong(several: Iterable[dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> str | None:
    """Return how the answer of the first such case is another one than it should be."""
    return next(filter(None, (_wrong(case, monkeypatch) for case in several)), None)


def _wrong(case: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> str | None:
    module, _, name = case["call"].partition(":")
    with monkeypatch.context() as patch:
        found = asked(case, importlib.import_module(module), name, patch)
    wanted = {key: case[key] for key in ("returns", "raises") if key in case}
    return None if found == wanted else f"{json.dumps(case)}\nis {json.dumps(found)}"


def main() -> None:
    """Write what the functions return now: to be read as a change of behaviour, line by line, before it is kept."""
    for file in sorted(FOLDER.glob("*.jsonl")):
        lines = []
        for line in file.read_text("utf-8").splitlines():
            case = json.loads(line)
            module, _, name = case["call"].partition(":")
            with pytest.MonkeyPatch.context() as patch:
                found = asked(case, importlib.import_module(module), name, patch)
            kept = {key: value for key, value in case.items() if key not in ("returns", "raises")}
            lines.append(json.dumps(kept | found) + "\n")
        file.write_text("".join(lines), "utf-8")


if __name__ == "__main__":
    main()
