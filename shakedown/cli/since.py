"""The value of --since."""

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import click

_AGO = re.compile(r"(\d{1,5})([mhdw])")
_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


class Since(click.ParamType[datetime]):
    """A day, a time, or how long ago."""

    name = "time"

    def convert(self, value: Any, param: Any, ctx: Any) -> datetime:
        """Return the time; what has no zone is UTC."""
        if isinstance(value, datetime):
            return value
        if ago := _AGO.fullmatch(str(value)):
            return datetime.now(UTC) - timedelta(**{_UNITS[ago[2]]: int(ago[1])})
        try:
            at = datetime.fromisoformat(str(value))
        except ValueError:
            self.fail(f"{value!r} is neither 2026-11-22 or 2026-11-22T06:00 (UTC) nor 12h, 7d or 4w ago", param, ctx)
        return at if at.tzinfo else at.replace(tzinfo=UTC)
