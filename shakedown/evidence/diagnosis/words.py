"""A diagnosis in words: the answer in one line, then what it rests on, then what to do."""

from collections.abc import Iterator

from shakedown.common.text import counted, printable
from shakedown.evidence.diagnosis.common import where
from shakedown.evidence.diagnosis.model import Diagnosis, Sign
from shakedown.hosts import few

SHOWN = 3  # signs that are told; all that were kept stand in run.json
_WIDTH = 300  # characters of a line of a log


def lines(diagnosis: Diagnosis | None) -> Iterator[str]:
    """Yield the answer, what it rests on, and what to do; nothing where there is no diagnosis."""
    if diagnosis is None:
        return
    yield f"diagnosis: {headline(diagnosis)}"
    yield from (f"  {line}" for line in grounds(diagnosis, SHOWN))
    if diagnosis.remedy:
        yield f"  remedy: {printable(diagnosis.remedy)}"


def grounds(diagnosis: Diagnosis, shown: int) -> Iterator[str]:
    """Yield the first signs that a diagnosis rests on, and how many more may follow from its cause."""
    yield from (evidence(sign) for sign in diagnosis.evidence[:shown])
    if diagnosis.echoes:
        nodes = f" on {counted(len(diagnosis.echoed_by), 'node')}" if diagnosis.echoed_by else ""
        yield f"{counted(diagnosis.echoes, 'further sign')}{nodes} that may follow from it"


def headline(diagnosis: Diagnosis) -> str:
    """Return where the failure began, how sure that is, what it was, and since when."""
    cause = printable(diagnosis.cause, _WIDTH)
    if diagnosis.common:
        sign = next(iter(diagnosis.evidence), None)
        shown = printable(sign.text.removeprefix(f"{sign.node}: ") if sign else "", _WIDTH)
        what = cause if shown in ("", cause) else f"{cause} ({shown})"
        return f"{len(diagnosis.common)} of {diagnosis.nodes} nodes: {what}: {where(diagnosis.name)}"
    at = next((sign.at for sign in diagnosis.evidence[:1]), None)
    since = f", since {at:%H:%M:%S} UTC" if at else ""
    if diagnosis.origin:
        return f"{_names(diagnosis.origin)} ({diagnosis.confidence}: {diagnosis.why}): {cause}{since}"
    if diagnosis.among:
        return f"undecided between {_names(diagnosis.among)} ({diagnosis.why}): {cause}{since}"
    if diagnosis.confidence == "undecided":
        return f"the origin is undecided ({diagnosis.why}): {cause}{since}"
    return f"{cause} ({diagnosis.why}){since}"


def evidence(sign: Sign) -> str:
    """One sign with its place and its time (UTC, by the controller's clock)."""
    at = f" at {sign.at:%H:%M:%S}" if sign.at else ""
    return f"{printable(sign.place)}{at}: {printable(sign.text, _WIDTH)}"


def _names(nodes: tuple[str, ...]) -> str:
    return printable(few(nodes))
