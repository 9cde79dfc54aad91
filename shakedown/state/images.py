"""References of container images: their parts, the names under which engines store them, and which image is meant.

Checks, launch plan, pull and the comparison of nodes ask here, so that what one of them finds no other misses.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # who only reads a reference has no use for the models of a node
    from shakedown.state.node import Image

DEFAULT_REGISTRY = "docker.io"
_NAME = re.compile(r"[a-zA-Z0-9][\w.-]*(?::\d+)?(?:/[a-z0-9][\w.-]*)*")
_TAG = re.compile(r"\w[\w.-]{0,127}")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


@dataclass(frozen=True)
class Reference:
    """`name:tag@sha256:...` with the registry in front of the name."""

    name: str  # "docker.io/rocm/megatron-lm"
    tag: str | None
    digest: str | None  # "sha256:..."
    written: str  # the name as it was written, maybe without a registry

    @property
    def registry(self) -> str:
        return self.name.partition("/")[0]

    @property
    def repository(self) -> str:
        return self.name.partition("/")[2]

    @property
    def tagged(self) -> str:
        return f"{self.name}:{self.tag or 'latest'}"

    def pinned(self, digest: str) -> str:
        """Return the name with a digest and without the tag, as every engine takes it."""
        return f"{self.name}@{digest}"

    def names(self, engine: object) -> tuple[str, ...]:
        """Return the long names that this reference may have in an engine's store, in the order in which the engine
        looks: podman keeps what was built on the node as localhost/NAME, and finds it by NAME."""
        short = long_name(self.written) == self.name != self.written
        return (f"localhost/{self.written}", self.name) if engine == "podman" and short else (self.name,)


def parse(text: str) -> Reference:
    """Read the parts of a reference, with docker's defaults for the registry. Raise ValueError for another text."""
    rest, at, digest = text.partition("@")
    folder, slash, last = rest.rpartition("/")
    last, colon, tag = last.partition(":")
    name = folder + slash + last
    right = _NAME.fullmatch(name) and (not colon or _TAG.fullmatch(tag)) and (not at or _DIGEST.fullmatch(digest))
    if not right:
        raise ValueError(f"not an image reference: {text!r}")
    return Reference(long_name(name), tag or (None if digest else "latest"), digest or None, name)


def long_name(name: str) -> str:
    """ "rocm/megatron-lm" -> "docker.io/rocm/megatron-lm", "busybox" -> "docker.io/library/busybox"."""
    first, slash, _ = name.partition("/")
    if slash and (first == "localhost" or "." in first or ":" in first):
        return name.replace("index.docker.io/", "docker.io/", 1)
    return f"{DEFAULT_REGISTRY}/{name}" if slash else f"{DEFAULT_REGISTRY}/library/{name}"


def held(store: Iterable[Image], reference: Reference, engine: object) -> list[Image]:
    """Return the images of a store that the reference means: under its digest where it is pinned, else under its tag.
    An image from a mirror has the tag, and the digest under the mirror's name alone."""
    if not reference.digest:
        return tagged(store, reference, engine)
    names, images = reference.names(engine), list(store)
    found = [[image for image in images if reference.digest in digests_of(image, [name])] for name in names]
    mirrored = [
        image
        for image in tagged(images, reference, engine)
        if reference.digest in {entry.partition("@")[2] for entry in image.digests}
    ]
    return next((these for these in found if these), mirrored)


def tagged(store: Iterable[Image], reference: Reference, engine: object) -> list[Image]:
    """Return the images that have the reference's tag, whatever their digest; none for a reference without a tag."""
    names, images = reference.names(engine), list(store)
    found = [[image for image in images if _has_tag(image, reference, name)] for name in names]
    return next((these for these in found if these), [])


def digests_of(image: Image, names: Sequence[str]) -> list[str]:
    """Return the registry digests under which an engine holds an image of one of these (long) names, sorted."""
    pairs = (entry.partition("@") for entry in image.digests)
    return sorted({digest for stored, _, digest in pairs if long_name(stored) in names})


def same(images: Mapping[str, Image], names: Sequence[str]) -> dict[str, str]:
    """For each key one text, which is the same for images that are the same: those that share a registry digest of one
    of the names, or their id (one that was built here or loaded from a file has no digest)."""
    labels: dict[str, str] = {}
    for key, image in images.items():
        own = digests_of(image, names)
        shared = {key for key in labels if image.id == images[key].id or set(own) & set(digests_of(images[key], names))}
        alike = {labels[other] for other in shared}
        label = min(alike, key=lambda text: list(labels.values()).index(text)) if alike else ", ".join(own) or image.id
        labels |= {other: label for other, text in labels.items() if text in alike}
        labels[key] = label
    return labels


def _has_tag(image: Image, reference: Reference, name: str) -> bool:
    stored = (entry.rpartition(":") for entry in image.tags)
    return any(reference.tag == tag and long_name(of) == name for of, _, tag in stored)
