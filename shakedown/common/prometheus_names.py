"""Names, labels and units of the metrics, for the controller's text format and for the agent on a node.

Every metric has the labels of COMMON: files of two inventories, and of a check and a run, share a folder of
node_exporter, which keeps one of two equal series and drops the other without an error.
"""

import hashlib
from contextlib import suppress
from pathlib import Path
from typing import Any

from shakedown.common.data import read_toml

LONGEST = 200  # characters of a label's value
_DATA = read_toml("shakedown.common", "prometheus_names.toml")
FIGURES: dict[str, dict[str, Any]] = _DATA["figure"]
AGENT_REPORT = "shakedown_agent_report_timestamp_seconds"
COMMON = ("inventory", "source")
_METRICS = _DATA["metric"] | {figure["name"]: {**figure, "labels": ["job", "recipe"]} for figure in FIGURES.values()}
NAMES: dict[str, str] = {name: metric["help"] for name, metric in _METRICS.items()}
LABELS = {name: (*COMMON, *metric["labels"]) for name, metric in _METRICS.items()}


def inventory_label(inventory: str) -> str:
    """Return the value of the label `inventory`: the whole path of a file, since two sites on one controller can both
    have an inventories/rack.py. A digest ends what is longer than LONGEST."""
    path = Path(inventory)
    with suppress(OSError):  # names of hosts that make too long a path
        inventory = str(path.absolute()) if inventory and path.is_file() else inventory
    if len(inventory) <= LONGEST:
        return inventory
    return f"{inventory[: LONGEST - 9]}~{hashlib.sha256(inventory.encode('utf-8', 'replace')).hexdigest()[:8]}"
