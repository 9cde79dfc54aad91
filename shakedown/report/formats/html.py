"""One page that needs nothing beside it: shakedown/report/page."""

from collections.abc import Iterator

from shakedown.report.formats import Findings, Judged, Remembered, Run, shows


def _show(document: Findings | Judged | Run | Remembered) -> Iterator[str]:
    from shakedown.report.page.render import page_of  # jinja2 and rich, 100 ms: other formats do without them

    yield page_of(document)


shows(Findings)(_show)
shows(Judged)(_show)
shows(Run)(_show)
shows(Remembered)(_show)
