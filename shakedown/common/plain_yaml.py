"""PyYAML's safe loader, in which no number takes more than its length."""

from typing import Any

import yaml

_LONGEST = 100  # characters of a number; "1:00:00..." takes the square of its length, or is more than a float holds


class Loader(yaml.SafeLoader):  # type: ignore[misc]  # it has no types
    """Loads a longer number as text."""


def _number(loader: Loader, node: Any) -> Any:
    read = yaml.SafeLoader.yaml_constructors[node.tag]
    return read(loader, node) if len(node.value) <= _LONGEST else node.value


for _kind in ("int", "float"):
    Loader.add_constructor(f"tag:yaml.org,2002:{_kind}", _number)
