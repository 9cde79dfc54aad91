"""`make mutants` reaches every module of the product (tests/mutants/areas.toml)."""

from __future__ import annotations

import tomllib
from pathlib import Path

PROJECT = Path(__file__).parents[2]
AREAS = tomllib.loads((PROJECT / "tests/mutants/areas.toml").read_text("utf-8"))


def fitting(kind: str) -> dict[str, set[Path]]:
    """Return pattern -> the files that fit it, of all areas."""
    return {pattern: set(PROJECT.glob(pattern)) for area in AREAS.values() for pattern in area[kind]}


def test_every_module_with_conditions_belongs_to_an_area() -> None:
    rooms = ("shakedown", "facts", "operations")
    files = [path for room in rooms for path in (PROJECT / room).rglob("*.py")]
    left = {path for path in files if "if " in path.read_text("utf-8")}
    left -= set().union(*fitting("modules").values())
    assert {str(path.relative_to(PROJECT)) for path in left} == set()


def test_each_pattern_fits_a_file() -> None:
    assert [pattern for kind in ("modules", "tests") for pattern, found in fitting(kind).items() if not found] == []
