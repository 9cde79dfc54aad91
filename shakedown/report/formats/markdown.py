"""Markdown, for a ticket or a chat: short enough to be read there, everything else is in the run directory."""

from collections.abc import Iterator
from typing import Any

from shakedown.report.formats import Findings, Judged, Run, shows


def _show(document: Any) -> Iterator[str]:
    from shakedown.report.markdown import markdown  # rich, 50 ms: other formats do without it

    yield markdown(document)


for kind in (Findings, Judged, Run):
    shows(kind)(_show)
