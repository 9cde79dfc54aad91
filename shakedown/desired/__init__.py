"""The desired state: what a node should be, typed, in layers, and checked before the first connection."""

from typing import TYPE_CHECKING, Any

from shakedown.desired.layers import Layer, Merged, merge
from shakedown.desired.problems import DesiredStateError, Problem

if TYPE_CHECKING:
    from shakedown.desired.models import DesiredState

__all__ = [
    "DesiredState",
    "DesiredStateError",
    "Layer",
    "Merged",
    "Problem",
    "merge",
]


def __getattr__(name: str) -> Any:
    """Load the models on first use: code that writes a size or reads a layer has no use for them."""
    if name == "DesiredState":
        from shakedown.desired.models import DesiredState

        return DesiredState
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
