"""A job's history: its key in the ledger, earlier passes, its nodes alone; and keeping a run when it ends."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING

from shakedown import ledger as memory
from shakedown.common.text import line, printable
from shakedown.desired.models import EACH, TOGETHER, Smoke
from shakedown.gates.baselines.judge import peers_of
from shakedown.gates.baselines.model import Key, Past, digest
from shakedown.gates.observed import OneAlone
from shakedown.jobs.launch import LaunchPlan
from shakedown.logs.metrics import MEAN, METRICS
from shakedown.runs.directory import Evidence, JobRecord, RunDirectory, RunRecord
from shakedown.state.node import Gpu, NodeState, Unreadable, is_unreadable

if TYPE_CHECKING:
    from shakedown.ledger.history import RunRow
    from shakedown.ledger.store import Ledger


NONE, UNREAD = "none", "not read"  # a node without the thing; a reading that could not be taken
_LONGEST = 200  # characters of a value


def states_of(run: RunDirectory, record: RunRecord) -> tuple[dict[str, NodeState], list[str]]:
    """Return the states of a run's nodes before it, and what could not be read; unreached nodes have none."""
    states, lacking = {}, []
    for node in record.nodes:
        try:
            states[node.name] = run.load_state(node.name)
        except FileNotFoundError:
            continue
        except (OSError, ValueError) as error:
            lacking.append(str(error))
    return states, lacking


def key_of(job: JobRecord, states: Mapping[str, NodeState]) -> Key | None:
    """Return a job's key, from its plan and its nodes' states before the run. None: no plan."""
    plan = job.plan
    if plan is None:
        return None
    image = plan.image or NONE
    nodes = [states.get(node.name) for node in plan.nodes]
    return Key(
        gpu=_every(nodes, _gpu_model),
        recipe=plan.recipe,
        parameters=digest(parameters_of(plan)),
        nodes=len(nodes),
        scope=TOGETHER if job.node is None else EACH,
        node=job.node,
        image=line(image.rpartition("@")[2], _LONGEST),
        rocm=_every(nodes, lambda state: [_read(state.rocm_version)]),
        driver=_every(nodes, lambda state: _of_gpus(state, lambda gpu: _read(gpu.driver))),
    )


def parameters_of(plan: LaunchPlan) -> dict[str, object]:
    """Return what a plan asks for that its figures depend on; addresses, paths and the number of iterations are none of
    it. A program that chooses its sizes itself is known by its options alone."""
    if plan.has_report:
        return {**plan.parameters, "seq_length": plan.seq_length or None}
    return {
        "runtime": plan.runtime,
        "world_size": plan.world_size,
        "tensor_parallel": plan.tensor_parallel,
        "pipeline_parallel": plan.pipeline_parallel,
        "data_parallel": plan.data_parallel,
        "micro_batch": plan.micro_batch,
        "global_batch": plan.global_batch,
        "seq_length": plan.seq_length,
        **plan.parameters,
        **({"hidden": plan.hidden} if plan.hidden else {}),
    }


def _every(nodes: Iterable[NodeState | None], read: Callable[[NodeState], Iterable[str]]) -> str:
    found = {value for state in nodes for value in ([UNREAD] if state is None else read(state))}
    return ", ".join(sorted(found)) or UNREAD


def _gpu_model(state: NodeState) -> list[str]:
    found = _of_gpus(state, lambda gpu: _read(gpu.model))
    return [f"CPU {_read(state.cpu.model)}"] if found == [NONE] and not is_unreadable(state.gpus) else found


def _of_gpus(state: NodeState, read: Callable[[Gpu], str]) -> list[str]:
    if isinstance(state.gpus, Unreadable):
        return [_read(state.gpus)]
    return sorted({read(gpu) for gpu in state.gpus}) or [NONE]


def _read(reading: Unreadable | str) -> str:
    if isinstance(reading, Unreadable):
        return NONE if reading.unreadable == "missing" else UNREAD
    return line(reading, _LONGEST)


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
        return memory.store.open_ledger()
    except ValueError:
        return None


def past_of(
    job: JobRecord, states: Mapping[str, NodeState], run_id: str | None, wanted: Wanted, ledger: Ledger | None = None
) -> Past:
    """Return the earlier passes of a job, as far as they were over when its run (if one is named) began, from the
    ledger (None: the usual one). A ledger that cannot be read is named in it, and raises nothing."""
    key = key_of(job, states)
    if key is None:
        return Past(judge=wanted.judge, problem="the job has no plan, so there is nothing to compare it with")
    try:
        known = (ledger or memory.store.open_ledger()).earlier(key, run_id)
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


def keep(
    directory: RunDirectory,
    record: RunRecord,
    states: Mapping[str, NodeState] | None = None,
    evidence: Mapping[str, Evidence] | None = None,
    origin: str = "",
) -> str:
    """Keep a run that has ended; what is not given is read from its directory. `origin`: whose evidence the run is,
    where others sent it. Returns why it could not be kept, with the remedy; nothing where it is."""
    if record.simulated:
        return "not in the ledger: the run is simulated"
    try:
        ledger = memory.store.open_ledger()
        if states is None:
            ledger.add(directory, record, origin)
        else:
            ledger.put(memory.entry.entry_of(record, states, directory, evidence or {}))
    except Exception as error:  # whatever it is, the run has come to what it has come to
        known = isinstance(error, ValueError | OSError)
        why = str(error) if known else f"ledger: {type(error).__name__}: {error}"
        return f"not in the ledger: {printable(why, 500)}; later: shakedown ledger add {directory.path.name}"
    return ""


def earlier(limit: int) -> list[RunRow]:
    """Return the newest runs of the ledger; without a ledger there are none. Raise LedgerError."""
    ledger, read = memory.store.open_ledger(), memory.history
    return read.history(ledger, read.Asked(limit=limit)).runs if ledger.exists() else []
