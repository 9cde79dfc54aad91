"""One JSON object on each line, for programs that read line by line."""

from collections.abc import Iterator

from shakedown.report.formats import Findings, shows


@shows(Findings)
def findings(document: Findings) -> Iterator[str]:
    for finding in document.findings:
        yield finding.model_dump_json(ensure_ascii=True)
