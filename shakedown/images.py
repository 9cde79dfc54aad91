"""References of container images: their parts, and the long form under which engines store them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from shakedown.state import Image

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
        """The name with a digest and without the tag, as every engine takes it."""
        return f"{self.name}@{digest}"


def parse(text: str) -> Reference:
    """The parts of a reference, with docker's own defaults for the registry. Raises ValueError for what is none."""
    rest, at, digest = text.partition("@")
    folder, slash, last = rest.rpartition("/")
    last, colon, tag = last.partition(":")
    name = folder + slash + last
    right = _NAME.fullmatch(name) and (not colon or _TAG.fullmatch(tag)) and (not at or _DIGEST.fullmatch(digest))
    if not right:
        raise ValueError(f"not an image reference: {text!r}")
    return Reference(long_name(name), tag or (None if digest else "latest"), digest or None)


def long_name(name: str) -> str:
    """ "rocm/megatron-lm" -> "docker.io/rocm/megatron-lm", "busybox" -> "docker.io/library/busybox"."""
    first, slash, _ = name.partition("/")
    if slash and (first == "localhost" or "." in first or ":" in first):
        return name.replace("index.docker.io/", "docker.io/", 1)
    return f"{DEFAULT_REGISTRY}/{name}" if slash else f"{DEFAULT_REGISTRY}/library/{name}"


def digests_of(image: Image, name: str) -> set[str]:
    """The registry digests under which an engine holds an image of this (long) name."""
    pairs = (entry.partition("@") for entry in image.digests)
    return {digest for stored, _, digest in pairs if long_name(stored) == name}


def has_tag(image: Image, reference: Reference) -> bool:
    """Whether an engine knows an image under the reference's tag."""
    for stored in image.tags:
        name, _, tag = stored.rpartition(":")
        if long_name(name) == reference.name and tag == (reference.tag or "latest"):
            return True
    return False


def agreed_digest(stores: Iterable[Iterable[Image]], reference: Reference) -> str | None:
    """The digest that the nodes which have the reference's tag already hold: what the others should pull, so that a
    tag which has moved at the registry does not split the nodes. None where no node has one, or they differ."""
    held = {
        digest
        for store in stores
        for image in store
        if has_tag(image, reference)
        for digest in digests_of(image, reference.name)
    }
    return held.pop() if len(held) == 1 else None
