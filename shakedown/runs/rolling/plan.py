"""Whose turn it is, and when to stop: pure functions over the record."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from shakedown.common.text import counted
from shakedown.desired import amounts
from shakedown.hosts import named
from shakedown.runs.rolling.model import Rolling, Turn

FIRST_PAUSE_S = 5.0  # before a host that did not answer is tried for the second time; each further pause is doubled
LONGEST_PAUSE_S = 120.0  # a node that reboots takes minutes, and is back two minutes earlier or later


def turns(digests: Mapping[str, str], earlier: Rolling | None = None) -> list[Turn]:
    """A turn for each node, in the order of `digests` (node -> digest of its desired state). What an `earlier` run has
    done is done, as long as the node's desired state is what it was then; what failed there has another turn."""
    done = {turn.node: turn for turn in earlier.turns if turn.status == "done"} if earlier else {}
    kept = {node: turn for node, turn in done.items() if digests.get(node) == turn.desired_digest}
    return [kept.get(node) or Turn(node=node, desired_digest=digest) for node, digest in digests.items()]


def next_batch(rolling: Rolling, answering: Collection[str]) -> list[str]:
    """The next nodes in inventory order, of those that answer; empty: none is left that does."""
    size = amounts.of(rolling.batch, len(rolling.turns), least=1)
    return [node for node in rolling.names("waiting") if node in answering][:size]


def batches(rolling: Rolling) -> int:
    """In how many batches the nodes that wait fit."""
    return -(-len(rolling.names("waiting")) // amounts.of(rolling.batch, len(rolling.turns), least=1))


def why_stop(rolling: Rolling, run: str, batch: Collection[str] = ()) -> str:
    """Why no further node may be changed in this `run`; empty: go on. Without `max_failed` a batch of which no node
    came through is reason enough: what is asked for is then wrong, and not the nodes. A single node may well be
    broken, unless no other has come through yet."""
    failed = [turn.node for turn in rolling.turns if turn.status == "failed" and turn.run == run]
    if rolling.max_failed is not None:
        most = amounts.of(rolling.max_failed, len(rolling.turns))
        if len(failed) > most:
            return (
                f"{len(failed)} of {counted(len(rolling.turns), 'node')} failed ({named(failed)}), max_failed is {most}"
            )
    elif batch and set(batch) <= set(failed) and (len(batch) > 1 or not rolling.names("done")):
        return f"no node of the batch came through ({named(list(batch))})"
    return ""


def pauses(tries: int) -> Iterator[float]:
    """Seconds before each try to connect but the first."""
    return (min(FIRST_PAUSE_S * 2**number, LONGEST_PAUSE_S) for number in range(tries - 1))
