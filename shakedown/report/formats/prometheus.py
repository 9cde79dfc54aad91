"""Prometheus' text format, for node_exporter's textfile collector. Names, units and labels: docs/reports.md."""

from collections.abc import Iterator

from shakedown.report.formats import Findings, Judged, Run, shows


def _show(document: Findings | Judged | Run) -> Iterator[str]:
    from shakedown.report.prometheus import metrics  # prometheus_client, 60 ms: other formats do without it

    yield metrics(document)


shows(Findings)(_show)
shows(Judged)(_show)
shows(Run)(_show)
