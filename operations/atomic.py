"""Scripts under a node's own Python, and the files that this project keeps there by one of them: written whole or not
at all, marked with a header, foreign lines kept; with a record of what stood there before the first change.

All of them go through assets/files.py on the node, which follows no link and writes nothing where another user than
root, or the one who connects, could redirect it.
"""

import base64
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click
from pyinfra.api import FunctionCommand, Host, State, StringCommand
from pyinfra.api.arguments import CONNECTOR_ARGUMENT_KEYS
from pyinfra.connectors.util import CommandOutput

from shakedown import node
from shakedown.common.text import file_name, printable
from shakedown.facts.node import connector_arguments
from shakedown.operations.commands import refused
from shakedown.transport.program import command as command_of
from shakedown.transport.program import program

TELLS = "shakedown_tells"  # of a host's connector_data: what it prints now tells how an operation goes
ASSETS = Path(node.__file__).parent / "assets"


def run_script(
    host: Host, script: str, document: dict[str, Any], show: bool, limit_s: float | None = None
) -> tuple[bool, CommandOutput]:
    """Run a script of shakedown/node/assets under the node's Python, with the document on its standard input: no secret
    of it stands in argv. `show`: what it says tells how it goes. `limit_s`: what it may take, where that is more than
    any other command's. It runs as `connector` says."""
    if show:
        host.connector_data[TELLS] = True
    command = StringCommand(command_of(program(ASSETS / script)))
    how = connector(host) | {"_stdin": json.dumps(document), "_timeout": limit_s}
    try:
        return host.run_shell_command(command, print_output=show, print_input=False, **how)
    finally:
        if show:
            host.connector_data[TELLS] = False


def connector(host: Host) -> dict[str, Any]:
    """Return how an operation was asked to run commands, _sudo and its like; outside of one, the host's own way."""
    arguments: dict[str, Any] = dict(host.current_op_global_arguments or connector_arguments(host))
    return {key: value for key, value in arguments.items() if key in CONNECTOR_ARGUMENT_KEYS}


HEADER = "# Written by shakedown. Changes are lost; `pyinfra INVENTORY deploy/rollback.py` removes this file."
MARK = "# Written by shakedown"


def body(lines: Iterable[str] | None) -> list[str]:
    """Return the lines of a file without our header and without empty ones."""
    return [line for line in lines or () if line.strip() and not line.startswith(MARK)]


def write(path: str, lines: Iterable[str], mode: str = "0644") -> FunctionCommand:
    """Write a file beside its place and move it there, so that a full disk or a cut connection leaves the old one."""
    return command("write", path=path, lines=list(lines), mode=mode)


def remove(*paths: str, marked: bool = False) -> FunctionCommand:
    """Remove files; with `marked` those alone that carry our header then."""
    return command("remove", paths=list(paths), marked=MARK if marked else None)


def safe(path: str) -> FunctionCommand:
    """Refuse a folder in which another user could redirect what is done there."""
    return command("folder", path=path)


def command(do: str, **rest: Any) -> FunctionCommand:
    """Return a command for assets/files.py."""
    return FunctionCommand(on_node, ({"do": do, **rest},), {})


def on_node(state: State, host: Host, document: dict[str, Any]) -> bool:
    """Do it, and fail the host with the script's words where it is not done."""
    if state.print_input:
        named = (str(document[key]) for key in ("path", "folder", "home") if key in document)
        what = next(named, " ".join(document.get("paths", [])))
        click.echo(f"{host.print_prefix}>>> {document['do']} {what}", err=True)
    done, output = run_script(host, "files.py", document, show=False)
    return done or refused(state, host, last_words(output))


def last_words(output: CommandOutput) -> str:
    """Return what a script said on standard error, as it may be shown."""
    return printable(" ".join(output.stderr_lines)[-1000:]) or "the script printed nothing"


def placed(state: State, host: Host, source: str, path: str) -> bool:
    """Put a file of the controller in its place: its content travels on standard input, past no temporary file."""
    content = base64.b64encode(Path(source).read_bytes()).decode()
    return on_node(state, host, {"do": "write", "path": path, "content": content, "mode": "0644"})


FOLDER = "/var/lib/shakedown/before"


@dataclass(frozen=True)
class Step:
    """One thing that rollback does. `kind` says how (UNDO in operations/rollback.py), `target` to what."""

    kind: str
    target: str
    value: str = ""


def remember(setting: str, steps: list[Step], once: bool = True) -> FunctionCommand:
    """Keep what stood there; with `once`, unless an earlier change of the setting has done so. Needs root."""
    text = json.dumps({"setting": setting, "restore": [asdict(step) for step in steps]}, sort_keys=True)
    path, root = f"{FOLDER}/{file_name(setting)}.json", f"changing {setting} needs root: use _sudo=True"
    return command("write", path=path, lines=[text], mode="0600", folder_mode="0700", once=once, root=root)
