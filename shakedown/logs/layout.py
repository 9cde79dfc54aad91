"""How the iteration lines of one program look: the names and order of their fields, learned from a line that was read.

A program prints the same fields in the same order on every line. One expression then reads all of them at once, three
times as fast as field by field. It matches nothing that would be read in another way field by field: what has any other
form is read so.
"""

import re

from shakedown.logs.fields import HEADED, MAX_FIELD, MAX_FIELDS, VALUES, Field, split_field

_BLANKS = r"[ \t]{0,40}+"


def _bounded(pattern: str) -> str:
    """Bound the expression of a value: short values only, without backtracking."""
    for anywhere, here in ((r"\d+", r"\d{1,18}+"), (r"\d*", r"\d{0,18}+"), (r"\s*", r"\s{0,9}+")):
        pattern = pattern.replace(anywhere, here)
    return pattern


_ANYTHING = rf"(?:(?!{HEADED})[^|\n]){{0,{MAX_FIELD}}}+"  # of a field that is none of ours: but no other line
_VALUES = {name: _bounded(value.pattern) for name, value in VALUES.items()}


class Layout:
    """The fields behind the header of a line."""

    def __init__(self, fields: list[tuple[str, Field | None]], closed: bool) -> None:
        """Each field's name as it is written. `closed`: the last one, too, is closed with `|`."""
        known = [field for _, field in fields if field]
        best = {field.target: field for field in sorted(known, key=lambda field: -field.preference)}
        self._read = [(group, field) for group, field in enumerate(known) if best[field.target] is field]
        parts = (
            f"{re.escape(name)}:{_BLANKS}{_VALUES[field.value] if field else _ANYTHING}{_BLANKS}"
            for name, field in fields
        )
        self._body = re.compile(r"\|".join(parts) + (rf"\|{_BLANKS}" if closed else "") + r"\n")

    def values(self, body: str) -> dict[str, float] | None:
        """Return the values by target; None for a line of another form."""
        match = self._body.fullmatch(body)
        if match is None or max(map(len, body.split("|"))) > MAX_FIELD:
            return None
        groups = match.groups()
        return {field.target: field.read(groups[at]) for at, field in self._read}


def layout(body: str) -> Layout | None:
    """Learn the layout of a line that was read whole; None where its fields are not of one plain form."""
    *closed, tail = body.split("|", MAX_FIELDS)
    segments = closed if not tail.strip() else [*closed, tail]
    fields = []
    for segment in segments:
        name, colon, _ = segment.partition(":")
        fields.append((name, split_field(segment)[1]))
        if not colon:
            return None
    found = Layout(fields, closed=segments is closed) if fields else None
    return found if found and found.values(body) is not None else None
