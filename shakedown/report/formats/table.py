"""Tables for a terminal: shakedown/report/tables.py."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from shakedown.report import formats
from shakedown.report.formats import Desired, shows

if TYPE_CHECKING:
    from rich.console import RenderableType

WIDEST = 60  # characters of a value that the others of its column are moved aside for


def _show(document: Any) -> Iterator[RenderableType]:
    from shakedown.report.tables import rendered  # rich, 50 ms: other formats do without it

    yield from rendered(document)


KINDS: tuple[type, ...] = (
    *(formats.Findings, formats.Judged, formats.Run, formats.Remembered, formats.Compared),
    *(formats.Calibrated, formats.Reliable, formats.Waivers, formats.InService),
)
for kind in KINDS:
    shows(kind)(_show)


@shows(Desired)
def desired(document: Desired) -> Iterator[str]:
    rows = [(path, json.dumps(value), layer) for path, (value, layer) in document.values.items()]
    widths = [max((len(row[column]) for row in rows), default=0) for column in (0, 1)]
    for path, value, layer in rows:
        yield f"{path:<{widths[0]}}  {value:<{min(widths[1], WIDEST)}}  {layer}"
