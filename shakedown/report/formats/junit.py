"""JUnit's XML, for a CI. A finding or a gate is a test case; what could not be seen is an error, never a pass."""

from collections.abc import Iterator
from typing import Any

from shakedown.report.formats import Findings, Judged, Run, shows


def _show(document: Any) -> Iterator[str]:
    from shakedown.report.junit import suites  # junitparser and rich, 80 ms: other formats do without it

    yield suites(document)


for kind in (Findings, Judged, Run):
    shows(kind)(_show)
