"""What the controller has compiled for this node, where the checks' modules look for it: in place of the profiles, the
recipes and the desired state's own models, which stay on the controller."""

from __future__ import annotations

from . import plain

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Tuple

_GIVEN: Dict[str, Any] = {}


class Tuning:
    """The desired state's section: the names of its keys, in their order."""

    model_fields: Tuple[str, ...] = ()


def give(document: Dict[str, Any]) -> None:
    """Take the compiled document. Before any of the checks' modules is imported."""
    _GIVEN.update(document)
    plain.MODELS.update(document["shapes"]["models"])
    plain.DEFAULTS.update(document["shapes"]["defaults"])
    Tuning.model_fields = tuple(document["tuning"])


def desired() -> Any:
    """The desired state of this node."""
    return plain.part(_GIVEN["desired"], _GIVEN["shapes"]["desired"])


def recipes() -> Dict[str, Any]:
    """The recipe of the smoke run, by its name."""
    return {name: plain.part(each, "Recipe") for name, each in _GIVEN["recipes"].items()}


def families() -> Dict[str, Any]:
    """The families that caution against a variable, by name."""
    return {name: plain.part(each, _GIVEN["shapes"]["family"]) for name, each in _GIVEN["families"].items()}


def names(kind: str) -> List[str]:
    """The profiles of a kind."""
    return sorted(_GIVEN["profiles"][kind])


def load(kind: str, name: str) -> Any:
    """What the checks read of a profile."""
    return _GIVEN["profiles"][kind][name]
