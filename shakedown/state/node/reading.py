"""A reading: a value, or the reason why there is none."""

from typing import Annotated, Any, Literal, TypeVar, Union

from pydantic import BaseModel, ConfigDict, Field
from typing_extensions import TypeIs

Why = Literal["missing", "not permitted", "timed out", "malformed", "failed"]


class Part(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, defer_build=True, allow_inf_nan=False)


class Unreadable(Part):
    """Why there is no value: no such file or tool (`missing`), no permission, no answer in time, output that makes no
    sense, or a tool that reported an error (`failed`). `detail` names the file or the command, and its words."""

    unreadable: Why
    detail: str = ""

    def __str__(self) -> str:
        return f"unreadable ({self.unreadable}{': ' + self.detail if self.detail else ''})"


T = TypeVar("T")
# In this order: a reading that is a dictionary of texts would take an Unreadable for one, and call it read.
Reading = Annotated[Union[Unreadable, T], Field(union_mode="left_to_right")]  # noqa: UP007 - subscripted with a TypeVar


def is_unreadable(reading: Any) -> TypeIs[Unreadable]:
    """Tell whether the reading could not be taken."""
    return isinstance(reading, Unreadable)


NOT_READ = Unreadable(unreadable="failed", detail="the probe that took this state did not read it")
