"""The same answer while the job still runs: which failure it is stopped for, and whether to wait for a better one."""

from collections.abc import Collection, Iterable, Mapping, Sequence

from shakedown.evidence.diagnosis.origin import REFUSED, decide
from shakedown.evidence.diagnosis.signs import not_running, of_failure
from shakedown.evidence.diagnosis.words import headline
from shakedown.evidence.results import Failure

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
