"""One page that needs nothing beside it: shakedown/report/page."""

from shakedown.report.formats import Findings, Judged, Remembered, Run, shows_by

shows_by(__name__, "shakedown.report.page.render:page_of", Findings, Judged, Run, Remembered)
