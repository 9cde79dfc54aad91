"""A benchmark on one node, judged by the gates that can be asked of it. What could not be seen never passes."""

from __future__ import annotations

from shakedown import gates
from shakedown.desired.models import Benchmark
from shakedown.gates import Gate, Observed
from shakedown.jobs.benchmark.results import Results, figures_of
from shakedown.recipes.benchmark import document


def judge(node: str, results: Results, exit_code: int | None, wanted: Benchmark, incomplete: str = "") -> list[Gate]:
    """All gates of one node, by what was asked for; an expected figure is judged in its metric's own direction.
    `incomplete` says why the log or the report is not whole: then only a failure that was seen stands."""
    steps_wanted = wanted.mode in document().models[wanted.model].steps
    observed = Observed(
        ended_with={node: exit_code},
        reported=figures_of(results),
        problems=results.problems,
        steps=results.steps if results.steps or steps_wanted else None,
        total_steps=results.total_steps,
        expect=wanted.expect,
        cut=f"the log or the report is not whole: {incomplete}" if incomplete else "",
    )
    return _of_node(node, observed)


def not_run(node: str, why: str) -> list[Gate]:
    """Of a job that did not come to its end."""
    return _of_node(node, Observed(not_ended=why))


def _of_node(node: str, observed: Observed) -> list[Gate]:
    return [gate.model_copy(update={"name": f"{gate.name}.{node}"}) for gate in gates.judge(observed)]
