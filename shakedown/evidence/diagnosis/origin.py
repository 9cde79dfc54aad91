"""The rule: of all signs of a job's failure, which node it began on, and what of. Pure, and never a guess with a name.

A sign is an origin, an echo or either (shakedown/catalogue). The cause comes before what follows from it, so of several
nodes with an origin the first one counts, if it was the first for certain: each sign happened within an interval, and
two intervals that overlap have no order. Where only echoes are left, the node that the others lost, and that lost none,
is named. Whatever that leaves open is undecided.

A fault that most nodes share is no node's: it is reported as common. A node that ended without success and without an
explanation may be where it began, whatever the others show: as long as there is one, no other is likely.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import timedelta

from shakedown.catalogue import Role, entry
from shakedown.common.lists import grouped
from shakedown.common.text import printable
from shakedown.evidence.diagnosis.common import common_fault, first_nodes, when
from shakedown.evidence.diagnosis.model import SHOWN, Confidence, Diagnosis, Sign
from shakedown.evidence.diagnosis.signs import not_running, of_failure
from shakedown.evidence.diagnosis.words import headline
from shakedown.evidence.results import Failure, JobResult, NodeResult
from shakedown.hosts import few
from shakedown.logs.signatures import MISMATCH
from shakedown.state.findings import Verdict

WINDOW_S = 20.0  # what begins so long after the first sign of all is no cause of it
# Named so, a node is "likely" at most: each of these can be seen of a node that is well.
_WEAK = {"unreachable", "not running", "hang", "early exit"}
_NOBODYS = ("interrupted", "controller")  # no node's failure, and whatever else is said follows from it
REFUSED = "busy"  # a node that another run holds refused the start: nothing has failed that could be diagnosed
_ACCUSERS = 2  # nodes that say they lost one, before it is named for that

_ONLY = "no other node shows a failure of its own"
_SHARED = "most nodes show this fault, so no node is the cause"
_FIRST = "this node failed first, by more than the uncertainty of the times"
_ALIKE = "all of these nodes show the same fault"
_TOGETHER = "the nodes failed too close together to tell which was first"
_OPEN = "a node ended without success and without an explanation, so the origin is unknown"
_EITHER = "other nodes lost a node too and do not name it, so any of them may have waited for another"
_OF_RECORDS = "the ranks' records lead to these nodes, and no further"


def decide(
    signs: Iterable[Sign], job: str = "", nodes: Collection[str] = (), unexplained: Collection[str] = ()
) -> Diagnosis | None:
    """Diagnose a job by its signs; None where there is no sign, or where a start was refused. `nodes`: all nodes of the
    job; `unexplained`: the nodes whose log ends without success, and without a sign."""
    ordered = sorted(signs, key=when)
    if not ordered or any(sign.name == REFUSED for sign in ordered):
        return None
    case = _Case(job, ordered)
    ended = next((sign for sign in ordered if sign.name in _NOBODYS), None)
    if ended is not None:
        return case.found(ended, "certain", why="this ended the run")
    everywhere = {*nodes, *(sign.node for sign in ordered if sign.node)}
    shared = common_fault(case.near, case.roles, everywhere)
    if shared is not None:
        cause, alike = shared
        return case.found(cause, "certain", common=alike, nodes=len(everywhere), why=_SHARED)
    return _while_open(_decide(case), case, {*unexplained, *_unexplained(case)})


def _decide(case: _Case) -> Diagnosis:
    for role in ("origin", "either"):
        shown = [sign for sign in case.near if case.roles[id(sign)] == role and sign.node]
        if shown:
            return _of_origins(case, shown)
    mismatch = next((sign for sign in case.near if sign.name == MISMATCH), None)
    if mismatch is not None:  # who met it has ended, and who went another way is only lost by none
        return case.found(mismatch, "undecided", why="the ranks differ, and no record shows which is right")
    return _of_blame(case) or case.found(case.first, "undecided", why="no node shows a failure of its own")


def _while_open(found: Diagnosis, case: _Case, unexplained: Collection[str]) -> Diagnosis:
    """Return the diagnosis, undecided where a node that nothing explains may be what the named node waited for. What
    only the node itself can have, as a missing library, stands."""
    others = set(unexplained) - set(found.origin)
    cause = found.evidence[0]
    own = case.roles.get(id(cause)) == "origin" and not cause.symptom and entry(cause.name) is not None
    if found.confidence != "likely" or not found.origin or not others or own:
        return found
    return case.found(cause, "undecided", among={*found.origin, *others}, why=_OPEN)


def _unexplained(case: _Case) -> set[str]:
    """Return the nodes that ended with an exit code that names no cause: no line before it says why."""
    ended = {sign.node for sign in case.near if sign.node and sign.name == "exit" and case.roles[id(sign)] == "either"}
    return {node for node in ended if node and all(sign.symptom for sign in case.near if sign.node == node)}


class _Case:
    """All signs in the order of time, those that can have to do with the first, and what each of these proves."""

    def __init__(self, job: str, ordered: Sequence[Sign]) -> None:
        self._job = job
        self._ordered = ordered
        self.near = _near(ordered)
        self.first = ordered[0]
        echoes = grouped(
            (sign.node, sign) for sign in self.near if _tells_of_another(sign) or _ended_by_scheduler(sign)
        )
        self.roles = {id(sign): _role(sign, echoes.get(sign.node, ())) for sign in self.near}

    def found(
        self,
        cause: Sign,
        confidence: Confidence,
        origin: Collection[str] = (),
        among: Collection[str] = (),
        common: Collection[str] = (),
        nodes: int = 0,
        why: str = "",
    ) -> Diagnosis:
        shown = {*origin, *among, *common}
        own = [sign for sign in self._ordered if sign.node in shown and self.roles.get(id(sign), "echo") != "echo"]
        own = [cause, *(sign for sign in own if sign is not cause)]
        counted = {id(sign) for sign in own}
        follow = [sign for sign in self._ordered if id(sign) not in counted]
        return Diagnosis(
            job=self._job,
            name=cause.name,
            cause=cause.cause or cause.text,
            remedy=cause.remedy,
            confidence=confidence,
            origin=tuple(sorted(origin)),
            among=tuple(sorted(among)),
            common=tuple(sorted(common)),
            nodes=nodes,
            why=why,
            evidence=tuple([*own, *follow][:SHOWN]),
            echoes=len(follow),
            echoed_by=tuple(sorted({sign.node for sign in follow if sign.node})),
        )


def _near(ordered: Sequence[Sign]) -> list[Sign]:
    """Return the signs that can have to do with the first one. Far older lines of a kernel count only where no node
    shows another origin."""
    seen = next((sign.at for sign in ordered if sign.at and not _of_kernel(sign)), ordered[0].at)
    if seen is None:
        return list(ordered)
    window = timedelta(seconds=WINDOW_S)
    near = [sign for sign in ordered if (sign.since or sign.at or seen) <= seen + window]
    old = {id(sign) for sign in near if _of_kernel(sign) and sign.at and sign.at < seen - window}
    if any(sign.role == "origin" and sign.node and id(sign) not in old for sign in near):
        near = [sign for sign in near if id(sign) not in old]
    return near


def _of_kernel(sign: Sign) -> bool:
    known = entry(sign.name)
    return known is not None and known.log == "kernel"


def _role(sign: Sign, echoes: Sequence[Sign]) -> Role:
    """Return what the sign proves. A sign that could be either is an echo after an echo of the same node: a node that
    lost another node often ends with an error of its own."""
    known = entry(sign.name)
    says_no_more = known is not None and known.general and sign.symptom  # RCCL names its last error behind its own
    if sign.role == "either" and any(
        (says_no_more and not echo.symptom) or _comes_before(echo, sign) for echo in echoes
    ):
        return "echo"
    if sign.symptom and any(_ended_by_scheduler(echo) and _comes_before(echo, sign) for echo in echoes):
        return "echo"
    return sign.role


def _ended_by_scheduler(sign: Sign) -> bool:
    """Return whether the scheduler ended the node's part: what ends behind that, the scheduler may have ended."""
    known = entry(sign.name)
    return sign.role == "echo" and known is not None and known.part == "scheduler"


