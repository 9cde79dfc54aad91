"""Files that `operations.dataset` has put on a node."""

from __future__ import annotations

import json
import shlex
from typing import Any

from facts.base import Fact


class Downloaded(Fact[dict[str, dict[str, Any]]]):
    """
    Returns size and SHA-256 of each file that was downloaded and checked, and is as it was then.

    .. code:: python

        {"SlimPajama.json": {"size": 4096, "sha256": "9f86d081884c7d65..."}}
    """

    @staticmethod
    def default() -> dict[str, dict[str, Any]]:
        return {}

    def command(self, folder: str, names: list[str]) -> str:
        words = " ".join(shlex.quote(name) for name in names)
        return (
            f'cd {shlex.quote(folder)} 2>/dev/null || exit 0; for n in {words}; do if [ -f "$n" ] && '
            '[ -f ".$n.shakedown" ]; then echo "$(stat -c "%s %Y" "$n") $(cat ".$n.shakedown")"; echo "= $n"; fi; done'
        )

    def process(self, output: Any) -> dict[str, dict[str, Any]]:
        found: dict[str, dict[str, Any]] = {}
        said = ""
        for line in output:
            if not line.startswith("= "):
                said = line
                continue
            try:
                size, mtime, text = said.split(" ", 2)
                record = json.loads(text)
                if (record["size"], record["mtime"]) == (int(size), int(mtime)):
                    found[line[2:]] = {"size": record["size"], "sha256": record["sha256"]}
            except (ValueError, KeyError, TypeError):
                continue  # a record that cannot be read proves nothing
        return found


class Prepared(Fact[str]):
    """
    Returns what stands at a place for prepared data: absent, prepared (by us, whole) or foreign.

    .. code:: python

        "prepared"
    """

    @staticmethod
    def default() -> str:
        return "foreign"

    def command(self, folder: str, mark: str) -> str:
        return (
            f'd={shlex.quote(folder)}; if [ ! -e "$d" ]; then echo absent; '
            f'elif [ -f "$d/{mark}" ]; then echo prepared; '
            'elif [ -d "$d" ] && [ -z "$(ls -A "$d")" ]; then echo absent; else echo foreign; fi'
        )

    def process(self, output: Any) -> str:
        return str(next(iter(output), "foreign"))
