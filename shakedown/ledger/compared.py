"""What a job is compared with: earlier passes of the same job, and what its nodes did each by itself."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING

from shakedown.common.text import printable
from shakedown.desired.models import Smoke
from shakedown.gates.baselines.judge import peers_of
from shakedown.gates.baselines.model import Past
from shakedown.gates.observed import OneAlone
from shakedown.ledger.jobs import key_of
from shakedown.logs.metrics import MEAN, METRICS
from shakedown.runs.records import JobRecord
from shakedown.state.node import NodeState

if TYPE_CHECKING:
    from shakedown.ledger.store import Ledger

NEWEST = 5  # earlier runs of a node by itself that its figures are the medians of


@dataclass(frozen=True)
class Wanted:
    """How the figures are to be compared with earlier runs."""

    judge: bool
    since: date | None = None
    by: str = ""  # who accepted the level since then

    @classmethod
    def of(cls, smoke: Smoke) -> Wanted | None:
        """As the desired state has it; None: not at all."""
        if smoke.baseline == "off":
            return None
        since = date.fromisoformat(smoke.baseline_since) if smoke.baseline_since else None
        return cls(smoke.baseline == "judge", since, (smoke.baseline_by or "") if since else "")


def usual_ledger() -> Ledger | None:
    """Open the ledger, for who asks it of many jobs. None where it cannot be told which it is: `past_of` says why."""
    try:
        return _ledger()
    except ValueError:
        return None


def _ledger() -> Ledger:
    from shakedown.ledger.store import open_ledger  # SQLAlchemy, 100 ms that judging a log does without

    return open_ledger()


def past_of(
    job: JobRecord, states: Mapping[str, NodeState], run_id: str | None, wanted: Wanted, ledger: Ledger | None = None
) -> Past:
    """Return the earlier passes of a job, as far as they were over when its run (if one is named) began, from the
    ledger (None: the usual one). A ledger that cannot be read is named in it, and raises nothing."""
    key = key_of(job, states)
    if key is None:
        return Past(judge=wanted.judge, problem="the job has no plan, so there is nothing to compare it with")
    try:
        known = (ledger or _ledger()).earlier(key, run_id)
        return Past.of(known, key.epoch, wanted.judge, wanted.since, wanted.by)
    except Exception as error:  # whatever it is, the run has come to what it has come to
        why = printable(str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}", 400)
        return Past(judge=wanted.judge, epoch=key.epoch, problem=f"the earlier runs cannot be read: {why}")


def know_peers(pasts: Mapping[str, Past]) -> None:
    """Tell each of the nodes that train each for itself how noisy the others of its epoch are."""
    if len(pasts) < 2:
        return
    for epoch in {past.epoch for past in pasts.values()}:
        for node, peers in peers_of({node: past for node, past in pasts.items() if past.epoch == epoch}).items():
            pasts[node].peers = peers


def own_figures(job: JobRecord, run_id: str) -> OneAlone | None:
    """Return what a node did in a job of its own; None where it measured nothing."""
    measured = job.figures.values() if job.figures else {}
    return OneAlone(runs=[run_id], ranks=job.plan.world_size, figures=measured) if job.plan and measured else None


def earlier_own_figures(past: Past, ranks: int) -> OneAlone | None:
    """Return the same of its newest earlier passes; None where there are none."""
    newest = [run for run in past.earlier if not run.worse][-NEWEST:]
    kept = [*METRICS, *(name + MEAN for name in METRICS)]
    found = {name: [run.figures[name] for run in newest if name in run.figures] for name in kept}
    measured = {name: statistics.median(values) for name, values in found.items() if values}
    return OneAlone(runs=[run.run_id for run in newest], ranks=ranks, figures=measured) if measured else None
