"""Files of a node that only root, or the user who connects, can have put there."""

import json
from pathlib import Path
from typing import Any

from shakedown.facts.base import Fact
from shakedown.node import safe_files
from shakedown.transport.program import command as command_of
from shakedown.transport.program import program

_NODE = Path(safe_files.__file__).parent


def guarded(path: str, command: str) -> str:
    """Put a look at the folder before a fact's shell text, which goes into it as root. Where another user could have
    put something there, the text ends with a line `error REASON` and runs nothing. Where there is no such folder it
    ends with `kind absent`, since nothing has checked what may be there a moment later."""
    text = program(_NODE / "records.py") + "\nworking_place(sys.argv[1])"
    failed = "{ printf 'error %s\\n' \"$why\" | tail -n 1; exit 0; }"
    absent = "if [ \"$why\" = absent ]; then echo 'kind absent'; exit 0; fi"
    return f"why=$( ({command_of(text, path)}) 2>&1) || {failed}; {absent}; {command}"


class Records(Fact[dict[str, Any]]):
    """
    Returns the records of a folder that root alone can have written; `problem` says why there are none to go by.

    .. code:: python

        {"there": True, "problem": "", "files": {"numa_balancing.json": "{...}"}}
    """

    @staticmethod
    def default() -> dict[str, Any]:
        return {"there": True, "problem": "the node said nothing about its records", "files": {}}

    def command(self, folder: str) -> str:
        return command_of(program(_NODE / "records.py") + "\nshow(sys.argv[1])", folder)

    def process(self, output: Any) -> dict[str, Any]:
        try:
            found = json.loads("".join(output))
        except ValueError:
            return self.default()
        return found if isinstance(found, dict) else self.default()
