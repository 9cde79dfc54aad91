"""What each key of the desired state asks for: the file `keys.toml` beside the module of its section."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from shakedown.desired.models import DesiredState, Tuning
from shakedown.node.setting import SETTINGS
from shakedown.schedulers import registry


class Key(BaseModel):
    """One key. `source`: a document of shakedown/recipes/documents.toml."""

    model_config = ConfigDict(extra="forbid", strict=True)
    text: str
    example: Any = None
    unit: str | None = None
    source: str | None = None


@cache
def keys_of(section: type[BaseModel]) -> dict[str, Key]:
    """Return the keys of a section by name. A host setting is described by its own class."""
    whole = issubclass(DesiredState, section)
    module = sys.modules[(DesiredState if whole else section).__module__]
    described = _tables(Path(str(module.__file__)).with_name("keys.toml"))
    own = described.get("DesiredState" if whole else section.__name__, {})
    keys = {name: Key.model_validate(table) for name, table in own.items()}
    if whole:
        keys |= {name: Key(text=f"{name.capitalize()}, where it owns the nodes") for name in registry.sections()}
    return {**(dict(_settings()) if section is Tuning else {}), **keys}


@cache
def _tables(file: Path) -> dict[str, dict[str, Any]]:
    return tomllib.loads(file.read_text("utf-8"))


def _settings() -> Iterator[tuple[str, Key]]:
    for name in Tuning.model_fields.keys() & SETTINGS.keys():
        known = SETTINGS[name]
        if known.doc:
            example = False if known.switch else known.example
            yield name, Key(text=known.doc, example=example, unit=known.unit, source=known.document)
