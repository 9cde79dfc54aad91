"""A diagnosis in words: the answer in one line, then what it rests on, then what to do."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from shakedown.common.lists import grouped
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


@dataclass(frozen=True)
class Headline:
    """The sentence that matters, in its parts: where, what, how sure that is, and since when."""

    where: str
    what: str
    sure: str = ""
    since: datetime | None = None


def parts(diagnosis: Diagnosis) -> Headline:
    """Return the parts of the headline."""
    cause = printable(diagnosis.cause, _WIDTH)
    first = next(iter(diagnosis.evidence), None)
    if diagnosis.common:
        shown = printable(first.text.removeprefix(f"{first.node}: ") if first else "", _WIDTH)
        what = cause if shown in ("", cause) else f"{cause} ({shown})"
        return Headline(f"{len(diagnosis.common)} of {diagnosis.nodes} nodes", what, where(diagnosis.name))
    since = first.at if first else None
    if diagnosis.origin:
        return Headline(_names(diagnosis.origin), cause, f"{diagnosis.confidence}: {diagnosis.why}", since)
    undecided = diagnosis.confidence == "undecided"
    own = causes(diagnosis, diagnosis.among)
    cause = printable(of_each(own), _WIDTH) if len({sign.name for sign in own.values()}) > 1 else cause
    names = f"undecided between {_names(diagnosis.among)}" if diagnosis.among else ""
    return Headline(names or "the origin is undecided" * undecided, cause, diagnosis.why, since)


def causes(diagnosis: Diagnosis, nodes: Collection[str]) -> dict[str, Sign]:
    """Return the sign of each of the nodes that shows its own cause; nothing of a node that has none."""
    own = [sign for sign in diagnosis.evidence if sign.node in nodes and sign.role != "echo" and sign.cause]
    return {str(sign.node): sign for sign in sorted(own, key=lambda sign: not sign.symptom)}


def of_each(signs: Mapping[str, Sign]) -> str:
    """Return the causes of several nodes, and of which nodes where they differ."""
    alike = grouped((sign.cause, node) for node, sign in signs.items())
    return "; ".join(f"{few(nodes)}: {cause}" if len(alike) > 1 else cause for cause, nodes in alike.items())


def headline(diagnosis: Diagnosis) -> str:
    """Return where the failure began, how sure that is, what it was, and since when."""
    found = parts(diagnosis)
    if diagnosis.common:
        return f"{found.where}: {found.what}: {found.sure}"
    since = f", since {found.since:%H:%M:%S} UTC" if found.since else ""
    answer = f"{found.where} ({found.sure}): {found.what}" if found.where else f"{found.what} ({found.sure})"
    return answer + since


def evidence(sign: Sign) -> str:
    """One sign with its place and its time (UTC, by the controller's clock)."""
    at = f" at {sign.at:%H:%M:%S}" if sign.at else ""
    return f"{printable(sign.place)}{at}: {printable(sign.text, _WIDTH)}"


def _names(nodes: tuple[str, ...]) -> str:
    return printable(few(nodes))