def _comes_before(one: Sign, other: Sign) -> bool:
    """Return whether one of two signs of a node came first: the order of its log is the order of time."""
    if one.line_number and other.line_number and one.file == other.file and other.name != "exit":
        return one.line_number < other.line_number
    return one.at is None or other.at is None or one.at <= other.at


def _of_origins(case: _Case, shown: Sequence[Sign]) -> Diagnosis:
    by_node = grouped((sign.node or "", sign) for sign in shown)
    first = first_nodes(shown)
    # The sign that shows the cause, where there is one; of several the first.
    cause = min((sign for node in first for sign in by_node[node]), key=lambda sign: (sign.symptom, when(sign)))
    waited = _may_have_waited(case, by_node)
    if waited:
        return case.found(cause, "undecided", among={*by_node, *waited}, why=_EITHER)
    alike = [node for node, signs in by_node.items() if any(sign.name == cause.name for sign in signs)]
    if cause.common and set(first) <= set(alike):
        others = len(by_node) > len(alike)
        why = _FIRST if others else _ALIKE if len(alike) > 1 else _ONLY
        sure = not others and case.roles[id(cause)] == "origin"
        return case.found(cause, "certain" if sure else "likely", alike, why=why)
    if len(first) > 1:
        why = _OF_RECORDS if cause.name == "hang" else _TOGETHER
        return case.found(cause, "undecided", among=first, why=why)
    sure = (
        cause.name != "hang"
        and case.roles[id(cause)] == "origin"
        and len(by_node) == 1
        and not _weak(by_node[first[0]], case.near)
    )
    return case.found(cause, "certain" if sure else "likely", first, why=_ONLY if len(by_node) == 1 else _FIRST)


