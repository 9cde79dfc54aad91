"""The command that starts a site: init."""

import shlex
import sys
from pathlib import Path

import click

from shakedown.runner.pyinfra.site_files import SiteError, lay_out


@click.command()
@click.argument("folder", type=click.Path(path_type=Path))
def init(folder: Path) -> None:
    """Lay out a site in FOLDER: inventories, group data and deploy files, as pyinfra looks for them.

    It runs as it stands, on this machine. No file that is there is overwritten: all that are in the way are listed,
    and nothing is written.

    \b
    shakedown init racks
    """
    try:
        written = lay_out(folder)
    except SiteError as error:
        click.echo(f"shakedown: nothing was written: remove these, or name another folder\n{error}", err=True)
        sys.exit(2)
    except OSError as error:
        click.echo(f"shakedown: {error.filename or folder}: {error.strerror or error}", err=True)
        sys.exit(2)
    for path in written:
        click.echo(path)
    click.echo(f"\nto try it: cd {shlex.quote(str(folder))} && pyinfra inventories/local.py deploy/megatron.py -y")
