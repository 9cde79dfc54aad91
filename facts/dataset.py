"""Files that `operations.dataset` has put on a node."""

import json
from pathlib import Path
from typing import Any

from shakedown.facts.base import Fact
from shakedown.node import data
from shakedown.transport.program import command, program


class Downloaded(Fact[dict[str, dict[str, Any]]]):
    """
    Returns size and SHA-256 of each file that was downloaded and checked, and is as it was then.

    .. code:: python

        {"SlimPajama.json": {"size": 4096, "sha256": "9f86d081884c7d65..."}}
    """

    default = dict

    def command(self, folder: str, names: list[str]) -> str:
        return _command("downloaded(sys.argv[1], sys.argv[2:])", folder, *names)

    def process(self, output: Any) -> dict[str, dict[str, Any]]:
        found = json.loads("\n".join(output))
        return {name: {key: about[key] for key in ("size", "sha256")} for name, about in found.items()}


class Prepared(Fact[str]):
    """
    Returns what stands at a place for prepared data: absent, prepared (by us, whole), or why it is neither.

    .. code:: python

        "prepared"
    """

    @staticmethod
    def default() -> str:
        return "the node did not say what is there"

    def command(self, folder: str) -> str:
        return _command("prepared(sys.argv[1])", folder)

    def process(self, output: Any) -> str:
        return str(json.loads("\n".join(output)))


def _command(call: str, *words: str) -> str:
    return command(f"{program(Path(data.__file__))}\nimport sys\nprint(json.dumps({call}))", *words)
