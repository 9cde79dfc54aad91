"""The progress of a run in batches, as part of its record, and pure functions over it: a later run goes on from it."""

from collections.abc import Collection, Iterator, Mapping
from typing import Literal

from pydantic import BaseModel, ConfigDict

from shakedown.common.text import counted
from shakedown.desired.values import nodes_in
from shakedown.hosts import named
from shakedown.state.findings import Verdict


class Turn(BaseModel):
    """One node's turn."""

    model_config = ConfigDict(extra="forbid", defer_build=True)

    node: str
    desired_digest: str  # SHA-256 of its desired state: work for another desired state does not count
    status: Literal["waiting", "under way", "done", "failed"] = "waiting"
    verdict: Verdict | None = None  # the node's worst finding when its batch was over
    why: str = ""  # why it failed
    batch: int | None = None  # counted from 1, in the run `run`
    run: str = ""  # the run in which the node was done, or failed


class Rolling(BaseModel):
    """A run in batches."""

    model_config = ConfigDict(extra="forbid", defer_build=True)

    batch: str  # nodes of a batch, a number or a share of all
    max_failed: str | None = None  # more failed nodes than this stop the run
    resumes: str = ""  # the run that this one resumes
    turns: list[Turn] = []  # in inventory order
    stopped: str = ""  # why no further batch was begun

    def names(self, *status: str) -> list[str]:
        """List the nodes whose turn has one of these statuses."""
        return [turn.node for turn in self.turns if turn.status in status]

    def words(self) -> str:
        """Write the progress in a line."""
        kinds = {"done": "done", "failed": "failed", "under way": "under way at the end", "waiting": "not begun"}
        there = {word: names for kind, word in kinds.items() if (names := self.names(kind))}
        counts = [
            f"{len(names)} {word}{'' if word == 'done' else f' ({named(names)})'}" for word, names in there.items()
        ]
        goes_on = f", going on with {self.resumes}" if self.resumes else ""
        stopped = f"; stopped: {self.stopped}" if self.stopped else ""
        return f"in batches of {self.batch}{goes_on}: {', '.join(counts)}{stopped}"

    @property
    def complete(self) -> bool:
        """Return whether every node has had its turn, and nothing stopped the run."""
        return not self.stopped and not self.names("waiting", "under way")

    def turn(self, node: str) -> Turn:
        """Return the turn of a node. Raises KeyError where it has none."""
        return {turn.node: turn for turn in self.turns}[node]


FIRST_PAUSE_S = 5.0  # before the second try to reach a host; each further pause is doubled
LONGEST_PAUSE_S = 120.0  # a node that reboots takes minutes


def turns(digests: Mapping[str, str], earlier: Rolling | None = None) -> list[Turn]:
    """Make a turn for each node of `digests` (node -> digest of its state); what `earlier` did for it stays done."""
    done = {turn.node: turn for turn in earlier.turns if turn.status == "done"} if earlier else {}
    kept = {node: turn for node, turn in done.items() if digests.get(node) == turn.desired_digest}
    return [kept.get(node) or Turn(node=node, desired_digest=digest) for node, digest in digests.items()]


def next_batch(rolling: Rolling, answering: Collection[str]) -> list[str]:
    """Take the next answering nodes in inventory order; empty: no waiting node answers."""
    size = nodes_in(rolling.batch, len(rolling.turns), least=1)
    return [node for node in rolling.names("waiting") if node in answering][:size]


def batches(rolling: Rolling) -> int:
    """Count the batches for the waiting nodes."""
    return -(-len(rolling.names("waiting")) // nodes_in(rolling.batch, len(rolling.turns), least=1))


def why_stop(rolling: Rolling, run: str, batch: Collection[str] = ()) -> str:
    """Write why this `run` must not change further nodes; empty: go on. Without `max_failed` a wholly failed batch
    stops it: the desired state is wrong. One failed node stops it only while no node is done."""
    failed = [turn.node for turn in rolling.turns if turn.status == "failed" and turn.run == run]
    if rolling.max_failed is not None:
        most = nodes_in(rolling.max_failed, len(rolling.turns))
        if len(failed) > most:
            total = counted(len(rolling.turns), "node")
            return f"{len(failed)} of {total} failed ({named(failed)}), max_failed is {most}"
    elif batch and set(batch) <= set(failed) and (len(batch) > 1 or not rolling.names("done")):
        return f"every node of the batch failed ({named(list(batch))})"
    return ""


def pauses(tries: int) -> Iterator[float]:
    """Yield the seconds before each try to connect but the first."""
    return (min(FIRST_PAUSE_S * 2**number, LONGEST_PAUSE_S) for number in range(tries - 1))
