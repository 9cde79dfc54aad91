"""Files of a node that only root, or the user who connects, can have put there."""

import json
from pathlib import Path
from typing import Any

from pyinfra.api import FactProcessError, Host, StringCommand

from shakedown.facts.base import Fact
from shakedown.facts.node import connector_arguments, parse
from shakedown.node import records
from shakedown.node.agent.run import FOLDER
from shakedown.transport.program import command as command_of
from shakedown.transport.program import program

SECONDS = 60


def guarded(path: str, command: str) -> str:
    """Put a look at the folder before a fact's shell text, which goes into it as root. Where another user could have
    put something there, the text ends with a line `error REASON` and runs nothing. Where there is no such folder it
    ends with `kind absent`, since nothing has checked what may be there a moment later."""
    failed = "{ printf 'error %s\\n' \"$why\" | tail -n 1; exit 0; }"
    absent = "if [ \"$why\" = absent ]; then echo 'kind absent'; exit 0; fi"
    return f"why=$( ({_command('working_place', path)}) 2>&1) || {failed}; {absent}; {command}"


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
        return _command("show", folder)

    def process(self, output: Any) -> dict[str, Any]:
        found = json.loads("".join(output))
        return {key: found[key] for key in self.default()} | {"files": {**found["files"]}}


def read_verdict(host: Host) -> dict[str, Any]:
    """Read the last verdict of a node's agent. Raise FactProcessError, or what the connection raises."""
    connector = {**connector_arguments(host), "_timeout": SECONDS}
    status, output = host.run_shell_command(StringCommand(_command("show_verdict", FOLDER)), **connector)
    if not status:
        raise FactProcessError(f"the last verdict was not read: {(output.stderr or output.stdout)[-300:].strip()}")
    return parse(output.stdout_lines)


def _command(function: str, path: str) -> str:
    """Return the command that calls a function of `shakedown/node/records.py` on a node."""
    return command_of(f"{program(Path(records.__file__))}\n{function}(sys.argv[1])", path)
