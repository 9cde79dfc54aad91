"""Markdown, for a ticket or a chat: short enough to be read there, everything else is in the run directory."""

from shakedown.report.formats import Findings, Judged, Run, shows_by

shows_by(__name__, "shakedown.report.markdown:markdown", Findings, Judged, Run)
