"""What comes from nodes, logs and sites, as one line of bounded length that any database takes."""

import re

from shakedown.common.text import printable

VERDICT = 10
NAME = 255  # of a node, a job, a serial number
TEXT = 500  # of what a person reads
DIGEST = 64


def line(value: object, limit: int = TEXT) -> str:
    """Anything as one line that a database takes and a terminal shows."""
    text = " ".join(printable(str(value), 4 * limit).split())
    return printable(text.encode("utf-8", "replace").decode(), limit)


def plain(serial: str) -> str:
    """Return a number without what tools write into it differently: case, colons, 0x and zeros in front."""
    return re.sub("^0x|[-: ]", "", serial.strip().lower()).lstrip("0")


def name(value: object) -> str:
    """Return a name, by which things are also looked for."""
    return line(value, NAME)
