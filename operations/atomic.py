"""Files that this project keeps on a node: written whole or not at all, marked with a header, foreign lines kept.

All of them go through assets/files.py on the node, which follows no link and writes nothing where another user than
root, or the one who connects, could redirect it.
"""

import base64
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click
from pyinfra.api.command import FunctionCommand
from pyinfra.api.host import Host
from pyinfra.api.state import State

from shakedown.common.text import printable
from shakedown.operations.commands import refused
from shakedown.operations.scripts import run_script

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


def keep(path: str, kept: str) -> FunctionCommand:
    """Keep what stands at a path, a link as a link, unless something is kept there already."""
    return command("keep", path=path, kept=kept)


def safe(path: str) -> FunctionCommand:
    """Refuse a folder in which another user could redirect what is done there."""
    return command("folder", path=path)


def place(source: str, path: str, mode: str = "0644") -> FunctionCommand:
    """Put a file of the controller in its place."""
    return FunctionCommand(placed, (source, path, mode), {})


def command(do: str, **rest: Any) -> FunctionCommand:
    """Return a command for assets/files.py."""
    return FunctionCommand(on_node, ({"do": do, **rest},), {})


def on_node(state: State, host: Host, document: dict[str, Any]) -> bool:
    """Do it, and fail the host with the script's words where it is not done."""
    if state.print_input:
        what = document.get("path") or document.get("folder") or " ".join(document.get("paths", []))
        click.echo(f"{host.print_prefix}>>> {document['do']} {what}", err=True)
    done, output = run_script(host, "files.py", document, show=False)
    message = printable(" ".join(output.stderr_lines)[-1000:]) or "the script printed nothing"
    return done or refused(state, host, message)


def placed(state: State, host: Host, source: str, path: str, mode: str) -> bool:
    """Put a file of the controller in its place: its content travels on standard input, past no temporary file."""
    content = base64.b64encode(Path(source).read_bytes()).decode()
    return on_node(state, host, {"do": "place", "path": path, "content": content, "mode": mode})
