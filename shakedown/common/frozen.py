"""The base of models that refuse unknown keys and do not change."""

from pydantic import BaseModel, ConfigDict, ValidationError

from shakedown.common.text import printable


class Frozen(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


def first_problem(error: Exception) -> str:
    """Return what is wrong with a document: of an invalid model the first place, as a file from elsewhere may hold
    millions; else the error's words."""
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        return printable(f"{'.'.join(map(str, first['loc']))}: {first['msg']}", 300)
    return printable(str(error) or type(error).__name__, 200)
