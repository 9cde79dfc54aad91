"""Tables for a terminal. Those that rich renders: shakedown/report/screen.py, outcomes.py and past.py."""

import json
from collections.abc import Iterator

from shakedown.common.text import columns, wrapped
from shakedown.report.formats import Desired, shows

LEAST = 24  # columns of a value that stands beside its path


@shows(Desired)
def desired(document: Desired) -> Iterator[str]:
    rows = [(path, json.dumps(value), layer) for path, (value, layer) in document.values.items()]
    first, widest, last = (max((len(row[column]) for row in rows), default=0) for column in (0, 1, 2))
    room = min(widest, columns() - first - last - 4)
    for path, value, layer in rows:
        if len(value) > room and (room < LEAST or max(map(len, value.split(" "))) > room):
            yield f"{path}  {layer}".rstrip()
            yield from (f"    {line}" for line in wrapped(value, columns() - 4, ""))
            continue
        begin, *others = wrapped(value, room, "")
        yield f"{path:<{first}}  {begin:<{room}}  {layer}".rstrip()
        yield from (f"{'':<{first}}  {other}" for other in others)
