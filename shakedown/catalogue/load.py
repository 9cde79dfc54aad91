"""Reads the catalogue's files."""

from collections.abc import Iterator
from functools import cache
from importlib import resources
from typing import Any

from shakedown.catalogue.model import Entry, Log
from shakedown.common.data import read_toml

_HARMLESS = "nothing: the line is harmless"
_NO_SIGN = ("corrected", "noise")  # severities that explain no failure
_FILES: dict[Log, str] = {"kernel": "kernel_", "job": "job_", "rccl": "rccl"}


@cache
def entries(log: Log) -> tuple[Entry, ...]:
    """Return the entries of one kind of log in the order in which they are tried: noise first, general ones last."""
    found = [Entry.model_validate(table) for table in _tables(log)]
    return tuple(sorted(found, key=_rank))


def _rank(entry: Entry) -> int:
    harmless = entry.log == "kernel" and entry.severity == "noise"
    return 2 * entry.general + (not harmless)


@cache
def _by_name(log: Log) -> dict[str, Entry]:
    return {entry.name: entry for entry in entries(log)}


def entry(name: str) -> Entry | None:
    """Return the entry of that name; None for a name that the catalogue does not have."""
    logs: tuple[Log, ...] = ("job", "kernel", "rccl")
    return next((found for log in logs if (found := _by_name(log).get(name))), None)


def advice(name: str) -> str:
    """Return the advice of that name, about what no single line shows. Raise KeyError."""
    return _advice()[name]


@cache
def _advice() -> dict[str, str]:
    return {table["name"]: table["text"] for table in read_toml("shakedown.catalogue", "advice.toml")["advice"]}


def _tables(log: Log) -> Iterator[dict[str, Any]]:
    """Yield each entry of the files of a log, with what the file says of all its entries."""
    names = [file.name for file in resources.files("shakedown.catalogue").iterdir()]
    for name in sorted(name for name in names if name.startswith(_FILES[log]) and name.endswith(".toml")):
        document = read_toml("shakedown.catalogue", name)
        common = {"log": log, **{key: value for key, value in document.items() if key != "entry"}}
        for table in document["entry"]:
            given = common | table
            if "unless" in common and "unless" in table:
                given["unless"] = f"{common['unless']}|{table['unless']}"
            harmless = given.get("severity") == "noise"
            yield ({"remedy": _HARMLESS} if harmless else {}) | _role(log, given) | given


def _role(log: Log, given: dict[str, Any]) -> dict[str, str]:
    """Return the role of a kernel's line that states none: nothing on another node makes a kernel write the line."""
    return {"role": "origin"} if log == "kernel" and given.get("severity") not in _NO_SIGN else {}
