"""A diagnosis in words: the answer in one line, then what it rests on, then what to do."""

from collections.abc import Iterator

from shakedown.common.text import counted, printable
from shakedown.evidence.diagnosis.common import where
from shakedown.evidence.diagnosis.model import Diagnosis, Sign

SHOWN = 3  # signs that are told; all that were kept stand in run.json
_WIDTH = 300  # characters of a line of a log
NAMED = 8  # nodes that are named one by one


def lines(diagnosis: Diagnosis | None) -> Iterator[str]:
    """As it stands in closing words; nothing where there is no diagnosis."""
    if diagnosis is None:
        return
    yield f"diagnosis: {headline(diagnosis)}"
    yield from (f"  {evidence(sign)}" for sign in diagnosis.evidence[:SHOWN])
    if diagnosis.echoes:
        nodes = f" on {counted(len(diagnosis.echoed_by), 'node')}" if diagnosis.echoed_by else ""
        yield f"  {counted(diagnosis.echoes, 'further sign')}{nodes} that may follow from it"
    if diagnosis.remedy:
        yield f"  remedy: {printable(diagnosis.remedy)}"


def headline(diagnosis: Diagnosis) -> str:
    """Where it began, how sure that is, and what of."""
    cause = printable(diagnosis.cause, _WIDTH)
    if diagnosis.common:
        sign = next(iter(diagnosis.evidence), None)
        shown = printable(sign.text.removeprefix(f"{sign.node}: ") if sign else "", _WIDTH)
        what = cause if shown in ("", cause) else f"{cause} ({shown})"
        return f"{len(diagnosis.common)} of {diagnosis.nodes} nodes: {what}: {where(diagnosis.name)}"
    if diagnosis.origin:
        return f"{_names(diagnosis.origin)} ({diagnosis.confidence}: {diagnosis.why}): {cause}"
    if diagnosis.among:
        return f"undecided between {_names(diagnosis.among)} ({diagnosis.why}): {cause}"
    if diagnosis.confidence == "undecided":
        return f"the origin is undecided ({diagnosis.why}): {cause}"
    return f"{cause} ({diagnosis.why})"


def evidence(sign: Sign) -> str:
    """One sign with its place and its time (UTC, by the controller's clock)."""
    at = f" at {sign.at:%H:%M:%S}" if sign.at else ""
    return f"{printable(sign.place)}{at}: {printable(sign.text, _WIDTH)}"


def _names(nodes: tuple[str, ...]) -> str:
    shown = ", ".join(map(printable, nodes[:NAMED]))
    return shown if len(nodes) <= NAMED else f"{shown} and {len(nodes) - NAMED} more"
