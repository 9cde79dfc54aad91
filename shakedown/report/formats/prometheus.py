"""Prometheus' text format, for node_exporter's textfile collector. Names, units and labels: docs/reports.md."""

from shakedown.report.formats import Findings, Judged, Run, shows_by

shows_by(__name__, "shakedown.report.prometheus:metrics", Findings, Judged, Run)
