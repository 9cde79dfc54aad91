"""The cabling plan of a site: which port of a switch each fabric port of a node is to reach."""

import csv
import io
import os
import stat
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
        with os.fdopen(os.open(Path(value).expanduser(), os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
            found = os.fstat(file.fileno())
            if not stat.S_ISREG(found.st_mode):
                raise ValueError(f"{value}: it is no file")
            text = file.read(_LARGEST + 1)
        if len(text) > _LARGEST:
            raise ValueError(f"{value}: it is no cabling plan; the largest has {_LARGEST} bytes")
        return _parse(value, text)
    except OSError as error:
        raise ValueError(f"{value}: {os.strerror(error.errno or 0)}") from None
    except (RuntimeError, csv.Error, UnicodeDecodeError) as error:  # no such user's home; a cell too long; UTF-16
        raise ValueError(f"{value}: {error}") from None


@lru_cache(maxsize=4)
def _parse(file: str, content: bytes) -> Cabling:
    plan: Cabling = {}
    ends: dict[tuple[str, str], str] = {}
    with io.StringIO(content.decode("utf-8-sig"), newline="") as text:
        rows = csv.DictReader(text, skipinitialspace=True)
        rows.fieldnames = [name.strip().lower() for name in rows.fieldnames or []]
        if missing := [column for column in COLUMNS if column not in rows.fieldnames]:
            lacks = f"the first line lacks the columns {', '.join(missing)}"
            raise ValueError(f"{file}: {lacks}; wanted is {','.join(COLUMNS)}, with commas")
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
