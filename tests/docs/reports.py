"""docs/reports.md: the metrics, from the module that writes them."""

from __future__ import annotations

from shakedown.common.prometheus_names import COMMON, LABELS, NAMES
from tests.docs.markdown import prose, table


def prometheus() -> str:
    """Name, labels beside those that every metric has, and what it is in which unit."""
    more = {name: LABELS[name][len(COMMON) :] for name in NAMES}
    rows = [(f"`{name}`", ", ".join(f"`{label}`" for label in more[name]), prose(doc)) for name, doc in NAMES.items()]
    return table(("metric", "labels", "what it is"), rows)