def _may_have_waited(case: _Case, by_node: Mapping[str, Sequence[Sign]]) -> set[str]:
    """Return the nodes that lost another one, not for certain after all signs here, and do not say that it was one of
    these: a sign that may be an origin or an echo is the echo then, of a failure that no line explains."""
    signs = [sign for of_node in by_node.values() for sign in of_node]
    if any(case.roles[id(sign)] == "origin" for sign in signs):
        return set()
    came = min(map(when, signs))
    lost = [sign for sign in case.near if sign.node not in (None, *by_node) and _tells_of_another(sign)]
    explained = {sign.node for sign in lost if set(sign.blames) & set(by_node)}
    early = {sign.node for sign in lost if sign.since is None or sign.since < came}
    return {node for node in early - explained if node}


def _tells_of_another(sign: Sign) -> bool:
    return sign.role == "echo" and not sign.symptom and entry(sign.name) is not None


def _weak(signs: Sequence[Sign], near: Sequence[Sign]) -> bool:
    """Return whether every sign of a node can be seen of a healthy node too, or has no time, and no other node lost
    it."""
    if any(sign.name not in _WEAK and (sign.at is not None or not sign.file) for sign in signs):
        return False
    node = signs[0].node
    return not any(node in sign.blames and sign.node != node for sign in near)


def _of_blame(case: _Case) -> Diagnosis | None:
    """Return the node that other nodes lost, and that lost no other. A single report names no node: a node that failed
    may blame any other, so both are in question."""
    blamed = {node: sign for sign in reversed(case.near) for node in sign.blames if node != sign.node}
    accusers = {node: {sign.node for sign in case.near if node in sign.blames and sign.node != node} for node in blamed}
    lost_another = {sign.node for sign in case.near if _tells_of_another(sign) or sign.blames}
    if not blamed:
        return None
    named = sorted(node for node in blamed if node not in lost_another)
    if len(named) == 1 and len(accusers[named[0]]) < _ACCUSERS:
        among = {*named, *(node for node in accusers[named[0]] if node)}
        why = "only one of these nodes reports that it lost the other"
        return case.found(blamed[named[0]], "undecided", among=among, why=why)
    if len(named) == 1:
        why = "other nodes lost the connection to this node, and it lost none"
        return case.found(blamed[named[0]], "likely", named, why=why)
    if named:
        why = "other nodes lost the connection to all of these"
        return case.found(blamed[named[0]], "undecided", among=named, why=why)
    among = {*blamed, *(node for node in lost_another if node)}
    why = "these nodes lost one another: a node or the link between them failed"
    return case.found(case.near[0], "undecided", among=among, why=why)


