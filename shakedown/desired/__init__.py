"""The desired state: what a node should be, typed, in layers, and checked before the first connection."""

from shakedown.desired.layers import Layer, Merged, merge
from shakedown.desired.models import DesiredState
from shakedown.desired.problems import DesiredStateError, Problem

__all__ = [
    "DesiredState",
    "DesiredStateError",
    "Layer",
    "Merged",
    "Problem",
    "merge",
]
