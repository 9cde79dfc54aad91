"""pyinfra's own keys in the inventory's data: ssh_user, _sudo and so on, their names and their types.

pyinfra ignores a key that it does not know, and ends with a traceback for a value of a wrong type. Which keys there are
is read from pyinfra itself: the data of its connectors, and its global arguments.
"""

import difflib
import json
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from typing import Any, get_type_hints

from pyinfra.api import Host
from pyinfra.api.arguments import all_global_arguments
from pyinfra.api.connectors import get_execution_connectors
from pyinfra.api.util import raise_if_bad_type

from shakedown.common.secrets import MASK, is_secret
from shakedown.desired import Layer, Problem
from shakedown.desired.layers import HostLayers
from shakedown.desired.merging import KEYS

_COMMAND_LINE = "--data"
_NEAR = 0.75  # "ssh_keyfile" for ssh_key
_NEAR_PRIVATE = 0.8  # "_sodo" for _sudo; a group_data file may have names of its own with an underscore before them


@cache
def known() -> dict[str, Any]:
    """Every key that pyinfra reads from host data, with its type."""
    keys = {name: kind for name, kind in all_global_arguments() if name.startswith("_")}
    for connector in get_execution_connectors().values():
        keys |= get_type_hints(connector.data_cls)
    return keys


def problems(hosts: Mapping[str, Host], layers: Sequence[HostLayers]) -> list[Problem]:
    """Return the problems of pyinfra's keys and of the keys of --data, each once for all its hosts."""
    found: dict[Problem, None] = {}
    for host in layers:
        elsewhere = {key for layer in host.layers if layer.name != _COMMAND_LINE for key in layer.values}
        for layer in host.layers:
            found |= dict.fromkeys(_misspelt(layer))
            if layer.name == _COMMAND_LINE:
                found |= dict.fromkeys(_unknown(layer, elsewhere))
        found |= dict.fromkeys(_of_wrong_type(hosts[host.name], host.layers))
    return list(found)


def _misspelt(layer: Layer) -> list[Problem]:
    wrong = []
    for key in set(layer.values) - known().keys():
        if near := _nearest(key):
            wrong.append(Problem(layer.name, key, _shown(key, layer.values[key]), f"pyinfra's key {near!r}"))
    return wrong


@lru_cache(maxsize=4096)
def _nearest(key: str) -> str:
    """pyinfra's key that one was meant to be, or nothing: hosts by the thousand have the same ones."""
    prefix = key.partition("_")[0] + "_"
    names = [name for name in known() if name.startswith(prefix)]
    cutoff = _NEAR_PRIVATE if prefix == "_" else _NEAR
    return next(iter(difflib.get_close_matches(key, names, n=1, cutoff=cutoff)), "")


def _unknown(layer: Layer, elsewhere: set[str]) -> list[Problem]:
    """Keys of --data that nothing reads: no section, no key of pyinfra's, and in no other layer either."""
    wrong = []
    for key, value in layer.values.items():
        section, *rest = key.split(".", 2)
        shown = _shown(key, value)
        if rest and section in KEYS:
            for part in reversed(rest):
                value = {part: value}
            form = json.dumps(value, default=str)
            wrong.append(Problem(layer.name, key, shown, f"a whole section: --data {section}='{form}'"))
        elif key not in KEYS and key not in known() and key not in elsewhere and not _near_others(key):
            near = difflib.get_close_matches(key, [*KEYS, *known()], n=1, cutoff=0.5)
            hint = f"{near[0]}? " if near else ""
            wrong.append(Problem(layer.name, key, shown, f"{hint}one of {', '.join(KEYS)}, or a key of pyinfra's"))
    return wrong


def _near_others(key: str) -> bool:
    """Whether it has been refused as a misspelling already, here or of a section."""
    return bool(difflib.get_close_matches(key, KEYS, n=1, cutoff=_NEAR)) or bool(_misspelt(Layer("", {key: ""})))


def _of_wrong_type(host: Host, layers: Sequence[Layer]) -> list[Problem]:
    """Values that pyinfra would end on: of each key the one that holds, the last."""
    holding = {key: (layer.name, value) for layer in layers for key, value in layer.values.items()}
    kinds = _kinds(host.connector_cls.data_cls)  # type: ignore[arg-type]  # it is hashable, as every class
    wrong = []
    for key in holding.keys() & kinds.keys():
        where, value = holding[key]
        if not (_fits_as_another if isinstance(value, str | int | float) else _fits)(value, kinds[key]):
            name = getattr(kinds[key], "__name__", str(kinds[key]))
            wrong.append(Problem(where, key, _shown(key, value), f"a value of type {name}", (host.name,)))
    return wrong


@cache
def _kinds(data: type) -> dict[str, Any]:
    """Return the types of all keys that a connector with such data reads."""
    return get_type_hints(data) | {name: kind for name, kind in all_global_arguments() if name.startswith("_")}


def _fits(value: Any, kind: Any) -> bool:
    try:
        raise_if_bad_type(value, kind, ValueError, "")
    except ValueError:
        return False
    return True


_fits_as_another = lru_cache(maxsize=4096, typed=True)(_fits)
"""The same of a plain value: hosts by the thousand have the same ones."""


def _shown(key: str, value: object) -> str:
    return MASK if is_secret(key) else repr(value)
