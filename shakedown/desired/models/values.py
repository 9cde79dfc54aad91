"""Types of values that several sections hold: what could reach a command, a file or a container is checked here."""

import re
from typing import Annotated

from pydantic import AfterValidator, Field

from shakedown.common.section import Positive

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


def _variable(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        raise ValueError("the name of a variable: letters, digits and underscores, no digit first")
    return name


def _line(value: str) -> str:
    if any(mark in value for mark in "\n\r\0"):
        raise ValueError("one line: an engine's file of variables has one on each")
    return value


Environment = dict[Annotated[str, AfterValidator(_variable)], Annotated[str, AfterValidator(_line)]]


def _volume(text: str) -> str:
    """Check a path of `docker run --volume`, which has colons between its parts, or of --mount, which has commas."""
    if not text.startswith(("/", "{home}")) or any(mark in text for mark in ",\n\r\0"):
        raise ValueError("an absolute path, without comma")
    return text


def _source(text: str) -> str:
    if ":" in text:
        raise ValueError("an absolute path, without colon")
    return _volume(text)


def _target(text: str) -> str:
    path, _, mode = text.partition(":")
    if mode and not set(mode.split(",")) <= {"ro", "rw", "z", "Z", "rshared", "rslave", "rprivate", "shared", "slave"}:
        raise ValueError("an absolute path, with nothing behind a colon but ro, rw, z, Z or a propagation")
    _volume(path)
    return text


# Host path -> container path, which may have `:ro` and the like behind it.
Volumes = dict[Annotated[str, AfterValidator(_source)], Annotated[str, AfterValidator(_target)]]


def _interface(name: str) -> str:
    """As dev_valid_name of Linux' net/core/dev.c has it (IFNAMSIZ is 16 with the final zero), and without the marks
    of NCCL_SOCKET_IFNAME's own language."""
    if not re.fullmatch(r"[^\s/:,=^]{1,15}", name) or name in (".", ".."):
        raise ValueError("the name of one network interface")
    return name


Interface = Annotated[str, AfterValidator(_interface)]

__all__ = ["Environment", "Interface", "Positive", "Sha256", "Volumes"]
