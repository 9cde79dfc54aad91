"""Container images on a node, by their digests at the registry."""

import json
import shlex
from typing import Any

from shakedown.facts.base import Fact


class ImageDigests(Fact[dict[str, list[str]]]):
    """
    Returns the registry digests of each image that is in the engine's store. One that is not there is left out; one
    that was built there has none.

    .. code:: python

        {"rocm/megatron-lm:v25.5_py310": ["sha256:9f86d081884c7d65..."]}
    """

    default = dict

    def command(self, references: list[str], engine: str = "docker") -> str:
        names = " ".join(shlex.quote(reference) for reference in references)
        ask = f"{shlex.quote(engine)} image inspect --format '{{{{json .RepoDigests}}}}' \"$r\" 2>/dev/null"
        return f'for r in {names}; do d=$({ask}) && echo "$r $d"; done; true'

    def process(self, output: Any) -> dict[str, list[str]]:
        rows = (line.split(" ", 1) for line in output)
        return {name: [d.partition("@")[2] for d in json.loads(listed) or []] for name, listed in rows}
