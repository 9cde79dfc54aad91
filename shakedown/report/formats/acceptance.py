"""The page that a supplier and a buyer sign: shakedown/report/page/acceptance.py."""

from collections.abc import Iterator

from shakedown.report.formats import Run, shows
from shakedown.report.formats.html import pages


@shows(Run)
def run(document: Run) -> Iterator[str]:
    """Show a run as an acceptance report."""
    yield pages()[1](document)
