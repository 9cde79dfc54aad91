"""Travels with take.py: an image's archive from another node, let through to docker only as far as it is the one image.

The sender is a node, and what it sends is input. Of its archive (a tar, as `docker save` writes it) only the contents
of its files go on, under names that are given here. Which of them are the image is said by digests alone: the
configuration is the file whose SHA-256 is the image's id, the layers are those that the configuration names by theirs.
`manifest.json`, without which docker loads nothing, is written here, and only when every one of them is there. So no
other image, no tag and no name of the sender's reaches docker.
"""

from __future__ import annotations

import hashlib
import json
import tarfile
from typing import IO, Any, Dict, List, Optional, Tuple

from shakedown.node.assets.handover import CHUNK

BLOCK = 512
SMALL = 4 << 20  # bytes of a configuration at most, as of a manifest (OCI distribution specification 1.1)
EXTENDED = 1 << 20  # bytes of an extended header
FILES = 2000


class Refused(Exception):
    """What came is not the image."""


class Archive:
    """A tar stream, file by file, bounded in everything that its sender says."""

    def __init__(self, stream: IO[bytes], most: int) -> None:
        self.stream, self.left = stream, most

    def take(self, count: int) -> bytes:
        """Exactly so many bytes."""
        if count > self.left:
            raise Refused("it is longer than the image can be")
        self.left -= count
        parts: List[bytes] = []
        while count:
            part = self.stream.read(min(count, CHUNK))
            if not part:
                raise Refused("it was cut short")
            parts.append(part)
            count -= len(part)
        return b"".join(parts)

    def next_file(self) -> Optional[int]:
        """The size of the next regular file, whose content is to be read next; None at the end."""
        size: Optional[int] = None
        while True:
            header = self.take(BLOCK)
            if not header.strip(b"\0"):
                return None
            try:
                entry = tarfile.TarInfo.frombuf(header, "utf-8", "surrogateescape")
            except tarfile.HeaderError as error:
                raise Refused("it is no tar: {}".format(error)) from None
            own = entry.size
            if entry.type in (tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK):
                if not 0 <= own <= EXTENDED:
                    raise Refused("an extended header of {} bytes".format(own))
                said = self.take(own + -own % BLOCK)[:own]
                size = pax_size(said) if entry.type == tarfile.XHDTYPE else size
                continue
            own, size = own if size is None else size, None
            if own < 0:
                raise Refused("a file of {} bytes".format(own))
            if entry.type in (tarfile.REGTYPE, tarfile.AREGTYPE):
                return own
            if entry.type not in (tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE):
                raise Refused("an entry of the type {!r}".format(entry.type))


def pax_size(text: bytes) -> Optional[int]:
    """The size in a pax header, of files that the older header has no room for."""
    while text:
        digits, _, rest = text.partition(b" ")
        if not digits.isdigit() or not len(digits) < int(digits) <= len(text):
            raise Refused("an extended header that is none")
        record, text = rest[: int(digits) - len(digits) - 1], text[int(digits) :]
        name, _, value = record.rstrip(b"\n").partition(b"=")
        if name == b"size":
            if not value.isdigit() or len(value) > 18:
                raise Refused("a size that is none")
            return int(value)
    return None


def let_through(source: IO[bytes], target: IO[bytes], image_id: str, most: int) -> int:
    """Pass the image on, and nothing else. Returns its bytes; raises Refused, before docker could load anything."""
    archive = Archive(source, most)
    names: Dict[str, str] = {}
    config: Optional[bytes] = None
    total = 0
    for number in range(FILES):
        size = archive.next_file()
        if size is None:
            break
        total += size
        digest, content = pass_on(archive, target, "blob-{}".format(number), size)
        names.setdefault(digest, "blob-{}".format(number))
        config = content if digest == image_id else config
    else:
        raise Refused("it has more than {} files".format(FILES))
    if config is None:
        raise Refused("the image {} is not in it".format(image_id))
    layers = layers_of(config)
    missing = [layer for layer in layers if layer not in names]
    if missing:
        raise Refused("{} of {} layers are not in it, such as {}".format(len(missing), len(layers), missing[0]))
    own = [{"Config": names[image_id], "RepoTags": None, "Layers": [names[layer] for layer in layers]}]
    put(target, "manifest.json", json.dumps(own).encode())
    target.write(b"\0" * BLOCK * 2)
    source.read(1 << 16)  # padding, or the sender would see the connection break
    return total


def pass_on(archive: Archive, target: IO[bytes], name: str, size: int) -> Tuple[str, bytes]:
    """One file under its new name. Returns its digest, and its content where it may be a configuration."""
    if size > archive.left:
        raise Refused("it is longer than the image can be")
    target.write(header(name, size))
    digest, kept, left = hashlib.sha256(), [], size
    while left:
        part = archive.take(min(left, CHUNK))
        digest.update(part)
        target.write(part)
        if size <= SMALL:
            kept.append(part)
        left -= len(part)
    archive.take(-size % BLOCK)
    target.write(b"\0" * (-size % BLOCK))
    return "sha256:" + digest.hexdigest(), b"".join(kept)


def layers_of(config: bytes) -> List[str]:
    """The layers of a configuration, lowest first, by the digests of their unpacked tars."""
    try:
        document: Any = json.loads(config.decode())
        layers = document["rootfs"]["diff_ids"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise Refused("its configuration names no layers") from None
    if not isinstance(layers, list) or not all(isinstance(layer, str) for layer in layers):
        raise Refused("its configuration names no layers")
    return layers


def put(target: IO[bytes], name: str, content: bytes) -> None:
    target.write(header(name, len(content)) + content + b"\0" * (-len(content) % BLOCK))


def header(name: str, size: int) -> bytes:
    entry = tarfile.TarInfo(name)
    entry.size = size
    return entry.tobuf(tarfile.GNU_FORMAT)
