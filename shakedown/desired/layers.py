"""Layers: dictionaries merged key by key, later over earlier, remembering which layer each value came from."""

import copy
import getpass
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Layer:
    """One layer: its name as a person knows it ("defaults", "profile mi300x", "group rack7", "host node03")."""

    name: str
    values: Mapping[str, Any]


@dataclass(frozen=True)
class HostLayers:
    """A host of an inventory with the site's own layers, lowest first: all, groups, host, command line."""

    name: str
    layers: Sequence[Layer]
    user: str = field(default_factory=getpass.getuser)  # who runs jobs there, for {user-id} and {home}


@dataclass
class Merged:
    """The result of a merge: the values, and for each leaf's dotted path the layer it came from."""

    values: dict[str, Any] = field(default_factory=dict)
    origin: dict[str, str] = field(default_factory=dict)

    def origin_of(self, path: str) -> str:
        """Return the layer of a dotted path: its own, its nearest parent's, or that of what lies below it."""
        parts = path.split(".")
        for end in range(len(parts), 0, -1):
            prefix = ".".join(parts[:end])
            if prefix in self.origin:
                return self.origin[prefix]
            below = [layer for leaf, layer in self.origin.items() if leaf.startswith(prefix + ".")]
            if below:
                return below[-1]
        return "the merged layers"


def merge(layers: Iterable[Layer]) -> Merged:
    """Merge layers in order: dictionaries key by key (an empty one adds nothing), all else, lists too, whole."""
    merged = Merged()
    for layer in layers:
        _merge_into(merged, merged.values, layer.values, layer.name, "")
    return merged


def _merge_into(merged: Merged, target: dict[str, Any], source: Mapping[str, Any], layer: str, prefix: str) -> None:
    for key, value in source.items():
        path = f"{prefix}{key}"
        if not isinstance(value, Mapping):
            for stale in [leaf for leaf in merged.origin if leaf.startswith(f"{path}.")]:
                del merged.origin[stale]
            target[key] = copy.deepcopy(value) if isinstance(value, list | tuple | set) else value
            merged.origin[path] = layer
            continue
        if not isinstance(target.get(key), dict):
            target[key] = {}
            merged.origin[path] = layer
        if value:
            _merge_into(merged, target[key], value, layer, f"{path}.")
            merged.origin.pop(path, None)  # no longer a leaf


def without_none(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values without those that a layer has taken back by None."""
    return {
        key: without_none(value) if isinstance(value, Mapping) else value
        for key, value in values.items()
        if value is not None
    }


def leaves(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every leaf with its dotted path, in the order of the document; a tuple as the list that it means."""
    for key, value in values.items():
        path = f"{prefix}{key}"
        if isinstance(value, Mapping) and value:
            yield from leaves(value, f"{path}.")
        else:
            yield path, list(value) if isinstance(value, tuple) else value
