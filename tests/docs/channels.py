"""docs/evidence.md: what is sampled."""

from __future__ import annotations

from shakedown.evidence.telemetry.summary import channels
from tests.docs.markdown import table

HOW = {"gauge": "of the moment", "rate": "rate", "count": "growth"}


def listed() -> str:
    """Every kind of channel, with its unit as it is shown."""
    rows = [(f"`{channel.name}`", channel.unit, HOW[channel.kind], channel.source) for channel in channels().values()]
    return table(("channel", "shown in", "as", "source"), rows)
