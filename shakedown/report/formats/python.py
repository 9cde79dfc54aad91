"""Python, for an inventory."""

import json
from collections.abc import Iterator
from typing import Any

from shakedown.common.text import printable
from shakedown.report.formats import SiteLayer, shows


@shows(SiteLayer)
def layer(document: SiteLayer) -> Iterator[str]:
    """Yield a module with `layer`, to be imported by an inventory or pasted into it as a group's data."""
    imported = document.imported
    notes = [*(str(problem).removeprefix(f"{imported.name}: ") for problem in imported.open), *imported.remarks]
    comments = "".join(f"#   {note}\n" for note in notes)
    source = printable(imported.name.removeprefix("cvs "))  # a line end in a name would begin a line of code
    yield f"# Imported from {source}\n{comments}layer = {_literal(imported.values)}"


def _literal(value: Any, indent: str = "") -> str:
    """Return a value as Python, one entry of an object on a line."""
    if isinstance(value, list):
        return f"[{', '.join(_literal(item) for item in value)}]"
    if not isinstance(value, dict):
        return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)
    inner = indent + "    "
    entries = "".join(f"{inner}{_literal(key)}: {_literal(item, inner)},\n" for key, item in value.items())
    return f"{{\n{entries}{indent}}}"
