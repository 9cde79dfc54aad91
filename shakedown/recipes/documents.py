"""The documents that recipes follow (documents.toml), and the versions in images with their room (images.toml)."""

import re
from functools import cache

from shakedown.common.data import read_toml
from shakedown.common.section import Section
from shakedown.state.images import Reference, parse


class Document(Section):
    """A title that people search for, and a public address."""

    title: str
    url: str | None = None  # None: it is part of this project

    def __str__(self) -> str:
        return f"{self.title} <{self.url}>" if self.url else self.title


@cache
def documents() -> dict[str, Document]:
    """Every document, by the name that data files give it."""
    tables = read_toml("shakedown.recipes", "documents.toml")
    return {name: Document.model_validate(table) for name, table in tables.items()}


_GB = 10**9


class PublishedImage(Section):
    """One tag: the day on which it was built, its size unpacked in GB, and component -> version."""

    built: str | None = None
    gb: float | None = None
    versions: dict[str, str]


@cache
def _data() -> dict[tuple[str, str | None], PublishedImage]:
    table = read_toml("shakedown.recipes", "images.toml")
    images = {parse(name): PublishedImage.model_validate(row) for name, row in table["images"].items()}
    return {(reference.name, reference.tag): image for reference, image in images.items()}


def published(reference: Reference) -> PublishedImage | None:
    """Return what is known of an image by its name and tag; None for one that no page lists."""
    return _data().get((reference.name, reference.tag))


def same_version(actual: str, listed: str) -> bool:
    """Return whether a version is the listed one, which may be shorter: 3.10.12 is Python 3.10, 3.1.0 is not;
    7.15.0a20260701 is 7.15.0; and of a commit pages give six digits, where packages have seven."""
    if re.search(r"git[0-9a-f]{6,}$", listed) and actual.startswith(listed):
        return True
    words = [re.findall(r"[0-9]+|[a-z]+", version.lower().removeprefix("v")) for version in (actual, listed)]
    return words[0][: len(words[1])] == words[1]


def room(reference: Reference) -> int:
    """Return the bytes that an image takes unpacked; 0 where no page lists its size."""
    image = published(reference)
    return int(image.gb * _GB) if image and image.gb else 0
