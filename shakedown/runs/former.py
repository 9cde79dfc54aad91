"""What older run directories call otherwise, as it is called now."""

from typing import Any

from shakedown.desired.models import Benchmark
from shakedown.jobs.launch import LaunchPlan, NodePlan

_PARAMETERS = {"mode", "model", "precision", "seq_length", "commit"}
_GATES = {"ran": "ran_to_its_end", "exit_code": "exit_codes"}


def gate_of_benchmark(gate: object) -> object:
    """Return a gate whose name had that of its node behind it."""
    if not isinstance(gate, dict):
        return gate
    name = str(gate.get("name")).removesuffix(f".{gate.get('node')}")
    return {**gate, "name": _GATES.get(name, name)}


def job_of_benchmark(job: dict[str, Any]) -> dict[str, Any]:
    """Return a job that had no plan, with the plan of what was asked for. Raises ValueError."""
    wanted = Benchmark.model_validate(job["benchmark"])
    parameters = wanted.model_dump(mode="json", exclude_none=True, include=_PARAMETERS)
    plan = LaunchPlan(
        run_id="",
        recipe="pytorch-training",
        parser="mad",
        runtime="container",
        image=wanted.image,
        nodes=[NodePlan(name=str(job.get("node")), command=[])],
        seq_length=wanted.seq_length or 0,
        parameters={key: str(value) for key, value in parameters.items()},
        expect=wanted.expect,
        start_timeout_s=wanted.timeout_s,
        stall_timeout_s=wanted.timeout_s,
        timeout_s=wanted.timeout_s,
    )
    return {**job, "plan": None if job.get("error") else plan}
