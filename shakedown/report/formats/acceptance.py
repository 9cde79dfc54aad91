"""The page that a supplier and a buyer sign: shakedown/report/page/acceptance.py."""

from shakedown.report.formats import Run, shows_by

shows_by(__name__, "shakedown.report.page.acceptance:page_of", Run)
