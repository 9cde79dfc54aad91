"""An imported file as text: Python for an inventory, or JSON."""

from __future__ import annotations

import json
from typing import Any

from shakedown.desired.cvs.result import Imported


def as_python(imported: Imported) -> str:
    """A module with `layer`, to be imported by an inventory or pasted into it as a group's data."""
    notes = [*(str(problem).removeprefix(f"{imported.name}: ") for problem in imported.open), *imported.remarks]
    comments = "".join(f"#   {note}\n" for note in notes)
    return f"# Imported from {imported.name.removeprefix('cvs ')}\n{comments}layer = {_literal(imported.values)}\n"


def _literal(value: Any, indent: str = "") -> str:
    """A value as Python, one entry of an object on a line."""
    if isinstance(value, list):
        return f"[{', '.join(_literal(item) for item in value)}]"
    if not isinstance(value, dict):
        return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)
    inner = indent + "    "
    entries = "".join(f"{inner}{_literal(key)}: {_literal(item, inner)},\n" for key, item in value.items())
    return f"{{\n{entries}{indent}}}"


def as_json(imported: Imported) -> str:
    """The layer, what is open in it, and the remarks."""
    document = {
        "layer": imported.values,
        "open": [{"path": each.path, "value": each.value, "expected": each.expected} for each in imported.open],
        **{
            kind: [{"path": each.path, "value": each.value, "why": each.why} for each in remarks]
            for kind, remarks in (
                ("derived", imported.derived),
                ("refused", imported.refused),
                ("flagged", imported.flagged),
            )
        },
    }
    return json.dumps(document, indent=1) + "\n"
