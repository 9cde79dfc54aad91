"""The key of a job, from its plan and its nodes' states."""

from collections.abc import Callable, Iterable, Mapping

from shakedown.common.text import printable
from shakedown.desired.models import EACH, TOGETHER
from shakedown.gates.baselines.model import Key, digest
from shakedown.jobs.launch import LaunchPlan
from shakedown.runs.records import JobRecord
from shakedown.state.node import Gpu, NodeState, Unreadable, is_unreadable

NONE, UNREAD = "none", "not read"  # a node without the thing; a reading that could not be taken
_LONGEST = 200  # characters of a value


def key_of(job: JobRecord, states: Mapping[str, NodeState]) -> Key | None:
    """Return the key of a job, from its plan and the states of its nodes as they were before the run. None: it has no
    plan, so nobody knows what was to be run."""
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
        image=_line(image.rpartition("@")[2]),
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
    return _line(reading)


def _line(text: str) -> str:
    """Return what a node said, as one line that may be shown."""
    return " ".join(printable(text, _LONGEST).split())
