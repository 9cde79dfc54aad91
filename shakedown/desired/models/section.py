"""What every section of the desired state is made of: models that refuse what they do not know, and their keys."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field
from pydantic.config import JsonDict

from shakedown.node.settings import SETTINGS


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, defer_build=True)


def key(
    default: Any,
    description: str,
    example: Any = None,
    *,
    unit: str | None = None,
    source: str | None = None,
    ge: int | None = None,
    max_length: int | None = None,
) -> Any:
    """Describe a key of the desired state as docs/reference/configuration.md shows it.

    What it requests, a value that a site may write, the unit of its number, and the document
    (shakedown/recipes/documents.toml) that it comes from. `...` as the default: it is required.
    """
    more: JsonDict = {name: value for name, value in (("unit", unit), ("source", source)) if value is not None}
    examples = None if example is None else [example]
    extra = more or None
    return Field(
        default, description=description, examples=examples, json_schema_extra=extra, ge=ge, max_length=max_length
    )


def setting(name: str) -> Any:
    """Describe a key for a host setting, which its module in shakedown/node/settings explains."""
    known = SETTINGS[name]
    return key(None, known.doc, False if known.switch else known.example, unit=known.unit, source=known.document)
