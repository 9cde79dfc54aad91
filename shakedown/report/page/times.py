"""Times as the page shows them: those of the site, where the page is written, each with its zone."""

from datetime import datetime, timedelta

from markupsafe import Markup

from shakedown.common.text import printable


def moment(text: str) -> datetime | None:
    """Return a time of a record; None for one that is none, or has no zone to compare it in."""
    try:
        found = datetime.fromisoformat(text)
        return found.astimezone() if found.tzinfo else None
    except (ValueError, OverflowError):
        return None


def local(time: str | datetime) -> Markup:
    """Return a time as an element of the page; a text that is no time as it stands."""
    at = moment(time) if isinstance(time, str) else time.astimezone()
    if at is None:
        return Markup("{}").format(printable(str(time), 100))
    shape = '<time datetime="{}">{}</time>'
    return Markup(shape).format(at.isoformat(timespec="seconds"), f"{at:%Y-%m-%d %H:%M:%S %Z}")


def span(first: str, last: str) -> str:
    """Return the time from one to the other in words; nothing where either is missing."""
    begin, end = moment(first), moment(last)
    return words(end - begin) if begin and end and end >= begin else ""


def words(time: timedelta) -> str:
    """Return a span of time in its two largest units: "9 min 12 s"."""
    minutes, seconds = divmod(round(time.total_seconds()), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    parts = [f"{n} {unit}" for n, unit in ((days, "d"), (hours, "h"), (minutes, "min"), (seconds, "s")) if n]
    return " ".join(parts[:2]) or "0 s"
