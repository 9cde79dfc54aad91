"""Where the ledger is: a file beside the runs, another file, or a PostgreSQL database."""

import os
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

from shakedown.common.runs_folder import runs_folder
from shakedown.common.secret_file import SecretError, read_secret
from shakedown.common.text import printable

VARIABLE = "SHAKEDOWN_LEDGER"
FILE = "ledger.sqlite"
_MAGIC = b"SQLite format 3\0"
_EXPECTED = "expected the path of a file, or postgresql://USER@HOST/DATABASE"


class LedgerError(ValueError):
    """The ledger cannot be read or written; says which and why, and never a password."""


@dataclass(frozen=True)
class Place:
    """A ledger's URL, and how it is called before people."""

    url: URL
    name: str
    path: Path | None = None  # of SQLite

    def plain(self, text: str) -> str:
        """Return what somebody said of it, as it may be shown: one line, without the password."""
        if self.url.password:
            text = text.replace(str(self.url.password), "***")
        return printable(" ".join(text.split()), 300)


def place_of(given: str | Path | None = None) -> Place:
    """Return the ledger that is meant: `given`, else $SHAKEDOWN_LEDGER, else ledger.sqlite in the folder of the runs.

    Either is a path, or a URL of PostgreSQL. A path of a file that is no database names one that holds the URL, for its
    owner alone. Raises LedgerError.
    """
    chosen = given or os.environ.get(VARIABLE) or runs_folder() / FILE
    if isinstance(chosen, Path) or "://" not in chosen:
        path = Path(chosen).expanduser()
        if not _is_text(path):
            return Place(URL.create("sqlite", database=str(path)), str(path), path)
        try:
            chosen = read_secret(path)
        except SecretError as error:
            raise LedgerError(f"ledger: {error}") from None
    return _by_url(chosen)


def _is_text(path: Path) -> bool:
    """Whether the file is none of SQLite's. One that is missing, or empty, becomes a database; one that cannot be read
    says so when it is opened."""
    try:
        with path.open("rb") as file:
            begin = file.read(len(_MAGIC))
    except OSError:
        return False
    return begin not in (b"", _MAGIC) and b"://" in begin


def _by_url(text: str) -> Place:
    try:
        url = make_url(text)
    except (ArgumentError, ValueError):  # whose words hold the URL, and maybe a password
        raise LedgerError(f"ledger: no usable URL: {_EXPECTED}") from None
    name = url.get_backend_name()
    if name == "sqlite" and url.database:
        return place_of(Path(url.database))
    if name not in ("postgresql", "postgres"):
        raise LedgerError(f"ledger: {printable(name, 40)}: no such database is known: {_EXPECTED}")
    hidden = [key for key in url.query if "password" in key.lower()]
    if hidden:
        raise LedgerError(f"ledger: {', '.join(hidden)} in the URL: the password's place is $PGPASSWORD or ~/.pgpass")
    url = url.set(drivername="postgresql+psycopg")
    return Place(url, url.set(drivername="postgresql").render_as_string(hide_password=True))
