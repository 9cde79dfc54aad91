"""The cabling plan of a site: which port of a switch each fabric port of a node is to reach."""

import csv
import os
from functools import lru_cache
from pathlib import Path

Cabling = dict[str, dict[str, list[str]]]
"""Node -> its port (RDMA device or interface) -> [switch, its port]."""
COLUMNS = ("node", "port", "switch", "switch_port")
_LARGEST = 16 << 20  # bytes of a plan: 10,000 nodes of 8 ports have 4 MB


def read_plan(value: object) -> object:
    """Return the plan in the file that a text names; a plan as it is. Raises ValueError that names file and line."""
    if not isinstance(value, str):
        return value
    try:
        found = (Path(value).expanduser()).stat()
        if found.st_size > _LARGEST:
            raise ValueError(f"{value}: {found.st_size} bytes are no cabling plan; the largest has {_LARGEST}")
        return _parse(value, found.st_mtime_ns)
    except OSError as error:
        raise ValueError(f"{value}: {os.strerror(error.errno or 0)}") from None


@lru_cache(maxsize=4)
def _parse(file: str, _changed: int) -> Cabling:
    plan: Cabling = {}
    ends: dict[tuple[str, str], str] = {}
    with Path(file).expanduser().open(encoding="utf-8-sig", newline="") as text:
        rows = csv.DictReader(text, skipinitialspace=True)
        if missing := [column for column in COLUMNS if column not in (rows.fieldnames or [])]:
            raise ValueError(f"{file}: the first line lacks the columns {', '.join(missing)}")
        for row in rows:
            node, port, switch, switch_port = ((row[column] or "").strip() for column in COLUMNS)
            where, end = f"{file}, line {rows.line_num}", (switch.lower(), switch_port.lower())
            if not (node and port and switch and switch_port):
                raise ValueError(f"{where}: a cell is empty")
            if port in plan.get(node, {}):
                raise ValueError(f"{where}: {node} {port} stands there twice")
            if end in ends:
                raise ValueError(f"{where}: {switch} {switch_port} is the end of {ends[end]} too")
            plan.setdefault(node, {})[port], ends[end] = [switch, switch_port], f"{node} {port}"
    if not plan:
        raise ValueError(f"{file}: no cable")
    return plan
