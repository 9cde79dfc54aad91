"""The command that records what the probe reads of a node."""

from pathlib import Path

import click

from shakedown.cli.words import Target, new_file, over_inventory

PREPARE = ("signals", "gevent")
SECTION = "Operate"


@click.command()
@over_inventory
@click.argument("host")
@new_file("the capture; otherwise capture-DIGEST.json.gz")
def capture(target: Target, host: str, output: Path | None) -> None:
    """Record what the probe reads of one HOST, raw and without names, into one file that can be sent: files, devices,
    the kernel's log, answers of libraries. Never changes the node.

    Names, addresses, GUIDs, serials and users become pseudonyms, equal ones for equal values; secrets are masked. What
    they stand for is kept beside the file: keep it. `shakedown drift FILE` shows the same findings from the file, on
    any machine; nothing is written where the capture does not.

    \b
    shakedown capture inventories/rack.py node07
    shakedown drift capture-5f1c9a02.json.gz --all
    """
    if target.limit:
        raise click.UsageError("--limit: the argument HOST says which")
    from shakedown.cli.captures import record  # pyinfra: see cli/nodes.py

    record(target, host, output)
