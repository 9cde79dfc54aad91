"""The command that packs a run."""

import json
from pathlib import Path

import click

from shakedown.cli.words import new_file, reason, unusable
from shakedown.common import private
from shakedown.common.text import complaint, counted, printable
from shakedown.runs.archive import SUFFIX
from shakedown.runs.archive.make import make
from shakedown.runs.directory import RunDirectory
from shakedown.runs.folder import find_run
from shakedown.runs.signing.envelope import private_key
from shakedown.runs.signing.statement import BESIDE
from shakedown.runs.signing.verify import make_signed
from shakedown.runs.watch.notes import unfinished

SECTION = "Operate"


@click.command()
@click.argument("run")
@new_file(f"the archive; otherwise RUN{SUFFIX}")
@click.option(
    "--pseudonyms",
    is_flag=True,
    help="replace names of nodes and users, addresses, GUIDs and serials, each by the same word everywhere; what they "
    "stand for is kept beside the archive",
)
@click.option("--key", metavar="FILE", help="site's private key: sign the archive of a signed run (docs/evidence.md)")
def bundle(run: str, output: Path | None, pseudonyms: bool, key: str | None) -> None:
    """Pack a run into one file that can be sent: findings, plan, logs, states, telemetry, versions, and a manifest with
    the SHA-256 of each.

    Secrets are masked always, in logs too. `shakedown judge FILE` and `shakedown report FILE` read it; compare the
    digest that is printed here with the one that they print.

    \b
    shakedown bundle latest
    shakedown bundle 20261122T014456 --pseudonyms --output for-vendor.tar.gz
    """
    try:
        directory = RunDirectory(find_run(run))
        record = directory.load()
        target = output or Path(f"{record.run_id}{SUFFIX}")
        home = target.with_name(f"{target.name}.names.json")
        for there in (target, home) if pseudonyms else (target,):
            if there.exists():
                raise FileExistsError(17, "it is there already", str(there))
        if key is None:
            made = make(directory, target, pseudonyms)
        else:
            made = make_signed(directory, target, pseudonyms, private_key(key))
        if pseudonyms:
            with private.create(home) as file:
                file.write(json.dumps(made.names, indent=1).encode() + b"\n")
    except FileExistsError as error:
        unusable(f"{error.filename}: it is there already, and nothing is overwritten: give another --output")
    except OSError as error:
        unusable(reason(str(error.filename or run), error))
    except ValueError as error:
        unusable(str(error))
    if record.finished_at is None:
        click.echo(complaint(printable(unfinished(directory.path))), err=True)
    if why := directory.lacking(record):
        click.echo(complaint(why), err=True)
    size = made.path.stat().st_size
    click.echo(f"{printable(str(made.path))}: {counted(len(made.manifest.members), 'file')}, {size} bytes")
    click.echo(f"verdict: {made.manifest.verdict}")
    click.echo(f"manifest: sha256 {made.digest}")
    click.echo(f"secrets: masked in {counted(made.manifest.masked, 'place')}")
    if pseudonyms:
        meanings = f"what they stand for: {printable(str(home))} (keep it)"
        click.echo(f"names: {counted(len(made.names), 'pseudonym')}; {meanings}")
        if made.spared:
            why = "too short, or words that logs have too, so they stay where they stand alone in a text"
            click.echo(f"{why}: {printable(', '.join(made.spared), 500)}")
    if key:
        click.echo(f"statement: {printable(f'{target}{BESIDE}')}: send it with the archive")
    for name in made.manifest.left_out:
        click.echo(f"left out, since it can be made again: {printable(name)}")
