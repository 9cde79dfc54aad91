"""What several commands say: the exit codes, and refusals."""

import sys
from pathlib import Path
from typing import NoReturn

import click

from shakedown.common.text import printable

EXIT_CODES = """
\b
Exit codes:
  0  every node in its desired state, every gate passed
  1  failed: a node unreachable, a check or a gate failed
  2  usage, or input that cannot be used
  3  drift
  4  unknown: something could not be read
  130  Ctrl-C, SIGTERM or SIGHUP
The worst wins: 1, then 4, then 3.
"""


def unusable(message: object) -> NoReturn:
    """End with 2: the input cannot be used, and nothing was done."""
    click.echo(f"shakedown: {printable(str(message), lines=True)}", err=True)
    sys.exit(2)


def reason(name: str, error: OSError | ValueError) -> str:
    """Return why a file could not be used, with its name where the error does not have it."""
    return f"{name}: {error.strerror}" if isinstance(error, OSError) else str(error)


def in_a_folder(_context: click.Context, _parameter: click.Parameter, path: Path | None) -> Path | None:
    """Refuse the file that an option names where its folder does not exist."""
    if path is not None and not path.absolute().parent.is_dir():
        raise click.BadParameter(f"there is no folder {path.absolute().parent}")
    return path
