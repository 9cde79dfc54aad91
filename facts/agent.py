"""The last verdict of a node's agent."""

from pathlib import Path
from typing import Any

from pyinfra.api.command import StringCommand
from pyinfra.api.exceptions import FactProcessError
from pyinfra.api.host import Host

from shakedown import node
from shakedown.facts.node import connector_arguments, parse
from shakedown.node.agent.run import FOLDER
from shakedown.transport.program import command, program

SECONDS = 60
_RECORDS = Path(node.__file__).with_name("records.py")


def read_last(host: Host) -> dict[str, Any]:
    """Read the answer of `shakedown/node/records.py`: one command, with the host's own connector arguments. Raise
    FactProcessError, or what the connection raises."""
    text = f"{program(_RECORDS)}\nshow_verdict(sys.argv[1])"
    connector = {**connector_arguments(host), "_timeout": SECONDS}
    status, output = host.run_shell_command(StringCommand(command(text, FOLDER)), **connector)
    if not status:
        raise FactProcessError(f"the last verdict was not read: {(output.stderr or output.stdout)[-300:].strip()}")
    return parse(output.stdout_lines)
