"""Tables for a terminal: shakedown/report/tables.py."""

import json
from collections.abc import Iterator

from shakedown.report import formats
from shakedown.report.formats import Desired, shows, shows_by

WIDEST = 60  # characters of a value that the others of its column are moved aside for
KINDS: tuple[type, ...] = (
    *(formats.Findings, formats.Judged, formats.Run, formats.Remembered, formats.Compared),
    *(formats.Calibrated, formats.Reliable, formats.Waivers, formats.InService),
)
shows_by(__name__, "shakedown.report.tables:rendered", *KINDS)


@shows(Desired)
def desired(document: Desired) -> Iterator[str]:
    rows = [(path, json.dumps(value), layer) for path, (value, layer) in document.values.items()]
    widths = [max((len(row[column]) for row in rows), default=0) for column in (0, 1)]
    for path, value, layer in rows:
        yield f"{path:<{widths[0]}}  {value:<{min(widths[1], WIDEST)}}  {layer}"
