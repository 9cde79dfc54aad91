"""What every section of the desired state is made of."""

from typing import Any

from shakedown.common.section import Section, key
from shakedown.node.settings import SETTINGS

__all__ = ["Section", "key", "setting"]


def setting(name: str) -> Any:
    """Describe a key for a host setting, which its module in shakedown/node/settings explains."""
    known = SETTINGS[name]
    return key(None, known.doc, False if known.switch else known.example, unit=known.unit, source=known.document)
