"""An operation that a deploy has a stage for."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pyinfra.api.arguments_typed import PyinfraOperation

from shakedown import operations
from shakedown.desired.models import DesiredState
from shakedown.state.images import parse


@dataclass(frozen=True)
class Remediation:
    """An operation that this deploy has a stage for. `more`: arguments that depend on the site or on other nodes."""

    operation: PyinfraOperation[...]
    more: Callable[[Any, dict[str, Any]], dict[str, Any]] = lambda _current, _arguments: {}

    @property
    def known_as(self) -> str:
        """As a finding's remedy names the operation: module and function. A finding is data of the core, which knows
        no operations; this is the one place where the name and the function meet."""
        function = self.operation._inner
        return f"{function.__module__.removeprefix(f'{operations.__name__}.')}.{function.__name__}"


def pull_arguments(desired: DesiredState, arguments: dict[str, Any]) -> dict[str, Any]:
    """Return what the site says of a pull: how many at once, and the mirror of the image's registry."""
    mirror = desired.pulls.mirrors.get(parse(arguments["reference"]).registry)
    return {
        "at_once": desired.pulls.at_once,
        **({"mirror": mirror.model_dump(exclude_none=True)} if mirror else {}),
    }