STOOD_STILL = ("stall", "no start")


def may_be_echo(failure: Failure) -> bool:
    """Return whether the failure may only follow from another failure."""
    return of_failure(failure).role != "origin"


def first(
    failures: Sequence[Failure], addresses: Mapping[str, str] | None = None, nodes: Collection[str] = ()
) -> Failure:
    """Return the failure, of several in the order of time, with which the diagnosis of the job begins. A fault that
    most nodes share names no node. A refused start has no diagnosis: it is the failure itself."""
    signs = [of_failure(failure, addresses=addresses) for failure in failures]
    found = decide(signs, nodes=nodes)
    if found is None:
        return next(failure for failure, sign in zip(failures, signs, strict=True) if sign.name == REFUSED)
    failure = next(failure for failure, sign in zip(failures, signs, strict=True) if sign is found.evidence[0])
    if found.common:
        return failure.model_copy(update={"node": None, "text": headline(found)})
    return failure


def with_culprit(failure: Failure, running_at_end: Iterable[tuple[str, Sequence[str]]]) -> Failure:
    """Name the node with a process that did not run, where a job hung.

    `running_at_end` holds (node, processes as the launcher writes them: "123 python3 (T)").
    """
    if failure.kind not in STOOD_STILL:
        return failure
    found = list(not_running(dict(running_at_end)))
    if not found:
        return failure
    text = f"{failure.text}; on {found[0].text.replace(': ', ' ', 1)}"
    return failure.model_copy(update={"node": found[0].node if len(found) == 1 else None, "text": text})


STOPPED = "stopped by the controller"
_LENGTH = 200  # characters of a cause


def parts_of(results: Iterable[tuple[str, JobResult]], diagnosis: Diagnosis | None) -> dict[str, tuple[Verdict, str]]:
    """Return the verdict on each node's part in the jobs (by their names) that did not complete, and how the part
    ended. A part is ok where the controller stopped it, or where its end follows from another node's; while the
    diagnosis is undecided, it is unknown."""
    parts: dict[str, tuple[Verdict, str]] = {}
    for name, result in results:
        found = diagnosis if diagnosis is not None and diagnosis.job in ("", name) else None
        for node in result.nodes if not result.completed else ():
            verdict, text = _part(node, found)
            if node.name not in parts or verdict.severity > parts[node.name][0].severity:
                parts[node.name] = verdict, text
    return parts


def _part(node: NodeResult, diagnosis: Diagnosis | None) -> tuple[Verdict, str]:
    if diagnosis is not None and node.name in (*diagnosis.origin, *diagnosis.common):
        verdict = Verdict.FAIL if diagnosis.confidence == "certain" else Verdict.UNKNOWN
        return verdict, f"failed: {printable(diagnosis.cause, _LENGTH)}"
    if node.exit_code and not node.stopped:
        began = (*diagnosis.origin, *diagnosis.common) if diagnosis is not None else ()
        if began:
            return Verdict.OK, f"ended with {node.exit_code} after the failure began on {few(began)}"
        return Verdict.UNKNOWN, f"ended with {node.exit_code}"
    started = node.started_at is not None
    if started and not node.stopped:
        return (Verdict.UNKNOWN, "its end is not known") if node.exit_code is None else (Verdict.OK, "ended with 0")
    is_open = diagnosis.confidence == "undecided" if diagnosis is not None else started
    return Verdict.UNKNOWN if is_open else Verdict.OK, STOPPED if started else "not started"
