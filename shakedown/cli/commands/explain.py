"""What the lines of a kernel's log or a job's log mean, offline."""

import json
import sys
from contextlib import suppress

import click

from shakedown.cli.words import reason, unusable
from shakedown.common.text import complaint, printable
from shakedown.gates.explain import as_json, as_text
from shakedown.gates.explain import explain as explain_log
from shakedown.logs.source import LogSource

_EMPTY = (
    "holds no line: nothing to explain. Where kernel.dmesg_restrict is 1, dmesg needs root: "
    "sudo dmesg | shakedown explain -"
)


@click.command()
@click.argument("log", metavar="[FILE|-]", default="-")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", help="text, or a JSON document")
@click.option("-v", "--verbose", is_flag=True, help="show the harmless lines that the catalogue knows, too")
def explain(log: str, form: str, verbose: bool) -> None:
    """Say what the lines of a kernel's log or a job's log mean: part, severity, cause, what to do.

    FILE is what dmesg, journalctl -k or /dev/kmsg wrote, a syslog file, or the log of a job; plain, gzip or bzip2. With
    - or nothing, standard input is read. No inventory is needed. Error lines that the catalogue does not know come
    last: by their priority where the log has one (dmesg -x, journalctl -o json), otherwise by an error word.

    \b
    dmesg -x | shakedown explain
    journalctl -k -b -1 -o json | shakedown explain --format json
    shakedown explain train.log

    \b
    Severities:
      fatal      the kernel, a device or data is lost: take the node out
      error      a fault of the node or a part, also if the driver recovered
      user       a program is at fault, not the node
      corrected  hardware corrected it, or a limit slows the node: watch it
      noise      harmless (-v)

    \b
    Exit codes:
      0  no fault
      1  a line is fatal or an error; of a job's log: judge fails it
      2  input that cannot be used, or that is empty
      4  unknown error lines or end, and no fault; or a part could not be read
    """
    if log == "-" and sys.stdin.isatty():
        unusable("give a FILE, or pipe a log in: dmesg | shakedown explain -")
    source = LogSource(log, digest=False)
    try:
        found = explain_log(source, noise=verbose)
    except (OSError, ValueError) as error:
        unusable(reason(log, error))
    if not found.read:
        unusable(source.incomplete or f"{source.name} {_EMPTY}")
    with suppress(BrokenPipeError):
        click.echo(json.dumps(as_json(found), indent=1) if form == "json" else as_text(found))
    if source.incomplete:
        click.echo(complaint(printable(source.incomplete)), err=True)
    sys.exit(found.exit_code or (4 if source.incomplete else 0))
