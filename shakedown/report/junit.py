"""JUnit's XML, for a CI. A finding or a gate is a test case; what could not be seen is an error, never a pass."""

import re

from junitparser import Error, Failure, JUnitXml, TestCase, TestSuite

from shakedown.common.text import printable
from shakedown.report.formats import Findings, Judged, Run
from shakedown.report.overview import overview
from shakedown.report.terminal import finding_line, value_text
from shakedown.state.findings import Verdict

TEXT = 2000  # characters of one text
_NOT_IN_XML = re.compile("[\ufffe\uffff]")  # what `printable` leaves and XML 1.0 has not


def suites(document: Findings | Judged | Run) -> str:
    """Return the test suites. The verdict has its own test case: it may be worse than all findings (a killed run)."""
    shown = overview(document)
    whole = JUnitXml(_text(f"shakedown {shown.title}"))
    suites = {"verdict": [_case("verdict", shown.title, shown.verdict, shown.sentence)]}
    for node in shown.nodes:
        verdict = Verdict.FAIL if node.failed else Verdict.UNKNOWN if node.undecided else Verdict.OK
        suites.setdefault("nodes", []).append(_case(node.name, "nodes", verdict, f"{node.part}: {node.why}"))
    for gate in shown.gates:
        wanted, actual = (value_text(value, gate.unit) for value in (gate.wanted, gate.actual))
        message = f"wanted {wanted}, actual {actual}: {gate.evidence}{f' -> {gate.remedy}' if gate.remedy else ''}"
        suites.setdefault(f"gates {gate.job}", []).append(_case(gate.name, gate.job, gate.verdict, message))
    for finding in shown.findings:
        case = _case(finding.name, finding.node, finding.verdict, finding_line(finding))
        suites.setdefault(f"findings {finding.node}", []).append(case)
    for name, cases in suites.items():
        suite = TestSuite(_text(name))
        suite.add_testcases(cases)
        if shown.started or shown.finished:
            suite.timestamp = _text(shown.started or shown.finished)
        whole.add_testsuite(suite)
    whole.update_statistics()  # type: ignore[no-untyped-call]
    text: bytes = whole.tostring()  # type: ignore[no-untyped-call]
    return text.decode("utf-8")


def _case(name: str, classname: str, verdict: Verdict, message: str) -> TestCase:
    case = TestCase(_text(name), _text(classname), 0.0)
    if verdict == Verdict.UNKNOWN:
        case.result = [Error(_text(message), verdict.value)]
    elif not verdict.passes:
        case.result = [Failure(_text(message), verdict.value)]
    elif verdict == Verdict.WARN:
        case.system_out = _text(f"warning: {message}")
    return case


def _text(text: str) -> str:
    return _NOT_IN_XML.sub("\ufffd", printable(text, TEXT))
