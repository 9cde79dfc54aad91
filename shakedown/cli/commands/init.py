"""The command that starts a site: init."""

import os
import shlex
from pathlib import Path

import click

from shakedown.cli.words import reason, unusable
from shakedown.common.text import printable
from shakedown.runner.pyinfra.site_files import SiteError, lay_out, site_files

SECTION = "Prepare"


@click.command()
@click.argument("folder", type=click.Path(path_type=Path), required=False)
@click.option(
    "--from",
    "source",
    type=click.Path(dir_okay=False, path_type=Path),
    help="an inventory of Ansible (INI or YAML): its hosts, groups and values as an inventory of the site; without "
    "FOLDER, as a file here",
)
def init(folder: Path | None, source: Path | None) -> None:
    """Lay out a site in FOLDER: inventories, group data and deploy files, as pyinfra looks for them.

    It runs as it stands, on this machine. No file that is there is overwritten: all that are in the way are listed,
    and nothing is written.

    \b
    shakedown init racks
    shakedown init racks --from hosts.yml
    """
    if folder is None and source is None:
        raise click.UsageError("init takes a FOLDER, or --from FILE")
    try:
        contents = {} if folder is None else {name: path.read_bytes() for name, path in site_files().items()}
        made, left_out = "inventories/local.py" if folder else "", list[str]()
        if source is not None:
            from shakedown.runner.pyinfra.from_ansible import translate  # 60 ms that another site does not need

            made = f"{'inventories/' if folder else ''}{source.stem}.py"
            text, left_out = translate(source)
            os.umask(~source.stat().st_mode & 0o066)  # it has the passwords that the source has
            contents[made] = text.encode()
        written = lay_out(folder or Path(), contents)
    except SiteError as error:
        unusable(f"nothing was written: remove these, or name another folder\n{error}")
    except OSError as error:
        unusable(reason(str(error.filename or folder or "."), error))
    except ValueError as error:
        unusable(error)
    for path in written:
        click.echo(printable(str(path)))
    for line in left_out:
        click.echo(f"left out: {printable(line)}", err=True)
    made = printable(shlex.quote(made))
    there = f"cd {shlex.quote(str(folder))} && " if folder else ""
    if source is None:
        click.echo(f"\nto try it: {there}pyinfra {made} deploy/megatron.py -y")
    else:
        click.echo(f"\nadd the profiles of each group to {made}; then: {there}shakedown drift {made}")
