"""Sections of the desired state: models that refuse what they do not know, their keys, and common types of values."""

import re
from collections.abc import Callable
from pathlib import PurePosixPath
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
WORD = re.compile(r"\w+", re.ASCII)


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, defer_build=True)


def _text(value: str) -> str:
    if CONTROL.search(value):
        raise ValueError("one line without control characters")
    return value


def matching(pattern: re.Pattern[str], expected: str) -> Callable[[str], str]:
    def check(value: str) -> str:
        if not pattern.fullmatch(value):
            raise ValueError(expected)
        return value

    return check


def checked_path(value: str) -> str:
    path = PurePosixPath(f"/{value}" if _text(value).startswith("{home}") else value)  # the node says where that is
    if not path.is_absolute() or ".." in path.parts or value.startswith("//"):
        raise ValueError("an absolute path without '..'")
    return value


def _mounted(value: str) -> str:
    if "," in value:
        raise ValueError("a path without a comma, which ends a path for an engine's --mount")
    return checked_path(value)


Positive = Annotated[int, Field(gt=0)]
Text = Annotated[str, Field(min_length=1), AfterValidator(_text)]
Word = Annotated[str, AfterValidator(matching(WORD, "one word of letters and digits"))]
MountPath = Annotated[str, AfterValidator(_mounted)]
