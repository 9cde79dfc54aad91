"""One page that needs nothing beside it: shakedown/report/page."""

from collections.abc import Callable, Iterator
from typing import Any

from shakedown.report.formats import Findings, Judged, Remembered, Run, shows


def pages() -> tuple[Callable[[Any], str], Callable[[Run], str]]:
    """Return what renders a document's page, and a run's acceptance report."""
    from shakedown.report.page import acceptance, render  # jinja2 and rich, 100 ms: other formats do without them

    return render.page_of, acceptance.page_of


def _show(document: Any) -> Iterator[str]:
    yield pages()[0](document)


for kind in (Findings, Judged, Run, Remembered):
    shows(kind)(_show)
