"""{home} in a desired state: the home of the user that runs jobs on the node, which only the node knows."""

from collections.abc import Mapping
from typing import Any

from shakedown.desired.models import DesiredState

HOME = "{home}"


def at_home(desired: DesiredState, home: str | None) -> DesiredState:
    """Return the desired state with the node's own home folder, unchanged where it needs none or none is known."""
    if home is None or HOME not in desired.model_dump_json():
        return desired
    return DesiredState.model_validate(replaced(desired.model_dump(), HOME, home))


def replaced(value: Any, word: str, by: str) -> Any:
    """Return a document with a word replaced in all its texts and keys."""
    if isinstance(value, str):
        return value.replace(word, by)
    if isinstance(value, Mapping):
        return {replaced(key, word, by): replaced(item, word, by) for key, item in value.items()}
    return [replaced(item, word, by) for item in value] if isinstance(value, list) else value
