"""Tables for a terminal. Those that rich renders: shakedown/report/screen.py, outcomes.py and past.py."""

import json
from collections.abc import Iterator

from shakedown.report.formats import Desired, shows

WIDEST = 60  # characters of a value that the others of its column are moved aside for


@shows(Desired)
def desired(document: Desired) -> Iterator[str]:
    rows = [(path, json.dumps(value), layer) for path, (value, layer) in document.values.items()]
    widths = [max((len(row[column]) for row in rows), default=0) for column in (0, 1)]
    for path, value, layer in rows:
        yield f"{path:<{widths[0]}}  {value:<{min(widths[1], WIDEST)}}  {layer}"
