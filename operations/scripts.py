"""Scripts that run under a node's own Python."""

import json
from pathlib import Path
from typing import Any

from pyinfra.api.arguments import CONNECTOR_ARGUMENT_KEYS
from pyinfra.api.command import StringCommand
from pyinfra.api.host import Host
from pyinfra.connectors.util import CommandOutput

from shakedown import node
from shakedown.facts.node import connector_arguments
from shakedown.transport.program import command, program

TELLS = "shakedown_tells"  # of a host's connector_data: what it prints now tells how an operation goes
ASSETS = Path(node.__file__).parent / "assets"


def run_script(
    host: Host,
    script: str,
    document: dict[str, Any],
    show: bool,
    limit_s: float | None = None,
) -> tuple[bool, CommandOutput]:
    """Run a script of shakedown/node/assets under the node's Python, with the document on its standard input: no secret
    of it stands in argv. `show`: what it says tells how it goes. `limit_s`: what it may take, where that is more than
    any other command's. Inside an operation's command it takes the user and sudo of that, elsewhere
    the host's own."""
    arguments: dict[str, Any] = dict(host.current_op_global_arguments or connector_arguments(host))
    connector = {key: value for key, value in arguments.items() if key in CONNECTOR_ARGUMENT_KEYS}
    if show:
        host.connector_data[TELLS] = True
    try:
        return host.run_shell_command(
            StringCommand(command(program(ASSETS / script))),
            print_output=show,
            print_input=False,
            **{**connector, "_stdin": json.dumps(document), "_timeout": limit_s},
        )
    finally:
        if show:
            host.connector_data[TELLS] = False
