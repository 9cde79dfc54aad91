"""The progress of a run in batches, as part of the run's record: a later run goes on from it."""

from typing import Literal

from pydantic import BaseModel, ConfigDict

from shakedown.hosts import named
from shakedown.state.findings import Verdict


class Turn(BaseModel):
    """One node's turn."""

    model_config = ConfigDict(extra="forbid")

    node: str
    desired_digest: str  # SHA-256 of its desired state: work for another desired state does not count
    status: Literal["waiting", "under way", "done", "failed"] = "waiting"
    verdict: Verdict | None = None  # the node's worst finding when its batch was over
    why: str = ""  # why it failed
    batch: int | None = None  # counted from 1, in the run `run`
    run: str = ""  # the run in which the node was done, or failed


class Rolling(BaseModel):
    """A run in batches."""

    model_config = ConfigDict(extra="forbid")

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
