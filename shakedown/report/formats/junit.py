"""JUnit's XML, for a CI. A finding or a gate is a test case; what could not be seen is an error, never a pass."""

from shakedown.report.formats import Findings, Judged, Run, shows_by

shows_by(__name__, "shakedown.report.junit:suites", Findings, Judged, Run)
