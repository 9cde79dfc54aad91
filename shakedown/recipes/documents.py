"""The documents that recipes, figures and the benchmark follow, as people find them: documents.toml."""

import tomllib
from functools import cache
from importlib.resources import files
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict


class Document(BaseModel):
    """A title that people search for, and a public address."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    title: str
    url: str | None = None  # None: it is part of this project

    def __str__(self) -> str:
        return f"{self.title} <{self.url}>" if self.url else self.title


@cache
def documents() -> dict[str, Document]:
    """Every document, by the name that data files give it."""
    text = (files("shakedown.recipes") / "documents.toml").read_text("utf-8")
    return {name: Document.model_validate(table) for name, table in tomllib.loads(text).items()}


def _known(name: str) -> str:
    if name not in documents():
        raise ValueError(f"one of {', '.join(documents())} (documents.toml)")
    return name


DocumentName = Annotated[str, AfterValidator(_known)]
