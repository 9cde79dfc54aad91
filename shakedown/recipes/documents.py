"""The documents that recipes, figures and the benchmark follow, as people find them: documents.toml."""

from functools import cache
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict

from shakedown.common.data import read_toml


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
    tables = read_toml("shakedown.recipes", "documents.toml")
    return {name: Document.model_validate(table) for name, table in tables.items()}


def _known(name: str) -> str:
    if name not in documents():
        raise ValueError(f"one of {', '.join(documents())} (documents.toml)")
    return name


DocumentName = Annotated[str, AfterValidator(_known)]
