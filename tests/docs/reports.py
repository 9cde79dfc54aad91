"""docs/reports.md: the metrics, from the module that writes them."""

from __future__ import annotations

from shakedown.common.prometheus_names import LABELS, NAMES
from tests.docs.markdown import prose, table


def prometheus() -> str:
    """Name, labels, and what it is in which unit."""
    rows = [(f"`{name}`", ", ".join(f"`{label}`" for label in LABELS[name]), prose(doc)) for name, doc in NAMES.items()]
    return table(("metric", "labels", "what it is"), rows)
