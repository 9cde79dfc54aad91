"""Prometheus' text format, for node_exporter's textfile collector. Names, units and labels: docs/reports.md."""

from collections.abc import Iterator
from typing import Any

from shakedown.report.formats import Findings, Judged, Run, shows


def _show(document: Any) -> Iterator[str]:
    from shakedown.report.prometheus import metrics  # prometheus_client, 60 ms: other formats do without it

    yield metrics(document)


for kind in (Findings, Judged, Run):
    shows(kind)(_show)
