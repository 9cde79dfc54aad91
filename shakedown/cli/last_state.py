"""What the newest run or check that has read a node knows of it."""

import shlex
from typing import Any

import click

from shakedown.cli.words import unusable, usable
from shakedown.common.runs_folder import runs_folder
from shakedown.common.text import file_name
from shakedown.desired.layers import leaves
from shakedown.report import screen, terminal
from shakedown.report.formats import Desired, Findings, write
from shakedown.runs.directory import RunDirectory
from shakedown.runs.folder import run_ids
from shakedown.state.findings import worst


def show_state(host: str, form: str, inventory: str) -> None:
    """Show what the newest run or check that has read the node knows of it."""
    directories = [RunDirectory(runs_folder() / run) for run in run_ids()]
    directory = next((one for one in directories if (one.path / f"states/{file_name(host)}.json").is_file()), None)
    if directory is None:
        unusable(f"no run or check has read {host}: {shlex.join(['shakedown', 'drift', inventory, '--limit', host])}")
    with usable():
        record, state = directory.load(), directory.load_state(host)
    click.echo(f"{host}, as {directory.path} has it, {record.finished_at or record.started_at}", err=True)
    values = _numbered(state.model_dump(mode="json", exclude_none=True))
    layer = "" if form == "table" else record.run_id
    write(Desired(host, {path: (value, layer) for path, value in leaves(values)}), form)
    own = [finding for finding in record.findings if finding.node == host]
    out = terminal.console(stderr=True)
    verdict, columns = worst([finding.verdict for finding in own]), screen.columns(out)
    shown = Findings(verdict, 1, own, inventory=inventory, evidence=True, columns=columns, advises=False)
    for line in screen.table(shown):
        out.print(line, soft_wrap=True)


def _numbered(value: Any) -> Any:
    """Return a document in which a list of objects is an object by their numbers, so that each value has a path."""
    if isinstance(value, dict):
        return {key: _numbered(item) for key, item in value.items()}
    if isinstance(value, list) and any(isinstance(item, dict) for item in value):
        return {str(number): _numbered(item) for number, item in enumerate(value)}
    return value
