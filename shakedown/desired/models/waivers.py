"""Waivers: known exceptions of a site, for a time."""

import re
from datetime import date
from typing import Annotated

from pydantic import AfterValidator, model_validator

from shakedown.desired.models.section import Section, key
from shakedown.desired.names import Text
from shakedown.hosts import globs


def _day(text: str) -> str:
    if not re.fullmatch(r"\d{4}-\d{2}-\d{2}", text):
        raise ValueError("a day, such as 2026-12-31")
    date.fromisoformat(text)
    return text


def _expanded(words: list[str]) -> list[str]:
    return [name for word in words for name in globs(word)]


class Waiver(Section):
    """One known exception: what is waived, where, why, by whom, and until when."""

    finding: Text | None = key(
        None, "the finding, or a check for all its findings; or `entry`, one of the two", "rdma_rate"
    )
    entry: Text | None = key(None, "an entry of the catalogue: its lines in the kernel's log", "pcie_aer_corrected")
    hosts: Annotated[list[Text], AfterValidator(_expanded)] = key(
        [], "the nodes: names, ranges, `*`; or `parts`", ["node[01-04]"]
    )
    parts: list[Text] = key(
        [], "serial numbers (of an RDMA device its GUID): holds while the part is in a node", ["3a1fbe0411c2d6b7"]
    )
    reason: Text = key(..., "why it is acceptable", "cable ordered, ticket 4711")
    owner: Text = key(..., "who answers for it", "anna@example.org")
    until: Annotated[Text, AfterValidator(_day)] = key(..., "the last day, at most 90 days ahead (UTC)", "2026-12-31")

    @model_validator(mode="after")
    def _names_one_thing(self) -> "Waiver":
        if (self.finding is None) == (self.entry is None):
            raise ValueError("either finding or entry")
        if not self.hosts and not self.parts:
            raise ValueError("hosts or parts: a waiver names where it holds")
        return self
